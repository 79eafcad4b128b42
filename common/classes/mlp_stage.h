#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/shape.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// What std.Mlp's config says: some layers of a multi-layer perceptron that is trained, one microbatch at a time.
struct MlpStage {
  DType dtype = v1::F32;
  std::vector<int64_t> widths;  // of the stage's input, then of each layer's output
  int64_t first_layer = 0;      // in the whole network
  int64_t rows = 0;             // of a microbatch
  int64_t microbatches = 1;     // of an optimizer step
  int64_t slots = 1;            // microbatches whose activations are held at once
  bool loss = false;            // the last stage: takes targets, gives the loss
  double learning_rate = 0;

  int64_t layers() const { return static_cast<int64_t>(widths.size()) - 1; }
  bool first() const { return first_layer == 0; }
  // For each layer its weights [out, in], row-major, then its bias [out].
  int64_t parameters() const;
  // What one microbatch keeps from its forward to its weight gradient, in elements: the stage's input, each layer's output (the last one's
  // becomes its gradient) and the gradient of each output but the last.
  int64_t slot_elements() const;
};

// InvalidArgument lists whatever is missing or out of range, each by its field. A node's config also has `microbatch` and `slot`: checked
// here where they are set.
absl::StatusOr<MlpStage> ReadMlpStage(const v1::Config& config);

// The microbatch of a call and the slot that holds its activations; InvalidArgument where the node does not say.
struct MlpCall {
  int64_t microbatch = 0;
  int64_t slot = 0;
};
absl::StatusOr<MlpCall> ReadMlpCall(const v1::Config& config, const MlpStage& stage);

}  // namespace weft
