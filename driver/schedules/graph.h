#pragma once

#include <string>

#include "driver/schedules/pipeline.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// A graph that runs the schedule for real: one std.Delay actor for each worker of the pipeline (w0, w1, ...) whose program order is the
// schedule, one node for each pass, which takes as long as the costs say (in seconds), an edge for each value and gradient, and emulated
// links of the hop's latency. One output for each worker, so that an execution ends when all passes have. One execution in flight, since
// the schedule's times begin with idle workers. Without hops the simulated plan starts every pass just when the schedule does, with hops
// too where a worker has one stage and no pass is shorter than a hop; otherwise two values for one neighbour may wait for each other on the
// link's lane.
v1::Graph PipelineGraph(const PipelinePlan& plan, const std::string& name);

}  // namespace weft
