#pragma once

#include "common/trace/timeline.h"

namespace weft {

// A client that has nothing to submit for a while leaves gaps in which no execution is under way. Those longer than ten executions, and than 10 ms, are
// shortened to the median of the other gaps, and a note tells of them, so that a picture shows what ran and times per execution are those of a busy
// graph. Executions that overlap, and the short gaps between two that a waiting client submits, stay as they are.
void CutPauses(TimelinePanel* panel);

}  // namespace weft
