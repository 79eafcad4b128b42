#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "driver/plan/verify_rules.h"

namespace weft {
namespace {

class Definitions {
 public:
  Definitions(const PlanIndex& index, Findings* findings)
      : index_(index), plan_(index.plan()), f_(findings), waited_at_(plan_.ops.size(), -1) {}

  void Run() {
    node_by_name_.reserve(plan_.nodes.size());
    for (const PlanNode& n : plan_.nodes) {
      if (node_by_name_.emplace(n.name, n.id).second) continue;
      Add(plan_.workers[index_.actor_of(n).worker].name, ": node ", n.name, " stands in the plan twice");
    }
    for (const PlanNode& n : plan_.nodes) CheckNode(n);
    for (const PlanEdge& e : plan_.edges) CheckEdge(e);
    for (const PlanGroup& g : plan_.groups) CheckGroup(g);
    for (const PlanOp& o : plan_.ops) CheckOp(o);
  }

 private:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    f_->Add("V7", parts...);
  }

  std::string Edge(const PlanEdge& e) const { return EdgeName(plan_, e); }

  void CheckNode(const PlanNode& n) {
    const std::string& worker = plan_.workers[index_.actor_of(n).worker].name;
    if (index_.compute()[n.id] < 0) Add(worker, ": node ", n.name, " has no COMPUTE: it would never run");
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      CheckSpec([&] { return absl::StrCat(worker, ": node ", n.name, " output ", i); }, n.outputs[i]);
    }
  }

  // `what` makes the name, only when it is needed: names cost more than all other checks.
  template <typename What>
  void CheckSpec(const What& what, const Spec& spec) {
    if (SizeOf(spec.dtype) == 0) {
      Add(what(), " has dtype ", DTypeName(spec.dtype), ", which is none");
    } else if (!CheckedBytes(spec).has_value()) {
      Add(what(), " has a shape with a negative dimension, more than ", kMaxRank, " dimensions, or more than ", kMaxTensorBytes, " bytes");
    }
  }

  void CheckEdge(const PlanEdge& e) {
    CheckSpec([&] { return Edge(e); }, e.spec);
    const std::optional<uint64_t> bytes = CheckedBytes(e.spec);
    if (bytes.has_value() && *bytes != e.bytes) {
      Add(Edge(e), " reserves ", e.bytes, " bytes, but a ", e.spec.ToString(), " has ", *bytes);
    }
    if (e.src_worker == e.dst_worker) {
      Add(Edge(e), " has both ends at one place: a value stays there without an edge");
      return;
    }
    if (!v1::Transport_IsValid(e.transport) || e.transport == v1::TRANSPORT_UNSPECIFIED || e.transport == v1::LOCAL) {
      Add(Edge(e), " has transport ", static_cast<int>(e.transport), ", which leads from no place to another");
    }
    const bool client = e.src_worker == kClient || e.dst_worker == kClient;
    const bool always = e.transport == v1::GLOO || e.transport == v1::NCCL;
    if (e.rendezvous && (client || e.transport == v1::REMOTE)) {
      Add(Edge(e), " is by rendezvous: ", client ? "the client's ends" : "REMOTE edges", " are buffered");
    }
    if (!e.rendezvous && always) Add(Edge(e), " is buffered, but ", v1::Transport_Name(e.transport), " transfers only by rendezvous");
    if (!e.rendezvous && e.emulated) Add(Edge(e), " has an emulated link, which transfers only by rendezvous");
    if (e.src_worker != kClient && index_.source()[e.id] < 0) {
      Add(Edge(e), " has no ", e.rendezvous ? "SEND" : "WRITE", " on ", WorkerName(plan_, e.src_worker),
          ": its consumer would wait for ever");
    }
    if (e.dst_worker != kClient && index_.sink()[e.id] < 0) {
      Add(Edge(e), " has no ", e.rendezvous ? "RECV" : "READ", " on ", WorkerName(plan_, e.dst_worker),
          ": its producer would wait for ever");
    }
    CheckConsumer(e);
    CheckProducer(e);
  }

  // Whether the op is the call of the node of that name. Spares a look-up by name in plans that are right.
  bool Calls(const PlanOp& o, const std::string& name) const { return o.kind == v1::COMPUTE && index_.node_of(o).name == name; }

  // The op of the node that an edge names, on the worker where it should be; -1: the name is not a node's (a collective's, an output's).
  int32_t ComputeOf(const std::string& name, int32_t worker) const {
    const auto it = node_by_name_.find(name);
    if (worker == kClient || it == node_by_name_.end()) return -1;
    const int32_t op = index_.compute()[it->second];
    return op >= 0 && index_.op(op).worker == worker ? op : -1;
  }

  static bool WaitsFor(const PlanOp& o, int32_t op) {
    return std::any_of(o.waits.begin(), o.waits.end(), [&](const PlanWait& w) { return w.op == op && w.distance == 0; });
  }

  // The consumer takes this edge's value, and not another's, at the place that the edge says.
  void CheckConsumer(const PlanEdge& e) {
    const int32_t in = index_.sink()[e.id];
    if (in < 0) return;
    if (index_.readers(in).empty()) {
      Add(index_.Name(in), " brings a value that no op of ", WorkerName(plan_, index_.op(in).worker), e.control ? " waits for" : " takes");
      return;
    }
    const PlanOp& reader = index_.op(*index_.readers(in).begin());
    const size_t arg = static_cast<size_t>(e.dst_arg);
    if (!e.control && Calls(reader, e.dst) && arg < reader.args.size() && reader.args[arg] == PlanValue{in, 0}) return;
    const int32_t to = ComputeOf(e.dst, e.dst_worker);
    if (to < 0) return;
    const PlanOp& consumer = index_.op(to);
    if (e.control) {
      const PlanIndex::Range readers = index_.readers(in);
      if (std::find(readers.begin(), readers.end(), to) != readers.end()) return;
      Add(index_.Name(to), " does not wait for ", index_.Name(in), " (CONTROL, distance 0), though ", Edge(e), " says so");
    } else if (e.dst_arg < 0 || static_cast<size_t>(e.dst_arg) >= consumer.args.size()) {
      Add(Edge(e), " is for argument ", e.dst_arg, " of ", index_.Name(to), ", which has ", consumer.args.size());
    } else if (consumer.args[e.dst_arg] != PlanValue{in, 0}) {
      Add(index_.Name(to), " takes argument ", e.dst_arg, " from ", index_.Name(consumer.args[e.dst_arg].op), ", but ", Edge(e),
          " brings it by ", index_.Name(in));
    }
  }

  void CheckProducer(const PlanEdge& e) {
    const int32_t out = index_.source()[e.id];
    if (out < 0) return;
    const PlanOp& o = index_.op(out);
    if (!e.control && o.args.size() == 1 && o.args[0].output == e.src_output && Calls(index_.op(o.args[0].op), e.src)) return;
    const int32_t from = ComputeOf(e.src, e.src_worker);
    if (e.control) {
      const bool waits = from >= 0 ? WaitsFor(o, from) : std::any_of(o.waits.begin(), o.waits.end(), [](const PlanWait& w) {
        return w.distance == 0;
      });
      if (!waits) Add(index_.Name(out), " does not wait for ", from >= 0 ? index_.Name(from) : e.src, ", though ", Edge(e), " says so");
      return;
    }
    // A collective may bear a node's name, so its results are not judged by name.
    if (from < 0 || o.args.size() != 1 || index_.op(o.args[0].op).kind == v1::COLLECTIVE) return;
    if (o.args[0] != PlanValue{from, e.src_output}) {
      Add(index_.Name(out), " sends output ", o.args[0].output, " of ", index_.Name(o.args[0].op), ", but ", Edge(e), " is for output ",
          e.src_output, " of ", index_.Name(from));
    }
  }

  void CheckGroup(const PlanGroup& g) {
    const std::string name = absl::StrCat("collective ", g.name);
    if (!v1::CollectiveOp_IsValid(g.op) || g.op == v1::COLLECTIVE_OP_UNSPECIFIED) Add(name, " has no known operation");
    if (g.transport != v1::GLOO && g.transport != v1::NCCL) Add(name, " has a transport that is neither GLOO nor NCCL");
    if (g.members.empty()) Add(name, " has no members");
    if (g.root_rank < 0 || (!g.members.empty() && static_cast<size_t>(g.root_rank) >= g.members.size())) {
      Add(name, " has root ", g.root_rank, " of ", g.members.size(), " members");
    }
    std::vector<int32_t> sorted = g.members;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i] == sorted[i - 1]) Add(name, " has two members on ", WorkerName(plan_, sorted[i]));
    }
    for (size_t r = 0; r < g.members.size(); ++r) {
      const bool twin = index_.RankOf(g.id, g.members[r]) != static_cast<int32_t>(r);
      if (!twin && index_.members()[g.id][r] < 0) {
        Add(name, " has no op on ", WorkerName(plan_, g.members[r]), ": all other members would wait for ever");
      }
    }
    CheckSpec([&] { return name + " input"; }, g.input);
    CheckSpec([&] { return name + " output"; }, g.output);
    const std::optional<uint64_t> in = CheckedBytes(g.input), out = CheckedBytes(g.output);
    if (!in.has_value() || !out.has_value()) return;
    // Bytes are below 2^40 and members at most 2^16: no overflow.
    const uint64_t n = g.members.size();
    const bool fits = g.input.dtype == g.output.dtype && (g.op == v1::ALL_GATHER       ? *in * n == *out
                                                          : g.op == v1::REDUCE_SCATTER ? *in == *out * n
                                                                                       : *in == *out);
    if (!fits) {
      Add(name, " of ", n, " members makes ", g.output.ToString(), " of ", g.input.ToString(), ", which does not fit its operation");
    }
  }

  void CheckOp(const PlanOp& o) {
    for (const PlanWait& w : o.waits) {
      if (index_.op(w.op).worker != o.worker) {
        Add(index_.Name(o.id), " waits for ", index_.Name(w.op), ", an op of another worker: only edges lead from worker to worker");
      }
      if (w.distance == 0) waited_at_[w.op] = o.id;
    }
    for (size_t a = 0; a < o.args.size(); ++a) CheckArg(o, a);
    switch (o.kind) {
      case v1::COMPUTE:
        return CheckCompute(o);
      case v1::COLLECTIVE:
        return CheckCollective(o);
      default:
        return CheckTransfer(o);
    }
  }

  void CheckArg(const PlanOp& o, size_t a) {
    const PlanValue& v = o.args[a];
    const auto bad = [&](const auto&... parts) {
      Add(index_.Name(o.id), " takes argument ", a, " from ", index_.Name(v.op), parts...);
    };
    if (index_.op(v.op).worker != o.worker) return bad(", an op of another worker: it needs an edge");
    if (index_.SpecOf(v) == nullptr) return bad(", which makes no output ", v.output);
    if (v.op >= o.id) return bad(", which comes after it: a value must be defined before its use");
    if (waited_at_[v.op] != o.id) bad(" without waiting for it (DATA, distance 0)");
  }

  void Once(const PlanOp& o, int32_t first) {
    if (first == o.id) return;
    Add(index_.Name(o.id), " (op ", o.id, ") does what op ", first, " of ", WorkerName(plan_, index_.op(first).worker),
        " does already: it must stand in the plan once");
  }

  void NeedArgs(const PlanOp& o, size_t n) {
    if (o.args.size() != n) Add(index_.Name(o.id), " has ", o.args.size(), " arguments, its kind takes ", n);
  }

  template <typename What>
  void SameSpec(const PlanOp& o, const Spec& want, const What& what) {
    const Spec* have = o.args.size() == 1 ? index_.SpecOf(o.args[0]) : nullptr;
    if (have == nullptr || *have == want) return;
    Add(index_.Name(o.id), " is given a ", have->ToString(), " by ", index_.Name(o.args[0].op), ", but ", what(), " carries ",
        want.ToString(), ": both ends must agree on dtype and size");
  }

  void CheckCompute(const PlanOp& o) {
    const PlanNode& n = index_.node_of(o);
    const PlanActor& actor = index_.actor_of(n);
    if (actor.worker != o.worker) {
      Add(index_.Name(o.id), " runs where its actor is not: ", actor.name, " lives on ", WorkerName(plan_, actor.worker));
    }
    Once(o, index_.compute()[n.id]);
  }

  void CheckCollective(const PlanOp& o) {
    const PlanGroup& g = index_.group_of(o);
    const int32_t rank = index_.RankOf(g.id, o.worker);
    if (rank < 0) {
      Add(index_.Name(o.id), " is on a worker that is no member of its collective");
    } else {
      Once(o, index_.members()[g.id][rank]);
    }
    NeedArgs(o, 1);
    SameSpec(o, g.input, [&] { return absl::StrCat("collective ", g.name); });
  }

  void CheckTransfer(const PlanOp& o) {
    const PlanEdge& e = index_.edge_of(o);
    const bool source = o.kind == v1::SEND || o.kind == v1::WRITE;
    const int32_t worker = source ? e.src_worker : e.dst_worker;
    if (worker != o.worker) Add(index_.Name(o.id), " is not at its end of ", Edge(e), ": that is on ", WorkerName(plan_, worker));
    if (e.rendezvous != IsRendezvousOp(o.kind)) {
      Add(index_.Name(o.id), " is of a ", e.rendezvous ? "rendezvous" : "buffered", " edge, which takes ",
          e.rendezvous ? "SEND and RECV" : "WRITE and READ");
    }
    Once(o, source ? index_.source()[e.id] : index_.sink()[e.id]);
    NeedArgs(o, source && !e.control ? 1 : 0);
    if (source) return SameSpec(o, e.spec, [&] { return Edge(e); });
    if (o.slots != e.slots) {
      Add(index_.Name(o.id), " has ", o.slots, " buffers, but ", Edge(e), " gives ", WorkerName(plan_, e.src_worker), " credit for ",
          e.slots, ": both ends must count the same");
    }
  }

  const PlanIndex& index_;
  const Plan& plan_;
  Findings* const f_;
  absl::flat_hash_map<absl::string_view, int32_t> node_by_name_;  // of the plan's own strings
  std::vector<int32_t> waited_at_;  // by op: last op that waits for it at distance 0
};

}  // namespace

void CheckDefinitions(const PlanIndex& index, Findings* findings) { Definitions(index, findings).Run(); }

}  // namespace weft
