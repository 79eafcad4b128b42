#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/channel/port.h"
#include "common/channel/shm/segment.h"

namespace weft {

// The reading end of one edge of a segment. Values point into the slot: no copy. Their memory stays mapped while a Tensor refers to
// it, but its contents are the writer's again after Release.
class ShmRecvPort : public RecvPort {
 public:
  // Pre: !segment->is_writer(). NotFound when the segment has no such edge; FailedPrecondition, naming the field, when the writer
  // made the edge otherwise than `expected` (bytes, slots, dtype and shape, the link), which happens with unequal plans. `clock` as
  // for ShmSendPort.
  static absl::StatusOr<std::unique_ptr<ShmRecvPort>> Create(std::shared_ptr<ShmSegment> segment, const ShmEdgeSpec& expected,
                                                             const Clock* clock);
  ~ShmRecvPort() override;

  PortState Poll(int64_t execution) override;
  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) override;
  void Release(int64_t execution) override;
  bool ZeroCopy() const override { return true; }
  std::string WaitsFor() const override;
  absl::Status closed() const override;
  // The slot itself, for edges of planned size.
  absl::StatusOr<const void*> Place(int ahead, size_t bytes) override;

 private:
  class Ring;
  class RecvEvent;
  explicit ShmRecvPort(std::shared_ptr<Ring> ring);
  const std::shared_ptr<Ring> ring_;
  uint64_t received_ = 0;
  uint64_t released_ = 0;
  int64_t polled_ = 0;
  // Of each slot, on emulated links.
  std::vector<std::weak_ptr<RecvEvent>> pending_;
  std::vector<int64_t> executions_;
};

}  // namespace weft
