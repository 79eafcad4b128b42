#pragma once

// From a schedule's name and a pipeline's numbers to its orders, its times and what it holds.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/costs.h"
#include "driver/schedules/evaluate.h"
#include "driver/schedules/memory.h"
#include "driver/schedules/schedule.h"

namespace weft {

struct PipelineRequest {
  std::string schedule;  // one of PipelineScheduleNames(), or "csv" with `grid`
  std::string grid;      // as ReadScheduleGrid
  int32_t workers = 0;
  int32_t microbatches = 0;
  std::optional<int32_t> chunks;  // stages a worker
  std::string placement;          // of auto's stages: "loop", "v", or empty for the better
  CostSpec costs;
  std::optional<MemorySpec> memory;
  std::optional<Decimal> cap_activations;  // microbatches of a whole worker share, on every worker
  std::optional<Decimal> cap_bytes;        // with `memory`; at most one of the two
};

struct PipelinePlan {
  PipelineSchedule schedule;
  int32_t chunks = 1;
  PipelineCosts costs;
  PipelineTimes times;
  bool has_unit = false;          // as CostSpec
  double makespan = 0, span = 0;  // in units
  // Time without work: of the makespan, of the span. Work is m * T, T being the average worker's F + I + W.
  double bubble_global = 0, bubble_span = 0;
  std::vector<double> peak_activations;  // by worker
  std::vector<double> peak_bytes;        // by worker; empty without `memory`
  double scheduler_s = 0;                // what making the order took
};

// "forward-only", ..., "auto"; without "csv".
const std::vector<std::string>& PipelineScheduleNames();

// InvalidArgument: whatever of the request cannot be done; names it, and where a number is wrong the smallest that works.
// FailedPrecondition: a grid whose orders wait for each other; names the workers and passes.
absl::StatusOr<PipelinePlan> PlanPipeline(const PipelineRequest& request);

}  // namespace weft
