#pragma once

#include "absl/status/status.h"
#include "driver/schedules/schedule.h"

namespace weft {

// Whether a schedule, such as one that a user wrote, is one at all: every pass stands once, on its stage's worker, each stage and
// microbatch has its F and either a B, or I and W, or (in the whole schedule) only F; and no worker runs I or B before the F, or W before
// the I, of the same stage and microbatch. InvalidArgument: every problem, up to 20, one a line, with worker and passes. Linear.
absl::Status CheckSchedule(const PipelineSchedule& schedule);

}  // namespace weft
