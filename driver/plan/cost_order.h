#pragma once

// `order: COST`: the order in which the nodes of each worker are to run, by what they and the transfers behind them cost.

#include <cstdint>
#include <vector>

#include "common/plan/plan.h"
#include "driver/graph/graph.h"
#include "driver/plan/transport.h"
#include "driver/simulate/simulator.h"

namespace weft {

// All nodes, each after everything that its values, `after`s and collectives need, and among these the one with the longest way to the
// end of the graph first (time of its call and of all that must follow, transfers included; ties in the order of the file). `plan` holds
// the graph's actors, nodes, edges and collectives; its ops are not looked at. Pre: the graph has no circle. O(n log n).
std::vector<int32_t> RankByCost(const ResolvedGraph& graph, const Edges& edges, const Plan& plan,
                                const CostModel& costs);

}  // namespace weft
