#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/pipeline.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// A multi-layer perceptron to be trained, as the whole network sees it.
struct TrainingModel {
  std::vector<int64_t> widths;  // features of the input, then of each layer's output
  int64_t rows = 16;            // of a microbatch
  v1::DType dtype = v1::F32;
  std::string activation = "relu";  // of every layer but the last: none, relu, tanh, sigmoid
  std::string precision;            // of products of F32 on CUDA
  uint64_t seed = 1;
  double learning_rate = 0.1;
  // Where data comes from: the client, as inputs "x" and "t" of all rows of an execution; otherwise every microbatch is the same random
  // one, made once by the workers, for measurements.
  bool inputs = true;
  // Whether the weights after each step are outputs "weights0", ... (one vector a stage; stages in order are the layers in order).
  // Otherwise "step0", ...: of how many microbatches the step was.
  bool weights = true;
  int32_t in_flight = 1;
};

// A graph that trains the model by the schedule: one execution is one optimizer step over all microbatches, its output "loss" the step's
// loss before it. One std.Mlp actor for each stage, on the schedule's worker; a worker's calls stand in the schedule's order, one after the
// other, then the steps of its stages. F and B at once are one after the other. Each stage holds as many microbatches' activations as the
// schedule lets live at once. InvalidArgument: fewer layers than stages, a schedule without backwards, numbers out of range.
absl::StatusOr<v1::Graph> TrainingGraph(const PipelinePlan& plan, const TrainingModel& model, const std::string& name);

// First layer of `stage`, when so many layers are spread over so many stages; stage == stages: the number of layers.
int64_t FirstLayer(int32_t stage, int32_t stages, int64_t layers);

// Bytes of parameters, gradients and held activations of each worker: what std.Mlp takes beside the plan's buffers.
std::vector<uint64_t> TrainingBytes(const v1::Graph& graph, int32_t workers);

}  // namespace weft
