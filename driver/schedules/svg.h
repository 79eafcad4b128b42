#pragma once

#include <string>

#include "driver/schedules/pipeline.h"

namespace weft {

// A picture of the schedule: one row for each worker, its passes as boxes over time with the microbatch's number, a colour for each kind of
// pass and a darker one for later stages. Self-contained. Workers and passes beyond what can be read are left out; the picture says so.
std::string PipelineSvg(const PipelinePlan& plan);

}  // namespace weft
