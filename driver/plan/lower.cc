#include "driver/plan/lower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Gives every task its place in its worker's program.
void NumberTasks(const ResolvedGraph& g, const Placement& p, int32_t workers, const std::vector<int32_t>& rank,
                 Program* out) {
  const int32_t nodes = static_cast<int32_t>(g.nodes.size());
  std::vector<int32_t> position(nodes);
  for (int32_t i = 0; i < nodes; ++i) position[rank.empty() ? i : rank[i]] = i;

  // Members by the position of the node after which they stand; several there in the order of the collectives.
  std::vector<std::pair<int32_t, int32_t>> anchored;  // (position, task)
  for (size_t c = 0; c < g.collectives.size(); ++c) {
    const std::vector<ResolvedMember>& members = g.collectives[c].members;
    int32_t last = 0;
    for (size_t r = 0; r < members.size(); ++r) {
      const ResolvedMember& m = members[r];
      const int32_t anchor = m.after >= 0 && position[m.after] > position[m.node] ? m.after : m.node;
      const int32_t task = p.member_base[c] + static_cast<int32_t>(r);
      out->tasks[task] = {p.node_worker[m.node], 0, 0, static_cast<int32_t>(c)};
      anchored.push_back({position[anchor], task});
      last = std::max(last, anchor);
    }
    for (size_t r = 0; r < members.size(); ++r) out->tasks[p.member_base[c] + r].id = 2 * last + 1;
  }
  std::sort(anchored.begin(), anchored.end());

  std::vector<int32_t> next(workers, 0);
  auto member = anchored.begin();
  for (int32_t i = 0; i < nodes; ++i) {
    const int32_t n = rank.empty() ? i : rank[i];
    const int32_t w = p.node_worker[n];
    out->tasks[n] = {w, next[w]++, 2 * n, -1};
    for (; member != anchored.end() && member->first == i; ++member) {
      Task& task = out->tasks[member->second];
      task.local = next[task.worker]++;
    }
  }
}

}  // namespace

Program Lower(const ResolvedGraph& g, const Placement& p, const Edges& edges, int32_t workers, const std::vector<int32_t>& rank) {
  Program out;
  out.workers = workers;
  out.groups = static_cast<int32_t>(g.collectives.size());
  out.tasks.resize(p.tasks);
  NumberTasks(g, p, workers, rank, &out);

  out.transfers.reserve(edges.edges.size());
  for (size_t e = 0; e < edges.edges.size(); ++e) {
    const EdgeInfo& info = edges.info[e];
    out.transfers.push_back({info.src_task, info.dst_task, edges.edges[e].rendezvous, info.depth});
  }

  // Last node of each actor; of each worker where an order was found, which is to be had as it is.
  std::vector<int32_t> last(rank.empty() ? g.actors.size() : static_cast<size_t>(workers), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const int32_t n = rank.empty() ? static_cast<int32_t>(i) : rank[i];
    const ResolvedNode& node = g.nodes[n];
    int32_t& before = last[rank.empty() ? node.actor : p.node_worker[n]];
    if (before >= 0) out.program.push_back({before, n});
    before = n;
    for (size_t a = 0; a < node.args.size(); ++a) {
      const ResolvedArg& arg = node.args[a];
      if (edges.arg_edge[edges.arg_begin[n] + a] >= 0) continue;
      if (arg.kind == ResolvedArg::kNode) out.local.push_back({arg.index, n});
      if (arg.kind == ResolvedArg::kCollective) {
        out.local.push_back({p.MemberTask(arg.index, p.node_worker[n]), n});
      }
    }
    for (size_t a = 0; a < node.after.size(); ++a) {
      if (edges.after_edge[edges.after_begin[n] + a] == -1) out.local.push_back({node.after[a], n});
    }
  }
  for (size_t c = 0; c < g.collectives.size(); ++c) {
    for (size_t r = 0; r < g.collectives[c].members.size(); ++r) {
      const ResolvedMember& m = g.collectives[c].members[r];
      const int32_t task = p.member_base[c] + static_cast<int32_t>(r);
      out.local.push_back({m.node, task});
      if (m.after >= 0 && m.after != m.node) out.local.push_back({m.after, task});
    }
  }
  out.name = [&g, &p](int32_t task) {
    if (task < static_cast<int32_t>(g.nodes.size())) return absl::StrCat("node ", g.nodes[task].name);
    const auto c = std::upper_bound(p.member_base.begin(), p.member_base.end(), task) - p.member_base.begin() - 1;
    return absl::StrCat("collective ", g.collectives[c].name);
  };
  return out;
}

}  // namespace weft
