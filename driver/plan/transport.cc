#include "driver/plan/transport.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "driver/graph/error_list.h"

namespace weft {
namespace {

class Chooser {
 public:
  Chooser(const ResolvedGraph& g, const Placement& p, const Cluster& c, v1::Overlap auto_as)
      : g_(g), p_(p), c_(c), auto_as_(auto_as) {
    for (size_t i = 0; i < g.overrides.size(); ++i) {
      const EdgeOverride& o = g.overrides[i];
      overrides_.push_back({Key(o.from_kind, o.from, o.to_output, o.to), static_cast<int32_t>(i)});
    }
    std::sort(overrides_.begin(), overrides_.end());
  }

  absl::StatusOr<Edges> Run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      AddArgs(static_cast<int32_t>(n));
      AddAfters(static_cast<int32_t>(n));
    }
    out_.arg_begin.push_back(static_cast<int32_t>(out_.arg_edge.size()));
    out_.after_begin.push_back(static_cast<int32_t>(out_.after_edge.size()));
    for (size_t o = 0; o < g_.outputs.size(); ++o) AddOutput(static_cast<int32_t>(o));
    if (!problems_.empty()) return problems_.ToStatus();
    return std::move(out_);
  }

 private:
  static std::pair<uint64_t, uint64_t> Key(ResolvedArg::Kind kind, int from, bool to_output, int to) {
    return {static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(from),
            static_cast<uint64_t>(to_output) << 32 | static_cast<uint32_t>(to)};
  }

  // The override that names this output, else one for all outputs; nullptr.
  const v1::Edge* Find(ResolvedArg::Kind kind, int from, int output, bool to_output, int to) const {
    if (overrides_.empty()) return nullptr;
    const auto key = Key(kind, from, to_output, to);
    const v1::Edge* found = nullptr;
    for (auto it = std::lower_bound(overrides_.begin(), overrides_.end(), std::make_pair(key, int32_t{-1}));
         it != overrides_.end() && it->first == key; ++it) {
      const EdgeOverride& o = g_.overrides[it->second];
      if (o.output == output) return &o.edge;
      if (o.output < 0) found = &o.edge;
    }
    return found;
  }

  void AddArgs(int32_t n) {
    const ResolvedNode& node = g_.nodes[n];
    const int32_t worker = p_.node_worker[n];
    out_.arg_begin.push_back(static_cast<int32_t>(out_.arg_edge.size()));
    for (size_t i = 0; i < node.args.size(); ++i) {
      const ResolvedArg& arg = node.args[i];
      int32_t edge = -1;
      if (arg.kind == ResolvedArg::kNode) {
        const ResolvedNode& from = g_.nodes[arg.index];
        const v1::Edge* over = Find(arg.kind, arg.index, arg.output, false, n);
        PlanEdge e = Between(p_.node_worker[arg.index], from.name, arg.output, worker, node.name, static_cast<int32_t>(i));
        e.spec = from.outputs[arg.output];
        edge = Add(std::move(e), over, arg.index, n, node.overlap);
      } else if (arg.kind == ResolvedArg::kInput) {
        const v1::Edge* over = Find(arg.kind, arg.index, 0, false, n);
        PlanEdge e = Between(kClient, g_.inputs[arg.index].name, 0, worker, node.name, static_cast<int32_t>(i));
        e.spec = g_.inputs[arg.index].spec;
        edge = Add(std::move(e), over, -1, n, node.overlap);
      }
      out_.arg_edge.push_back(edge);
    }
  }

  void AddAfters(int32_t n) {
    const ResolvedNode& node = g_.nodes[n];
    out_.after_begin.push_back(static_cast<int32_t>(out_.after_edge.size()));
    if (node.after.empty()) return;
    std::vector<int> brought;
    for (const ResolvedArg& a : node.args) {
      if (a.kind == ResolvedArg::kNode) brought.push_back(a.index);
    }
    std::sort(brought.begin(), brought.end());
    for (const int from : node.after) {
      int32_t edge = Edges::kNoEdgeNeeded;
      if (!std::binary_search(brought.begin(), brought.end(), from)) {
        PlanEdge e = Between(p_.node_worker[from], g_.nodes[from].name, 0, p_.node_worker[n], node.name, 0);
        e.control = true;
        e.spec = Spec{v1::U8, Shape::Of({0})};
        edge = Add(std::move(e), Find(ResolvedArg::kNode, from, -1, false, n), from, n, node.overlap);
      }
      out_.after_edge.push_back(edge);
    }
  }

  void AddOutput(int32_t o) {
    const ResolvedOutput& output = g_.outputs[o];
    int32_t task = output.index, worker = 0;
    PlanEdge e;
    const v1::Edge* over = nullptr;
    if (output.is_collective) {
      const ResolvedCollective& c = g_.collectives[output.index];
      task = p_.member_base[output.index] + output.member;
      worker = p_.node_worker[c.members[output.member].node];
      e = Between(worker, c.name, 0, kClient, output.name, 0);
      e.spec = c.output;
      over = Find(ResolvedArg::kCollective, output.index, 0, true, o);
    } else {
      const ResolvedNode& from = g_.nodes[output.index];
      worker = p_.node_worker[output.index];
      e = Between(worker, from.name, output.output, kClient, output.name, 0);
      e.spec = from.outputs[output.output];
      over = Find(ResolvedArg::kNode, output.index, output.output, true, o);
    }
    Add(std::move(e), over, task, -1, v1::OVERLAP_UNSPECIFIED);
  }

  static PlanEdge Between(int32_t src_worker, const std::string& src, int32_t src_output, int32_t dst_worker,
                          const std::string& dst, int32_t dst_arg) {
    PlanEdge e;
    e.src_worker = src_worker;
    e.src = src;
    e.src_output = src_output;
    e.dst_worker = dst_worker;
    e.dst = dst;
    e.dst_arg = dst_arg;
    return e;
  }

  const std::string& Host(int32_t w) const { return w == kClient ? c_.client_host_id : c_.workers[w].host_id; }
  bool Cuda(int32_t w) const { return w != kClient && c_.workers[w].device == "cuda"; }

  v1::Transport Default(const PlanEdge& e, bool same_host) const {
    if (e.src_worker == e.dst_worker) return v1::LOCAL;
    if (e.src_worker == kClient || e.dst_worker == kClient) return same_host ? v1::SHM : v1::REMOTE;
    if (Cuda(e.src_worker) && Cuda(e.dst_worker)) {
      return same_host && e.bytes >= c_.ipc_crossover_bytes ? v1::IPC : v1::NCCL;
    }
    return same_host ? v1::SHM : v1::GLOO;
  }

  // Empty when the transport can carry the edge, else why not and what can.
  std::string WhyNot(const PlanEdge& e, v1::Transport t, bool same_host) const {
    const bool client = e.src_worker == kClient || e.dst_worker == kClient;
    const bool local = e.src_worker == e.dst_worker;
    if (local) return t == v1::LOCAL ? "" : "both ends are on one worker, where the value is not moved at all: leave the transport out";
    const bool cuda = Cuda(e.src_worker) && Cuda(e.dst_worker);
    switch (t) {
      case v1::LOCAL:
        return "the ends are at two places: use another transport, or put both actors on one worker";
      case v1::SHM:
        return same_host ? "" : "the ends are on different hosts: use GLOO, NCCL or (client) REMOTE, or leave the transport out";
      case v1::IPC:
        if (client || !cuda) return "both ends must be CUDA workers: use SHM on one host, GLOO between hosts";
        return same_host ? "" : "the ends are on different hosts: use NCCL";
      case v1::NCCL:
        return !client && cuda ? "" : "both ends must be CUDA workers: use SHM on one host, GLOO between hosts";
      case v1::GLOO:
        return client ? "the client is in no communicator: use SHM on its host, else REMOTE" : "";
      case v1::REMOTE:
        return client ? "" : "it only goes to and from the client: use SHM on one host, GLOO or NCCL between hosts";
      default:
        return "unknown transport";
    }
  }

  void Problem(const PlanEdge& e, const std::string& what) {
    const auto end = [&](int32_t w) { return w == kClient ? std::string("client") : c_.workers[w].name; };
    problems_.Add(absl::StrCat("edge ", e.src, e.src_worker == kClient || e.control ? "" : absl::StrCat(":", e.src_output), " (",
                               end(e.src_worker), ") -> ", e.dst, " (", end(e.dst_worker), "): ", what));
  }

  // Completes the edge and keeps it unless it is local. Returns its id, or -1.
  int32_t Add(PlanEdge e, const v1::Edge* over, int32_t src_task, int32_t dst_task, v1::Overlap node_overlap) {
    const bool client = e.src_worker == kClient || e.dst_worker == kClient;
    const bool same_host = Host(e.src_worker) == Host(e.dst_worker);
    e.bytes = e.spec.MaxBytes();
    e.transport = Default(e, same_host);
    if (over != nullptr && over->transport() != v1::TRANSPORT_UNSPECIFIED) {
      const std::string why_not = WhyNot(e, over->transport(), same_host);
      if (!why_not.empty()) Problem(e, absl::StrCat("transport ", v1::Transport_Name(over->transport()), " is impossible: ", why_not));
      e.transport = over->transport();
    }
    if (over != nullptr && over->has_emulate()) {
      if (e.transport != v1::SHM || client) {
        Problem(e, absl::StrCat("an emulated link lies over shared memory between two workers of one host, and this edge is ",
                                client ? "the client's" : v1::Transport_Name(e.transport), ": leave emulate out"));
      }
      Emulate(over->emulate(), &e);
    } else if (g_.options.has_emulate() && e.transport == v1::SHM && !client) {
      Emulate(g_.options.emulate(), &e);
    }
    if (e.transport == v1::LOCAL) return -1;
    if ((e.transport == v1::NCCL || e.transport == v1::IPC) && e.spec.shape.HasDynamic()) {
      Problem(e, absl::StrCat("its shape ", e.spec.shape.ToString(), " has no bound, which ", v1::Transport_Name(e.transport),
                              " cannot carry: bound it (\"?<=n\")"));
    }
    e.rendezvous = e.emulated || e.transport == v1::GLOO || e.transport == v1::NCCL;
    e.id = static_cast<int32_t>(out_.edges.size());

    EdgeInfo info;
    info.src_task = src_task;
    info.dst_task = dst_task;
    v1::Overlap overlap = g_.options.overlap();
    if (node_overlap != v1::OVERLAP_UNSPECIFIED) overlap = node_overlap;
    if (over != nullptr && over->overlap() != v1::OVERLAP_UNSPECIFIED) overlap = over->overlap();
    if (overlap == v1::AUTO) overlap = auto_as_;
    info.overlap = overlap != v1::OFF;
    if (info.overlap) {
      info.depth = over != nullptr && over->has_prefetch_depth() ? over->prefetch_depth() : g_.options.prefetch_depth();
    }
    out_.edges.push_back(std::move(e));
    out_.info.push_back(info);
    return out_.edges.back().id;
  }

  static void Emulate(const v1::EmulatedLink& link, PlanEdge* e) {
    e->emulated = true;
    e->emulate_latency_s = link.latency_s();
    e->emulate_bandwidth = link.bandwidth();
  }

  const ResolvedGraph& g_;
  const Placement& p_;
  const Cluster& c_;
  const v1::Overlap auto_as_;
  // Sorted by ends; the second is the index into g_.overrides.
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, int32_t>> overrides_;
  ErrorList problems_;
  Edges out_;
};

}  // namespace

absl::StatusOr<Edges> ChooseTransports(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster,
                                       v1::Overlap auto_as) {
  return Chooser(graph, placement, cluster, auto_as).Run();
}

}  // namespace weft
