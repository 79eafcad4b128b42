#pragma once

// Between order and overlap: the ordered steps become the plan's ops.

#include <vector>

#include "common/plan/plan.h"
#include "driver/graph/graph.h"
#include "driver/plan/compiler.h"
#include "driver/plan/order.h"
#include "driver/plan/place.h"
#include "driver/plan/transport.h"

namespace weft {

// The whole plan but for slots, NO_OVERLAP and BUFFER waits, peak bytes and hash: ops in the order of `steps` with lanes, args, DATA and
// CONTROL waits. All transfers of one ordered pair of workers share a lane at each end, so that both ends have one order; pairs are spread
// over the lanes as they come.
Plan EmitPlan(const ResolvedGraph& graph, const Cluster& cluster, const Placement& placement, const Edges& edges,
              const std::vector<Step>& steps);

}  // namespace weft
