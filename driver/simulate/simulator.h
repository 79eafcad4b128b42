#pragma once

// Pass 9: a discrete-event simulation of a plan. Integer time, deterministic. It runs the same rules as worker/run: lanes in order,
// waits with execution distance, credits, rendezvous and buffered transfers, groups, admission. Beside these it knows what the cost model
// says: times that lanes are held, latency that holds none, what first uses take longer, and how ops of one worker slow each other.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "driver/simulate/cost_model.h"

namespace weft {

struct SimOptions {
  int64_t executions = 1;
  // Executions admitted at once; execution k is admitted when k - in_flight is done everywhere it has outputs. 0: as the plan's options say.
  int32_t in_flight = 0;
  // Record every op's times (memory: 24 bytes an op and execution).
  bool record = true;
  // Fill SimResult::fingerprint.
  bool fingerprint = false;
  // An execution starts only when every op of the one before it is done, on all workers: what a barrier at the end of each iteration does.
  // One is in flight then, whatever in_flight says.
  bool end_barrier = false;
};

struct SimEvent {
  int32_t op = 0;
  int64_t execution = 0;
  Nanos start = 0;
  Nanos end = 0;
};

struct SimResult {
  std::vector<SimEvent> events;       // by start, then op
  std::vector<Nanos> execution_start;  // when each execution's first op started
  std::vector<Nanos> execution_end;   // when each execution's last op ended
  std::vector<Nanos> admitted;        // when each execution was admitted
  std::vector<Nanos> done;            // when each execution's results were all there (its last op's end in a graph without outputs), and those before
  // By execution: a hash of when each of its ops ended, counted from its admission.
  std::vector<uint64_t> fingerprint;
  Nanos makespan = 0;
  std::vector<Nanos> busy;            // per worker: time its compute lanes worked
  std::vector<Nanos> span;            // per worker: last end minus first start of its compute lanes
  // (last done - first done) / (n - 1), seconds; makespan for one execution.
  double seconds_per_execution = 0;
};

// FailedPrecondition when the plan comes to a standstill: names each worker's lane heads and what they wait for.
absl::StatusOr<SimResult> Simulate(const Plan& plan, const CostModel& costs, const SimOptions& options);

}  // namespace weft
