#pragma once

// A whole cluster in one thread: every worker's loop with a fake device, fake links and fake communicators, stepped in random order under
// a fake clock. It runs real actors on a real plan, so results are real; only time and transport are made up.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"
#include "common/tensor/tensor.h"

namespace weft {

struct InProcessOptions {
  uint64_t seed = 1;
  int64_t executions = 4;
  int in_flight = 1;
  // The device queues ops and waits for events by itself, as CUDA does.
  bool queueing_device = false;
  // From execution `next_from` on the cluster runs by this plan of the same graph, as a re-planned graph does.
  const Plan* next = nullptr;
  int64_t next_from = 0;
};

// One output of one execution: the tensor (a copy), or the error in its place.
struct InProcessValue {
  Tensor tensor;
  std::string error;
};
// By output name.
using InProcessResult = std::map<std::string, InProcessValue>;

// Results by execution. Internal when nothing moves any more: the message holds every worker's view.
absl::StatusOr<std::vector<InProcessResult>> RunInProcess(const Plan& plan, const InProcessOptions& options,
                                                          const std::function<Tensor(const std::string& input, int64_t execution)>& input);

// Empty, or the first difference.
std::string Differ(const std::vector<InProcessResult>& a, const std::vector<InProcessResult>& b);

}  // namespace weft
