#pragma once

#include "common/channel/shm/edge_spec.h"
#include "common/plan/plan.h"

namespace weft {

// An edge of the plan as its two ports see it, whatever carries it. Emulated links only where the plan has them.
ShmEdgeSpec ShmSpecOf(const Plan& plan, const PlanEdge& edge);

}  // namespace weft
