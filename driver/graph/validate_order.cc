// Validate: what depends on what, and that it does so in no circle. Nodes and collectives are vertices; an edge points
// from what comes first: a value, a member's value, a collective's result, a control edge, and the program order of an
// actor's calls.

#include <algorithm>
#include <cstdint>

#include "driver/graph/validation.h"

namespace weft {
namespace {

struct Dependency {
  enum Reason : uint8_t { kArg, kAfter, kProgram, kMember, kMemberAfter };
  int from;
  int to;
  Reason reason;
  int detail;  // kArg: which. kMember, kMemberAfter: rank
};

// Adjacency in one array: those from vertex x are edges[begin[x]] to edges[begin[x + 1] - 1].
struct Adjacency {
  std::vector<int> begin;
  std::vector<Dependency> edges;
};

Adjacency Collect(const Validation& v) {
  const int nodes = v.graph.node_size();
  const int vertices = nodes + v.graph.collective_size();
  const bool program_order = v.out.options.order() != v1::COST;
  std::vector<Dependency> all;
  std::vector<int> last_of_actor(v.graph.actor_size(), -1);
  for (int i = 0; i < nodes; ++i) {
    const ResolvedNode& node = v.out.nodes[i];
    for (int a = 0; a < static_cast<int>(node.args.size()); ++a) {
      const ResolvedArg& arg = node.args[a];
      if (arg.index < 0 || arg.kind == ResolvedArg::kInput) continue;
      const int from = arg.kind == ResolvedArg::kNode ? arg.index : nodes + arg.index;
      if (from != i) all.push_back({from, i, Dependency::kArg, a});
    }
    for (const int before : node.after) all.push_back({before, i, Dependency::kAfter, 0});
    if (node.actor >= 0 && program_order) {
      int& last = last_of_actor[node.actor];
      if (last >= 0) all.push_back({last, i, Dependency::kProgram, 0});
      last = i;
    }
  }
  for (int c = 0; c < v.graph.collective_size(); ++c) {
    const std::vector<ResolvedMember>& members = v.out.collectives[c].members;
    for (int m = 0; m < static_cast<int>(members.size()); ++m) {
      if (members[m].node >= 0) all.push_back({members[m].node, nodes + c, Dependency::kMember, m});
      if (members[m].after >= 0) all.push_back({members[m].after, nodes + c, Dependency::kMemberAfter, m});
    }
  }
  Adjacency adjacency;
  adjacency.begin.assign(vertices + 1, 0);
  for (const Dependency& d : all) ++adjacency.begin[d.from + 1];
  for (int x = 0; x < vertices; ++x) adjacency.begin[x + 1] += adjacency.begin[x];
  adjacency.edges.resize(all.size());
  std::vector<int> next(adjacency.begin.begin(), adjacency.begin.end() - 1);
  for (const Dependency& d : all) adjacency.edges[next[d.from]++] = d;
  return adjacency;
}

// Strongly connected components (Tarjan's, without recursion) of the vertices not `done`: number of each vertex's, -1
// when done.
std::vector<int> Components(const Adjacency& g, const std::vector<char>& done, int* count) {
  const int n = static_cast<int>(done.size());
  std::vector<int> component(n, -1), index(n, -1), low(n, 0), next(n, 0), stack, path;
  int counter = 0;
  *count = 0;
  for (int root = 0; root < n; ++root) {
    if (done[root] || index[root] >= 0) continue;
    path.push_back(root);
    while (!path.empty()) {
      const int x = path.back();
      if (index[x] < 0) {
        index[x] = low[x] = counter++;
        next[x] = g.begin[x];
        stack.push_back(x);
      }
      bool deeper = false;
      for (; next[x] < g.begin[x + 1]; ++next[x]) {
        const int y = g.edges[next[x]].to;
        if (done[y]) continue;
        if (index[y] < 0) {
          path.push_back(y);
          deeper = true;
          break;
        }
        if (component[y] < 0) low[x] = std::min(low[x], index[y]);
      }
      if (deeper) continue;
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[x]);
      if (low[x] != index[x]) continue;
      while (true) {
        const int y = stack.back();
        stack.pop_back();
        component[y] = *count;
        if (y == x) break;
      }
      ++*count;
    }
  }
  return component;
}

// A shortest way from `start` back to itself within its component.
std::vector<Dependency> CycleThrough(const Adjacency& g, const std::vector<int>& component, int start,
                                     std::vector<int>* reached_by) {
  std::vector<int> queue = {start};
  for (size_t head = 0; head < queue.size(); ++head) {
    const int x = queue[head];
    for (int e = g.begin[x]; e < g.begin[x + 1]; ++e) {
      const int y = g.edges[e].to;
      if (component[y] != component[start]) continue;
      if (y == start) {
        std::vector<Dependency> cycle = {g.edges[e]};
        for (int back = x; back != start; back = cycle.back().from) cycle.push_back(g.edges[(*reached_by)[back]]);
        std::reverse(cycle.begin(), cycle.end());
        return cycle;
      }
      if ((*reached_by)[y] >= 0) continue;
      (*reached_by)[y] = e;
      queue.push_back(y);
    }
  }
  return {};
}

std::string Vertex(const Validation& v, int x) {
  const int nodes = v.graph.node_size();
  return x < nodes ? v.Node(x) : v.Collective(x - nodes);
}

std::string Why(const Validation& v, const Dependency& d) {
  switch (d.reason) {
    case Dependency::kArg: return absl::StrCat("its ", ArgName(d.detail));
    case Dependency::kAfter: return "its after";
    case Dependency::kProgram: return absl::StrCat("program order of ", v.Actor(v.out.nodes[d.to].actor));
    case Dependency::kMember: return absl::StrCat("its member ", d.detail);
    case Dependency::kMemberAfter: return absl::StrCat("after of its member ", d.detail);
  }
  return "";
}

void ReportCycle(Validation* v, const std::vector<Dependency>& cycle) {
  constexpr size_t kShown = 12;
  // Several calls of one actor in a row read as one step.
  std::vector<Dependency> steps;
  bool program = false;
  for (const Dependency& d : cycle) {
    program |= d.reason == Dependency::kProgram;
    if (!steps.empty() && steps.back().reason == Dependency::kProgram && d.reason == Dependency::kProgram) {
      steps.back().to = d.to;
    } else {
      steps.push_back(d);
    }
  }
  std::string text = Vertex(*v, steps.front().from);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i >= kShown && i + 1 < steps.size()) {
      if (i == kShown) absl::StrAppend(&text, " -> ... ", steps.size() - kShown - 1, " more ...");
      continue;
    }
    absl::StrAppend(&text, " -> ", Vertex(*v, steps[i].to), " (", Why(*v, steps[i]), ")");
  }
  v->Error("cycle: ", text, ": each waits for the one before it; ",
           program ? "put producers before their consumers in the file, or set options { order: COST }"
                   : "remove one of these dependencies");
}

}  // namespace

std::vector<int> OrderDependencies(Validation* v) {
  const Adjacency g = Collect(*v);
  const int n = static_cast<int>(g.begin.size()) - 1;
  std::vector<int> missing(n, 0), order;
  order.reserve(n);
  for (const Dependency& d : g.edges) ++missing[d.to];
  for (int x = 0; x < n; ++x) {
    if (missing[x] == 0) order.push_back(x);
  }
  for (size_t head = 0; head < order.size(); ++head) {
    const int x = order[head];
    for (int e = g.begin[x]; e < g.begin[x + 1]; ++e) {
      if (--missing[g.edges[e].to] == 0) order.push_back(g.edges[e].to);
    }
  }
  if (static_cast<int>(order.size()) == n) return order;

  std::vector<char> done(n, false);
  for (const int x : order) done[x] = true;
  int count = 0;
  const std::vector<int> component = Components(g, done, &count);
  std::vector<int> size(count, 0), reached_by(n, -1);
  std::vector<char> reported(count, false);
  for (int x = 0; x < n; ++x) {
    if (component[x] >= 0) ++size[component[x]];
  }
  for (int x = 0; x < n; ++x) {
    if (done[x]) continue;
    order.push_back(x);
    if (size[component[x]] < 2 || reported[component[x]]) continue;
    reported[component[x]] = true;
    ReportCycle(v, CycleThrough(g, component, x, &reached_by));
  }
  return order;
}

}  // namespace weft
