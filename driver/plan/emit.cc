#include "driver/plan/emit.h"

#include <algorithm>
#include <unordered_map>

namespace weft {
namespace {

// Spreads the peers of each worker over its lanes of one kind, in the order in which they turn up.
class LaneChooser {
 public:
  LaneChooser(int32_t lanes, size_t workers) : lanes_(std::max(lanes, 1)), next_(workers, 0) {}

  int32_t Lane(int32_t worker, int32_t peer) {
    if (lanes_ == 1) return 0;
    const uint64_t key = static_cast<uint64_t>(worker) << 32 | static_cast<uint32_t>(peer);
    const auto [it, fresh] = lane_.emplace(key, next_[worker]);
    if (fresh) next_[worker] = (next_[worker] + 1) % lanes_;
    return it->second;
  }

 private:
  const int32_t lanes_;
  std::vector<int32_t> next_;
  std::unordered_map<uint64_t, int32_t> lane_;
};

class Emitter {
 public:
  Emitter(const ResolvedGraph& g, const Cluster& c, const Placement& p, const Edges& e)
      : g_(g),
        c_(c),
        p_(p),
        e_(e),
        send_lanes_(g.options.send_lanes(), c.workers.size()),
        recv_lanes_(g.options.recv_lanes(), c.workers.size()),
        run_op_(p.tasks, -1),
        in_op_(e.edges.size(), -1) {}

  Plan Run(const std::vector<Step>& steps) {
    CopyGraph();
    size_t ops = 0;
    for (const Step& s : steps) {
      if (s.kind == StepKind::kGroup) ops += g_.collectives[s.index].members.size();
      if (s.kind == StepKind::kExchange) ++ops;
      ops += s.kind != StepKind::kTake && s.kind != StepKind::kGive;
    }
    plan_.ops.reserve(ops);
    for (const Step& s : steps) Emit(s);
    return std::move(plan_);
  }

 private:
  void CopyGraph() {
    plan_.graph = g_.name;
    plan_.options = g_.options;
    for (const ClusterWorker& w : c_.workers) plan_.workers.push_back({w.name, w.host_id, w.device});
    for (size_t a = 0; a < g_.actors.size(); ++a) {
      const ResolvedActor& actor = g_.actors[a];
      plan_.actors.push_back({static_cast<int32_t>(a), actor.name, actor.cls, p_.actor_worker[a], actor.config});
    }
    plan_.nodes.reserve(g_.nodes.size());
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const ResolvedNode& node = g_.nodes[n];
      plan_.nodes.push_back({static_cast<int32_t>(n), node.name, node.actor, node.method, node.config, node.outputs,
                             c_.workers[p_.node_worker[n]].device == "cuda" ? node.device_error : std::string()});
    }
    plan_.edges = e_.edges;
    for (size_t i = 0; i < g_.collectives.size(); ++i) {
      const ResolvedCollective& c = g_.collectives[i];
      PlanGroup group;
      group.id = static_cast<int32_t>(i);
      group.name = c.name;
      group.op = c.op;
      group.reduce = c.reduce;
      group.root_rank = c.root_rank;
      group.input = c.input;
      group.output = c.output;
      bool cuda = true;
      for (const ResolvedMember& m : c.members) {
        group.members.push_back(p_.node_worker[m.node]);
        group.member_nodes.push_back(g_.nodes[m.node].name);
        cuda &= c_.workers[group.members.back()].device == "cuda";
      }
      group.transport = cuda ? v1::NCCL : v1::GLOO;
      plan_.groups.push_back(std::move(group));
    }
  }

  PlanOp* NewOp(OpKind kind, int32_t worker, LaneKind lane, int32_t lane_index) {
    PlanOp& op = plan_.ops.emplace_back();
    op.id = static_cast<int32_t>(plan_.ops.size()) - 1;
    op.kind = kind;
    op.worker = worker;
    op.lane = lane;
    op.lane_index = lane_index;
    return &op;
  }

  static void Wait(PlanOp* op, int32_t on, WaitReason reason) {
    for (const PlanWait& w : op->waits) {
      if (w.op == on && w.distance == 0) return;
    }
    op->waits.push_back({on, 0, reason});
  }

  void Emit(const Step& s) {
    switch (s.kind) {
      case StepKind::kTake:
      case StepKind::kGive:
        return;
      case StepKind::kRun:
        return EmitCompute(s.index);
      case StepKind::kWrite:
        return EmitOut(s.index);
      case StepKind::kRead:
        return EmitIn(s.index);
      case StepKind::kExchange:
        EmitOut(s.index);
        return EmitIn(s.index);
      case StepKind::kGroup:
        return EmitGroup(s.index);
    }
  }

  // Between a GPU and host memory the copy engines move the data, one for each direction: a copy lane each.
  static constexpr int32_t kCopyIn = 0;
  static constexpr int32_t kCopyOut = 1;
  bool ByCopyEngine(const PlanEdge& e, int32_t worker) const {
    return worker != kClient && c_.workers[worker].device == "cuda" && !e.rendezvous && e.transport != v1::IPC;
  }

  void EmitOut(int32_t x) {
    const PlanEdge& e = e_.edges[x];
    const bool copy = ByCopyEngine(e, e.src_worker);
    PlanOp* op = NewOp(e.rendezvous ? v1::SEND : v1::WRITE, e.src_worker, copy ? v1::LANE_COPY : v1::LANE_SEND,
                       copy ? kCopyOut : send_lanes_.Lane(e.src_worker, e.dst_worker));
    op->edge = x;
    const int32_t from = run_op_[e_.info[x].src_task];
    if (e.control) {
      Wait(op, from, v1::PlanWait::CONTROL);
    } else {
      op->args.push_back({from, plan_.ops[from].kind == v1::COMPUTE ? e.src_output : 0});
      Wait(op, from, v1::PlanWait::DATA);
    }
  }

  void EmitIn(int32_t x) {
    const PlanEdge& e = e_.edges[x];
    const bool copy = ByCopyEngine(e, e.dst_worker);
    PlanOp* op = NewOp(e.rendezvous ? v1::RECV : v1::READ, e.dst_worker, copy ? v1::LANE_COPY : v1::LANE_RECV,
                       copy ? kCopyIn : recv_lanes_.Lane(e.dst_worker, e.src_worker));
    op->edge = x;
    in_op_[x] = op->id;
  }

  void EmitCompute(int32_t n) {
    const ResolvedNode& node = g_.nodes[n];
    PlanOp* op = NewOp(v1::COMPUTE, p_.node_worker[n], v1::LANE_COMPUTE, 0);
    op->node = n;
    run_op_[n] = op->id;
    op->args.reserve(node.args.size());
    std::vector<int32_t> needs;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const ResolvedArg& arg = node.args[i];
      const int32_t edge = e_.arg_edge[e_.arg_begin[n] + i];
      PlanValue v;
      if (edge >= 0) {
        v = {in_op_[edge], 0};
      } else if (arg.kind == ResolvedArg::kCollective) {
        v = {run_op_[p_.MemberTask(arg.index, op->worker)], 0};
      } else {
        v = {run_op_[arg.index], arg.output};
      }
      op->args.push_back(v);
      needs.push_back(v.op);
    }
    // In the order of the args, each op once; a set only where a list would be slow.
    if (needs.size() > 16) {
      std::sort(needs.begin(), needs.end());
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      for (const int32_t on : needs) op->waits.push_back({on, 0, v1::PlanWait::DATA});
    } else {
      for (const int32_t on : needs) Wait(op, on, v1::PlanWait::DATA);
    }
    for (size_t i = 0; i < node.after.size(); ++i) {
      const int32_t edge = e_.after_edge[e_.after_begin[n] + i];
      if (edge == Edges::kNoEdgeNeeded) continue;
      // Not through Wait(): these are other ops than those of the args, and there may be many.
      op->waits.push_back({edge >= 0 ? in_op_[edge] : run_op_[node.after[i]], 0, v1::PlanWait::CONTROL});
    }
  }

  void EmitGroup(int32_t c) {
    const ResolvedCollective& collective = g_.collectives[c];
    const int32_t lanes = std::max(g_.options.collective_lanes(), 1);
    for (size_t r = 0; r < collective.members.size(); ++r) {
      const ResolvedMember& m = collective.members[r];
      PlanOp* op = NewOp(v1::COLLECTIVE, p_.node_worker[m.node], v1::LANE_COLLECTIVE, c % lanes);
      op->group = c;
      run_op_[p_.member_base[c] + r] = op->id;
      op->args.push_back({run_op_[m.node], m.output});
      Wait(op, run_op_[m.node], v1::PlanWait::DATA);
      if (m.after >= 0) Wait(op, run_op_[m.after], v1::PlanWait::CONTROL);
    }
  }

  const ResolvedGraph& g_;
  const Cluster& c_;
  const Placement& p_;
  const Edges& e_;
  LaneChooser send_lanes_, recv_lanes_;
  std::vector<int32_t> run_op_;  // by task: COMPUTE or COLLECTIVE
  std::vector<int32_t> in_op_;   // by edge: READ or RECV
  Plan plan_;
};

}  // namespace

Plan EmitPlan(const ResolvedGraph& graph, const Cluster& cluster, const Placement& placement, const Edges& edges,
              const std::vector<Step>& steps) {
  return Emitter(graph, cluster, placement, edges).Run(steps);
}

}  // namespace weft
