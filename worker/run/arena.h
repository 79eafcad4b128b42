#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/plan/plan.h"

namespace weft {

// What a released buffer is filled with when options.poison_released is set: a late reader sees it at once.
constexpr int kReleasedPattern = 0xDB;

// Where a buffer's status word lies behind `bytes` of payload.
constexpr size_t StatusOffset(size_t bytes) { return (bytes + 15) / 16 * 16; }
// Memory of a buffer for `bytes` of payload, with its status word if it has one.
constexpr size_t BufferSize(size_t bytes, bool status) { return status ? StatusOffset(bytes) + 16 : bytes; }

// Where GraphRun's buffers lie in the arena of a part: those of its COMPUTE, READ, RECV and COLLECTIVE ops one after the other, in the
// part's order.
class ArenaLayout {
 public:
  explicit ArenaLayout(const Plan& part);
  size_t bytes() const { return bytes_; }
  // Of a value's buffer `slot`. InvalidArgument when the part plans none.
  absl::StatusOr<size_t> OffsetOf(const PlanValue& value, int slot) const;

 private:
  struct Place {
    size_t begin = 0;
    int slots = 0;
    std::vector<size_t> outputs;  // bytes of one buffer of each; 0: not planned
  };
  std::unordered_map<int32_t, Place> places_;  // by op
  size_t bytes_ = 0;
};

// All planned device memory of one graph on one worker, in one allocation that is taken before the first transfer: so it is opened by a
// peer with one handle, and nothing is allocated while the graph runs. Used by one thread.
class Arena {
 public:
  // What GraphRun takes for the part: the buffers of its COMPUTE, READ, RECV and COLLECTIVE ops. 0 when it plans none.
  static size_t BytesFor(const Plan& part) { return ArenaLayout(part).bytes(); }
  // `bytes` of memory that is there.
  static std::shared_ptr<Arena> Over(std::shared_ptr<void> memory, size_t bytes);
  // ResourceExhausted names the size.
  static absl::StatusOr<std::shared_ptr<Arena>> Create(Device* device, size_t bytes);

  // The next `bytes`, 256-byte aligned, a share in the whole. ResourceExhausted when the plan was counted wrongly.
  absl::StatusOr<std::shared_ptr<void>> Take(size_t bytes);

  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  Arena(std::shared_ptr<void> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

  const std::shared_ptr<void> memory_;
  const size_t bytes_;
  size_t used_ = 0;
};

}  // namespace weft
