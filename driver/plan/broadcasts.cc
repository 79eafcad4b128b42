#include "driver/plan/broadcasts.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Arguments that take one value over edges that may go together.
struct Shared {
  // By receiving worker: (node, arg), in the order of the file.
  std::map<int32_t, std::vector<std::pair<int32_t, int32_t>>> takers;
};

class Lowering {
 public:
  Lowering(const ResolvedGraph& g, const Placement& p, const Cluster& c, const Edges& e, bool forced)
      : g_(g), p_(p), c_(c), e_(e), forced_(forced), nodes_(static_cast<int32_t>(g.nodes.size())) {}

  std::optional<ResolvedGraph> Run() {
    Find();
    for (auto it = shared_.begin(); it != shared_.end();) {
      const bool fits = it->second.takers.size() >= 2 && it->second.takers.size() < kMaxGroupRanks;
      it = fits ? std::next(it) : shared_.erase(it);
    }
    if (shared_.empty()) return std::nullopt;
    Build();
    return std::move(out_);
  }

 private:
  using Output = std::pair<int32_t, int32_t>;  // node, output

  // A communicator has CPU workers over Gloo or GPU workers over NCCL.
  bool HasGroups(v1::Transport transport, int32_t from, int32_t to) const {
    const char* const device = transport == v1::GLOO ? "cpu" : transport == v1::NCCL ? "cuda" : nullptr;
    return device != nullptr && c_.workers[from].device == device && c_.workers[to].device == device;
  }

  bool MayShare(int32_t from, int32_t output, int32_t to) const {
    bool wanted = false;
    const auto [first, last] = overrides_.equal_range({from, to});
    for (auto it = first; it != last; ++it) {
      const EdgeOverride* o = it->second;
      if (o->output >= 0 && o->output != output) continue;
      if (o->edge.has_broadcast()) {
        if (!o->edge.broadcast()) return false;
        wanted = true;
      } else if (o->edge.overlap() != v1::OVERLAP_UNSPECIFIED || o->edge.has_prefetch_depth()) {
        return false;
      }
    }
    return wanted || !forced_;
  }

  void Find() {
    for (const EdgeOverride& o : g_.overrides) {
      if (o.from_kind == ResolvedArg::kNode && !o.to_output) overrides_.emplace(std::make_pair(o.from, o.to), &o);
    }
    for (int32_t n = 0; n < nodes_; ++n) {
      const ResolvedNode& node = g_.nodes[n];
      if (node.overlap != v1::OVERLAP_UNSPECIFIED) continue;
      for (size_t a = 0; a < node.args.size(); ++a) {
        const ResolvedArg& arg = node.args[a];
        const int32_t edge = e_.arg_edge[e_.arg_begin[n] + a];
        if (arg.kind != ResolvedArg::kNode || edge < 0 || !e_.edges[edge].spec.shape.IsStatic()) continue;
        const int32_t to = p_.node_worker[n];
        if (!HasGroups(e_.edges[edge].transport, p_.node_worker[arg.index], to)) continue;
        if (!MayShare(arg.index, arg.output, n)) continue;
        shared_[{arg.index, arg.output}].takers[to].emplace_back(n, static_cast<int32_t>(a));
      }
    }
  }

  void Build() {
    out_.name = g_.name;
    out_.inputs = g_.inputs;
    out_.options = g_.options;
    out_.actors = g_.actors;
    for (size_t a = 0; a < out_.actors.size(); ++a) out_.actors[a].worker = c_.workers[p_.actor_worker[a]].name;
    // A room stands right behind the node whose value it is for, so that it is there as early as it can be of use.
    std::vector<int32_t> at(nodes_, -1);
    std::vector<std::pair<Output, int32_t>> rooms;  // in the order of their places: for which value, on which worker
    std::vector<int32_t> room_at;
    auto next = shared_.begin();
    int32_t size = 0;
    for (int32_t n = 0; n < nodes_; ++n) {
      at[n] = size++;
      for (; next != shared_.end() && next->first.first == n; ++next) {
        for (const auto& [worker, takers] : next->second.takers) {
          rooms.emplace_back(next->first, worker);
          room_at.push_back(size++);
        }
      }
    }
    out_.nodes.resize(size);
    for (int32_t n = 0; n < nodes_; ++n) {
      ResolvedNode& node = out_.nodes[at[n]] = g_.nodes[n];
      for (ResolvedArg& a : node.args) {
        if (a.kind == ResolvedArg::kNode) a.index = at[a.index];
      }
      for (int& after : node.after) after = at[after];
    }
    out_.collectives = g_.collectives;
    for (ResolvedCollective& c : out_.collectives) {
      for (ResolvedMember& m : c.members) m = {at[m.node], m.output, m.after >= 0 ? at[m.after] : -1};
    }
    size_t room = 0;
    for (const auto& [output, shared] : shared_) {
      const ResolvedNode& from = g_.nodes[output.first];
      const std::string value = absl::StrCat(from.name, ":", output.second);
      ResolvedCollective c;
      c.name = absl::StrCat("broadcast+", value);
      c.op = v1::BROADCAST;
      c.input = c.output = from.outputs[output.second];
      c.members.push_back({at[output.first], output.second, -1});
      for (const auto& [worker, takers] : shared.takers) {
        ResolvedNode make;
        make.name = absl::StrCat("room+", value, "+", g_.nodes[takers[0].first].name);
        make.actor = static_cast<int>(out_.actors.size());
        make.method = "room";
        make.outputs = {c.input};
        make.config.set_dtype(c.input.dtype);
        make.config.set_shape(c.input.shape.ToString());
        out_.actors.push_back({make.name, "weft.Bucket", c_.workers[worker].name, {}});
        c.members.push_back({room_at[room], 0, -1});
        out_.nodes[room_at[room++]] = std::move(make);
        for (const auto& [n, a] : takers) {
          out_.nodes[at[n]].args[a] = {ResolvedArg::kCollective, static_cast<int>(out_.collectives.size()), 0};
        }
      }
      out_.collectives.push_back(std::move(c));
    }
    out_.outputs = g_.outputs;
    for (ResolvedOutput& o : out_.outputs) {
      if (!o.is_collective) o.index = at[o.index];
    }
    for (EdgeOverride e : g_.overrides) {
      if (e.from_kind == ResolvedArg::kNode) e.from = at[e.from];
      if (!e.to_output) e.to = at[e.to];
      out_.overrides.push_back(std::move(e));
    }
  }

  const ResolvedGraph& g_;
  const Placement& p_;
  const Cluster& c_;
  const Edges& e_;
  const bool forced_;
  const int32_t nodes_;
  std::multimap<std::pair<int32_t, int32_t>, const EdgeOverride*> overrides_;  // by nodes
  std::map<Output, Shared> shared_;
  ResolvedGraph out_;
};

}  // namespace

std::optional<ResolvedGraph> LowerBroadcasts(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster,
                                             const Edges& edges, bool forced) {
  return Lowering(graph, placement, cluster, edges, forced).Run();
}

}  // namespace weft
