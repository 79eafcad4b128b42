#pragma once

#include "driver/schedules/schedule.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Options under which a graph runs as its schedule says: as many lanes as a worker has neighbours, so that a value from one does not wait
// for one from another (up to the most there may be); values received in the order in which they are taken; one execution in flight.
void SetPipelineOptions(const PipelineSchedule& schedule, v1::Graph* graph);

}  // namespace weft
