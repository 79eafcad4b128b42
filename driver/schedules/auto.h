#pragma once

// The searching schedule: the order with the smallest makespan that it finds, then the smallest span.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/costs.h"
#include "driver/schedules/memory.h"
#include "driver/schedules/polish.h"
#include "driver/schedules/schedule.h"

namespace weft {

struct AutoProblem {
  std::vector<int32_t> worker_of;
  int32_t workers = 0;
  int32_t microbatches = 0;
  const PipelineCosts* costs = nullptr;
  MemoryUse use;         // of one stage
  int64_t cap = kNoCap;  // of every worker, in the units of `use`
  bool pairs = false;    // F and B at once is worth it
  double effort = 1;     // part of the usual time to search
};

struct AutoResult {
  PipelineSchedule schedule;
  Score score;
};

// Never worse than any hand-made schedule of the same placement that is within the cap. Deterministic; the time grows linearly with
// stages * microbatches. InvalidArgument: the cap is below the smallest that works.
absl::StatusOr<AutoResult> AutoSchedule(const AutoProblem& problem);

// Neither makespan nor span can be less, whatever the order.
Score LowerBound(const AutoProblem& problem);

}  // namespace weft
