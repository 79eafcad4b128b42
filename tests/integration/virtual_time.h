#pragma once

// A whole cluster in one thread under a clock that stands still while anything moves: every worker's loop and the client's session, over
// fake devices, links and groups that take exactly as long as a cost model says. What runs is real, time is exact: the judge of
// predictions.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "common/tensor/tensor.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct VirtualRun {
  // By op and execution, in the order of their ends. `start` is when the op was issued.
  std::vector<SimEvent> events;
  std::vector<Nanos> admitted, done;  // by execution, as the session says
};

// Runs `executions` that are all submitted at time 0, in the flight that the plan's options allow. `seed` decides in which order workers
// are looked at, which must make no difference. Internal when nothing moves any more, or when a task failed.
absl::StatusOr<VirtualRun> RunInVirtualTime(const Plan& plan, const CostModel& costs, int64_t executions, uint64_t seed,
                                            const std::function<Tensor(const std::string& input, int64_t execution)>& input);

}  // namespace weft
