#pragma once

// A schedule as a grid of text: a row for each worker, its passes from left to right. "2F5" is F of stage 2 and microbatch 5, likewise I, W
// and B; without the number in front the stage is the row's own. "(0F5;7B2)" is F and B run at once; "OVERLAP_F_B" may follow it. Only the
// order within a row counts: empty cells, such as those that line up a drawing, are skipped.

#include <string>

#include "absl/status/statusor.h"
#include "driver/schedules/schedule.h"

namespace weft {

// Rows are workers w0, w1, ...; stages and microbatches are as many as the numbers say. InvalidArgument: a cell that is none of these
// (names row and cell), a stage that stands nowhere, or anything that CheckSchedule refuses.
absl::StatusOr<PipelineSchedule> ReadScheduleGrid(const std::string& text);

// What ReadScheduleGrid reads back as the same schedule.
std::string WriteScheduleGrid(const PipelineSchedule& schedule);

}  // namespace weft
