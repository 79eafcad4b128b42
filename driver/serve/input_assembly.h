#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/session/session.h"
#include "weft/v1/tensor.pb.h"

namespace weft {

// The inputs of one execution while their pieces come. The first thing that is wrong is kept and told at the end, since a client
// sends on until it hears of it.
class InputAssembly {
 public:
  // Most bytes of one dynamic (`?`) input, whose declaration bounds nothing.
  static constexpr uint64_t kMaxDynamicBytes = uint64_t{4} << 30;

  // `spec` outlives it.
  explicit InputAssembly(const SessionSpec* spec) : spec_(spec), parts_(spec->inputs.size()) {}

  void Add(const v1::TensorChunk& chunk);
  // In the order of the spec. InvalidArgument: what was wrong with a piece, or which inputs are missing or cut short.
  absl::StatusOr<std::vector<Tensor>> Finish();
  uint64_t bytes() const { return bytes_; }

 private:
  struct Part {
    bool begun = false;
    uint64_t received = 0;
    Tensor tensor;
  };
  absl::Status Check(const v1::TensorChunk& chunk, Part** part);

  const SessionSpec* const spec_;
  std::vector<Part> parts_;
  absl::Status problem_;
  uint64_t bytes_ = 0;
};

}  // namespace weft
