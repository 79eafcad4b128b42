#pragma once

// What a plan will do when executions follow each other: its steady state, from the same lanes, credits and admission that workers use.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct PredictOptions {
  // Executions in flight at once; 0: as the plan's options say.
  int32_t in_flight = 0;
  // Executions that `makespan` speaks of, submitted at once; 0: as many as are in flight.
  int64_t executions = 0;
  // Most op runs that may be simulated; the steady state is looked for within them.
  int64_t max_op_runs = 20'000'000;
};

// Executions repeat after a while: execution k + cycle is admitted, and each of its ops ends, exactly cycle_time after those of execution
// k, for all k >= warm_up.
struct Prediction {
  int32_t in_flight = 0;
  int64_t executions = 0;
  // From the first admission to the result of execution `executions` - 1.
  Nanos makespan = 0;
  // From admission to result: of execution 0; of later ones in the mean and at most.
  Nanos first_latency = 0;
  double latency_s = 0;
  Nanos max_latency = 0;
  // Seconds per execution: cycle_time / cycle.
  double period_s = 0;
  // False when no repetition was found within max_op_runs: then period and latencies are those of the last half of what was simulated, and
  // warm_up, cycle, cycle_time are 0.
  bool steady = false;
  int64_t warm_up = 0;
  int64_t cycle = 0;
  Nanos cycle_time = 0;
};

// Deterministic. FailedPrecondition and InvalidArgument as Simulate; ResourceExhausted when max_op_runs is not enough for two executions,
// or when `executions` is beyond what was simulated and no repetition was found.
absl::StatusOr<Prediction> Predict(const Plan& plan, const CostModel& costs, const PredictOptions& options);

}  // namespace weft
