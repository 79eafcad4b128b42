#include "driver/plan/task_costs.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace weft {
namespace {

Nanos Plus(Nanos a, Nanos b) { return a > std::numeric_limits<Nanos>::max() - b ? std::numeric_limits<Nanos>::max() : a + b; }

struct Link {
  int32_t from;
  TaskCosts::Next next;
};

std::vector<Link> Links(const ResolvedGraph& g, const Edges& e, const Plan& plan, const CostModel& costs) {
  const int32_t nodes = static_cast<int32_t>(g.nodes.size());
  const auto way = [&](int32_t edge) -> Nanos {
    if (edge < 0) return 0;
    const PlanEdge& on = plan.edges[edge];
    Nanos total = 0;
    for (const auto* part : {&costs.transfer, &costs.latency, &costs.read}) {
      if (*part) total = Plus(total, std::max<Nanos>(0, (*part)(plan, on)));
    }
    return total;
  };
  std::vector<Link> links;
  for (int32_t n = 0; n < nodes; ++n) {
    const ResolvedNode& node = g.nodes[n];
    for (size_t a = 0; a < node.args.size(); ++a) {
      const Nanos cost = way(e.arg_edge[e.arg_begin[n] + a]);
      if (node.args[a].kind == ResolvedArg::kNode) links.push_back({node.args[a].index, {n, cost}});
      if (node.args[a].kind == ResolvedArg::kCollective) links.push_back({nodes + node.args[a].index, {n, cost}});
    }
    for (size_t a = 0; a < node.after.size(); ++a) links.push_back({node.after[a], {n, way(e.after_edge[e.after_begin[n] + a])}});
  }
  for (size_t c = 0; c < g.collectives.size(); ++c) {
    for (const ResolvedMember& m : g.collectives[c].members) {
      links.push_back({m.node, {nodes + static_cast<int32_t>(c), 0}});
      if (m.after >= 0) links.push_back({m.after, {nodes + static_cast<int32_t>(c), 0}});
    }
  }
  return links;
}

// Smallest index first, so that ties keep the order of the file.
std::vector<int32_t> Sort(const TaskCosts& t) {
  std::vector<int32_t> heap, out, needs = t.needs;
  const auto later = std::greater<int32_t>();
  for (size_t v = 0; v < needs.size(); ++v) {
    if (needs[v] == 0) heap.push_back(static_cast<int32_t>(v));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const int32_t v = heap.back();
    heap.pop_back();
    out.push_back(v);
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) {
      if (--needs[t.next[k].to] > 0) continue;
      heap.push_back(t.next[k].to);
      std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  return out;
}

}  // namespace

TaskCosts CollectTaskCosts(const ResolvedGraph& graph, const Placement& placement, const Edges& edges, const Plan& plan,
                           const CostModel& costs) {
  TaskCosts t;
  t.nodes = static_cast<int32_t>(graph.nodes.size());
  t.worker = placement.node_worker;
  for (const PlanNode& n : plan.nodes) t.cost.push_back(costs.compute ? std::max<Nanos>(0, costs.compute(plan, n)) : 0);
  for (const PlanGroup& g : plan.groups) t.cost.push_back(std::max<Nanos>(0, CollectiveCost(costs, plan, g)));
  const std::vector<Link> links = Links(graph, edges, plan, costs);
  t.next_at.assign(t.cost.size() + 1, 0);
  t.needs.assign(t.cost.size(), 0);
  for (const Link& l : links) {
    ++t.next_at[l.from + 1];
    ++t.needs[l.next.to];
  }
  for (size_t v = 0; v < t.cost.size(); ++v) t.next_at[v + 1] += t.next_at[v];
  t.next.resize(links.size());
  std::vector<int32_t> fill(t.next_at.begin(), t.next_at.end() - 1);
  for (const Link& l : links) t.next[fill[l.from]++] = l.next;

  const std::vector<int32_t> sorted = Sort(t);
  t.to_end.assign(t.cost.size(), 0);
  t.place.assign(t.cost.size(), 0);
  for (size_t i = sorted.size(); i-- > 0;) {
    const int32_t v = sorted[i];
    t.place[v] = static_cast<int32_t>(i);
    Nanos longest = 0;
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) longest = std::max(longest, Plus(t.next[k].way, t.to_end[t.next[k].to]));
    t.to_end[v] = Plus(t.cost[v], longest);
  }
  return t;
}

}  // namespace weft
