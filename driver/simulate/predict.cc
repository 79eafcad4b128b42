#include "driver/simulate/predict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr int32_t kDefaultInFlight = 4;

// How many executions back an op's time can depend on another's.
int64_t Reach(const Plan& plan, int64_t in_flight) {
  int64_t reach = in_flight;
  for (const PlanEdge& e : plan.edges) reach = std::max<int64_t>(reach, e.slots);
  for (const PlanOp& o : plan.ops) {
    for (const PlanWait& w : o.waits) reach = std::max<int64_t>(reach, w.distance);
  }
  return std::max<int64_t>(reach, 1);
}

// Whether executions k and k - cycle look the same: admitted as long after the one before, and all ops ended alike.
bool Same(const SimResult& r, int64_t k, int64_t cycle) {
  return r.fingerprint[k] == r.fingerprint[k - cycle] &&
         r.admitted[k] - r.admitted[k - 1] == r.admitted[k - cycle] - r.admitted[k - cycle - 1];
}

// The smallest cycle of which a whole one and `reach` executions more have been seen to repeat: all that the next execution depends on is
// then as it was one cycle ago, so everything goes on like that. 0 when there is none.
int64_t FindCycle(const SimResult& r, int64_t reach) {
  const int64_t n = static_cast<int64_t>(r.fingerprint.size());
  for (int64_t cycle = 1; 2 * cycle + 2 * reach < n; ++cycle) {
    bool repeats = true;
    for (int64_t k = n - cycle - reach; k < n && repeats; ++k) repeats = Same(r, k, cycle);
    if (repeats) return cycle;
  }
  return 0;
}

}  // namespace

absl::StatusOr<Prediction> Predict(const Plan& plan, const CostModel& costs, const PredictOptions& options) {
  Prediction p;
  const int32_t by_plan = plan.options.max_in_flight() > 0 ? plan.options.max_in_flight() : kDefaultInFlight;
  p.in_flight = options.in_flight > 0 ? options.in_flight : by_plan;
  p.executions = options.executions > 0 ? options.executions : p.in_flight;
  const int64_t reach = Reach(plan, p.in_flight);
  const int64_t most = options.max_op_runs / std::max<int64_t>(1, static_cast<int64_t>(plan.ops.size()));
  if (most < 2) {
    return absl::ResourceExhaustedError(absl::StrCat("the plan has ", plan.ops.size(), " ops: to see two executions, at least ",
                                                     2 * plan.ops.size(), " op runs must be allowed, not ", options.max_op_runs));
  }
  SimOptions sim;
  sim.in_flight = p.in_flight;
  sim.record = false;
  sim.fingerprint = true;
  sim.executions = std::min(most, std::max<int64_t>(4 * reach + 16, 32));
  SimResult r;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(r, Simulate(plan, costs, sim));
    p.cycle = FindCycle(r, reach);
    if (p.cycle > 0 || sim.executions == most) break;
    sim.executions = std::min(most, 4 * sim.executions);
  }
  const int64_t n = sim.executions;
  p.steady = p.cycle > 0;
  p.first_latency = r.done[0] - r.admitted[0];
  int64_t from = n / 2;  // what counts as steady
  if (p.steady) {
    p.cycle_time = r.admitted[n - 1] - r.admitted[n - 1 - p.cycle];
    p.period_s = ToSeconds(p.cycle_time) / static_cast<double>(p.cycle);
    p.warm_up = n - p.cycle;
    while (p.warm_up > 1 && Same(r, p.warm_up - 1 + p.cycle, p.cycle)) --p.warm_up;
    if (p.warm_up == 1 && r.fingerprint[0] == r.fingerprint[p.cycle]) p.warm_up = 0;
    from = n - p.cycle;
  } else {
    p.period_s = ToSeconds(r.done[n - 1] - r.done[from - 1]) / static_cast<double>(n - from);
  }
  for (int64_t k = from; k < n; ++k) {
    const Nanos latency = r.done[k] - r.admitted[k];
    p.latency_s += ToSeconds(latency) / static_cast<double>(n - from);
    p.max_latency = std::max(p.max_latency, latency);
  }
  if (p.executions <= n) {
    p.makespan = r.done[p.executions - 1];
  } else if (p.steady) {
    const int64_t beyond = p.executions - n, cycles = (beyond + p.cycle - 1) / p.cycle;
    p.makespan = r.done[p.executions - 1 - cycles * p.cycle] + cycles * p.cycle_time;
  } else {
    return absl::ResourceExhaustedError(absl::StrCat("no repetition in the first ", n, " executions, and ", p.executions,
                                                     " are beyond the ", options.max_op_runs, " op runs that may be simulated"));
  }
  return p;
}

}  // namespace weft
