#include "driver/plan/cost_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace weft {
namespace {

// Nodes, then collectives.
class Ranker {
 public:
  Ranker(const ResolvedGraph& g, const Edges& edges, const Plan& plan, const CostModel& costs)
      : g_(g), e_(edges), plan_(plan), costs_(costs), nodes_(static_cast<int32_t>(g.nodes.size())) {}

  std::vector<int32_t> Run() {
    Connect();
    const std::vector<int32_t> topological = Sort();
    std::vector<Nanos> way(cost_.size(), 0);
    std::vector<int32_t> place(cost_.size(), 0);
    for (size_t i = topological.size(); i-- > 0;) {
      const int32_t v = topological[i];
      place[v] = static_cast<int32_t>(i);
      Nanos longest = 0;
      for (int32_t k = at_[v]; k < at_[v + 1]; ++k) longest = std::max(longest, Plus(next_[k].cost, way[next_[k].to]));
      way[v] = Plus(cost_[v], longest);
    }
    // A way is never longer than that of what comes before it, and where they are equal the topological place decides: no node can come
    // before one that it needs.
    std::vector<int32_t> rank(nodes_);
    std::iota(rank.begin(), rank.end(), 0);
    std::sort(rank.begin(), rank.end(), [&](int32_t a, int32_t b) { return way[a] != way[b] ? way[a] > way[b] : place[a] < place[b]; });
    return rank;
  }

 private:
  struct Next {
    int32_t to;
    Nanos cost;  // of the transfer
  };
  struct Link {
    int32_t from;
    Next next;
  };

  static Nanos Plus(Nanos a, Nanos b) { return a > std::numeric_limits<Nanos>::max() - b ? std::numeric_limits<Nanos>::max() : a + b; }

  Nanos Transfer(int32_t edge) const {
    return edge >= 0 && costs_.transfer ? std::max<Nanos>(0, costs_.transfer(plan_, plan_.edges[edge])) : 0;
  }

  void Connect() {
    for (const PlanNode& n : plan_.nodes) cost_.push_back(costs_.compute ? std::max<Nanos>(0, costs_.compute(plan_, n)) : 0);
    for (const PlanGroup& g : plan_.groups) cost_.push_back(costs_.collective ? std::max<Nanos>(0, costs_.collective(plan_, g)) : 0);
    std::vector<Link> links;
    for (int32_t n = 0; n < nodes_; ++n) {
      const ResolvedNode& node = g_.nodes[n];
      for (size_t a = 0; a < node.args.size(); ++a) {
        const Nanos cost = Transfer(e_.arg_edge[e_.arg_begin[n] + a]);
        if (node.args[a].kind == ResolvedArg::kNode) links.push_back({node.args[a].index, {n, cost}});
        if (node.args[a].kind == ResolvedArg::kCollective) links.push_back({nodes_ + node.args[a].index, {n, cost}});
      }
      for (size_t a = 0; a < node.after.size(); ++a) links.push_back({node.after[a], {n, Transfer(e_.after_edge[e_.after_begin[n] + a])}});
    }
    for (size_t c = 0; c < g_.collectives.size(); ++c) {
      for (const ResolvedMember& m : g_.collectives[c].members) {
        links.push_back({m.node, {nodes_ + static_cast<int32_t>(c), 0}});
        if (m.after >= 0) links.push_back({m.after, {nodes_ + static_cast<int32_t>(c), 0}});
      }
    }
    at_.assign(cost_.size() + 1, 0);
    needs_.assign(cost_.size(), 0);
    for (const Link& l : links) {
      ++at_[l.from + 1];
      ++needs_[l.next.to];
    }
    for (size_t v = 0; v < cost_.size(); ++v) at_[v + 1] += at_[v];
    next_.resize(links.size());
    std::vector<int32_t> fill(at_.begin(), at_.end() - 1);
    for (const Link& l : links) next_[fill[l.from]++] = l.next;
  }

  // Smallest index first, so that ties keep the order of the file.
  std::vector<int32_t> Sort() {
    std::vector<int32_t> heap, out;
    const auto later = std::greater<int32_t>();
    for (size_t v = 0; v < needs_.size(); ++v) {
      if (needs_[v] == 0) heap.push_back(static_cast<int32_t>(v));
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const int32_t v = heap.back();
      heap.pop_back();
      out.push_back(v);
      for (int32_t k = at_[v]; k < at_[v + 1]; ++k) {
        if (--needs_[next_[k].to] > 0) continue;
        heap.push_back(next_[k].to);
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
    return out;
  }

  const ResolvedGraph& g_;
  const Edges& e_;
  const Plan& plan_;
  const CostModel& costs_;
  const int32_t nodes_;
  std::vector<Nanos> cost_;
  std::vector<int32_t> at_, needs_;
  std::vector<Next> next_;
};

}  // namespace

std::vector<int32_t> RankByCost(const ResolvedGraph& graph, const Edges& edges, const Plan& plan,
                                const CostModel& costs) {
  return Ranker(graph, edges, plan, costs).Run();
}

}  // namespace weft
