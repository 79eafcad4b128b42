#pragma once

// A graph's calls and collectives with what each costs and what must be over before it: what `order: COST` searches on.

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "driver/graph/graph.h"
#include "driver/plan/place.h"
#include "driver/plan/transport.h"
#include "driver/simulate/cost_model.h"

namespace weft {

// Vertices are the nodes, then the collectives. Times are sums that stop at the largest Nanos.
struct TaskCosts {
  struct Next {
    int32_t to = 0;
    Nanos way = 0;  // of the transfer in between
  };
  int32_t nodes = 0;
  std::vector<int32_t> worker;  // by node
  std::vector<Nanos> cost;      // by vertex
  std::vector<int32_t> next_at;
  std::vector<Next> next;       // of vertex v: next[next_at[v]] up to next[next_at[v + 1]]
  std::vector<int32_t> needs;   // by vertex: how many lead to it
  // By vertex: time of it and of all that must follow, transfers included.
  std::vector<Nanos> to_end;
  // By vertex: place in one order in which each stands behind what it needs, as near to that of the file as possible.
  std::vector<int32_t> place;
};

// `plan` holds the graph's actors, nodes, edges and collectives; its ops are not looked at. Pre: the graph has no circle. O(n log n).
TaskCosts CollectTaskCosts(const ResolvedGraph& graph, const Placement& placement, const Edges& edges, const Plan& plan,
                           const CostModel& costs);

}  // namespace weft
