#pragma once

#include <vector>

#include "driver/simulate/simulator.h"
#include "weft/v1/client_service.pb.h"

namespace weft {

// The events of a simulation as one track a worker, in the plan's order of workers, marked as predicted, with times from 0; a COMPUTE is
// named by its node, any other op by OpName. Empty tracks for a result without recorded events. Events of ops that the plan does not
// have are left out.
std::vector<v1::TraceTrack> PredictedTimeline(const Plan& plan, const SimResult& result);

}  // namespace weft
