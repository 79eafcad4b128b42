// CheckPlan: what everything that indexes into a plan relies on.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"

namespace weft {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(absl::StrCat("plan: ", what)); }

// As the graph has it; or of what the compiler adds (driver/plan/buckets.h, broadcasts.h), which is made of several such names and has a '+'.
absl::Status CheckPartName(const std::string& what, const std::string& name) {
  if (name.find('+') == std::string::npos) return CheckName(what, name);
  constexpr size_t kMostCharacters = 200;  // three names and some more
  if (name.size() > kMostCharacters) {
    return absl::InvalidArgumentError(absl::StrCat(what, " name \"", name.substr(0, 24), "...\" has ", name.size(), " characters: at most ", kMostCharacters));
  }
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(name, absl::ByAnyChar("+:@")))) WEFT_RETURN_IF_ERROR(CheckName(what, part));
  return absl::OkStatus();
}

class Checker {
 public:
  explicit Checker(const Plan& plan) : p_(plan), workers_(static_cast<int32_t>(plan.workers.size())) {}

  absl::Status Run() {
    WEFT_RETURN_IF_ERROR(CheckTop());
    WEFT_RETURN_IF_ERROR(CheckIds("actor", p_.actors));
    WEFT_RETURN_IF_ERROR(CheckIds("node", p_.nodes));
    WEFT_RETURN_IF_ERROR(CheckIds("edge", p_.edges));
    WEFT_RETURN_IF_ERROR(CheckIds("group", p_.groups));
    WEFT_RETURN_IF_ERROR(CheckIds("op", p_.ops));
    for (const PlanActor& a : p_.actors) WEFT_RETURN_IF_ERROR(CheckActor(a));
    for (const PlanNode& n : p_.nodes) WEFT_RETURN_IF_ERROR(CheckNode(n));
    for (const PlanEdge& e : p_.edges) WEFT_RETURN_IF_ERROR(CheckEdge(e));
    for (const PlanGroup& g : p_.groups) WEFT_RETURN_IF_ERROR(CheckGroup(g));
    for (const PlanOp& op : p_.ops) WEFT_RETURN_IF_ERROR(CheckOp(op));
    return absl::OkStatus();
  }

 private:
  bool IsWorker(int32_t w) const { return w >= 0 && w < workers_; }
  // In a part, what runs runs on its worker.
  bool IsOwn(int32_t w) const { return IsWorker(w) && (p_.part_of < 0 || w == p_.part_of); }

  absl::Status CheckTop() {
    if (!p_.graph.empty()) WEFT_RETURN_IF_ERROR(CheckName("graph", p_.graph));
    if (p_.workers.size() > kMaxWorkers) return Bad(absl::StrCat(p_.workers.size(), " workers: at most ", kMaxWorkers));
    for (const PlanWorker& w : p_.workers) {
      WEFT_RETURN_IF_ERROR(CheckName("worker", w.name));
      if (w.host_id.size() > 255) return Bad(absl::StrCat("worker ", w.name, ": host id is longer than 255 characters"));
      if (w.device != "cpu" && w.device != "cuda") {
        return Bad(absl::StrCat("worker ", w.name, ": device \"", w.device.substr(0, 40), "\" is not cpu or cuda"));
      }
    }
    if (p_.part_of != -1 && !IsWorker(p_.part_of)) return Bad(absl::StrCat("part_of ", p_.part_of, " is no worker"));
    if (!p_.peak_bytes.empty() && p_.peak_bytes.size() != p_.workers.size()) {
      return Bad(absl::StrCat("peak_bytes has ", p_.peak_bytes.size(), " entries for ", workers_, " workers"));
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status CheckIds(const char* what, const std::vector<T>& list) {
    if (list.size() > static_cast<size_t>(kMaxOps)) return Bad(absl::StrCat(list.size(), " ", what, "s: at most ", kMaxOps));
    for (size_t i = 0; i < list.size(); ++i) {
      const int32_t id = list[i].id;
      if (id < 0) return Bad(absl::StrCat(what, " at place ", i, ": id ", id, " is negative"));
      if (i > 0 && id <= list[i - 1].id) {
        return Bad(absl::StrCat(what, " ", id, " at place ", i, " comes after ", what, " ", list[i - 1].id, ": ids must ascend"));
      }
      if (p_.part_of < 0 && static_cast<size_t>(id) != i) {
        return Bad(absl::StrCat(what, " at place ", i, " has id ", id, ": in a whole plan the id is the place"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckActor(const PlanActor& a) {
    WEFT_RETURN_IF_ERROR(CheckPartName("actor", a.name));
    if (!IsWorker(a.worker)) return Bad(absl::StrCat("actor ", a.name, ": worker ", a.worker, " is not one of this plan"));
    return absl::OkStatus();
  }

  absl::Status CheckSpec(const std::string& what, const Spec& spec) {
    if (SizeOf(spec.dtype) == 0) return Bad(absl::StrCat(what, ": unknown dtype ", static_cast<int>(spec.dtype)));
    if (!spec.shape.HasDynamic() && spec.MaxBytes() > kMaxTensorBytes) return Bad(absl::StrCat(what, ": larger than 1 TiB"));
    return absl::OkStatus();
  }

  absl::Status CheckNode(const PlanNode& n) {
    WEFT_RETURN_IF_ERROR(CheckPartName("node", n.name));
    if (FindActor(p_, n.actor) == nullptr) return Bad(absl::StrCat("node ", n.name, ": no actor ", n.actor));
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      WEFT_RETURN_IF_ERROR(CheckSpec(absl::StrCat("node ", n.name, " output ", i), n.outputs[i]));
    }
    return absl::OkStatus();
  }

  absl::Status CheckEdge(const PlanEdge& e) {
    const auto bad = [&](const std::string& why) { return Bad(absl::StrCat("edge ", e.id, ": ", why)); };
    WEFT_RETURN_IF_ERROR(CheckPartName("edge's producer", e.src));
    WEFT_RETURN_IF_ERROR(CheckPartName("edge's consumer", e.dst));
    if (e.src_worker != kClient && !IsWorker(e.src_worker)) return bad(absl::StrCat("no worker ", e.src_worker));
    if (e.dst_worker != kClient && !IsWorker(e.dst_worker)) return bad(absl::StrCat("no worker ", e.dst_worker));
    if (e.src_worker == e.dst_worker) return bad("both ends are at one place");
    if (e.src_output < 0 || e.dst_arg < 0) return bad("negative output or argument number");
    if (!v1::Transport_IsValid(e.transport) || e.transport == v1::TRANSPORT_UNSPECIFIED || e.transport == v1::LOCAL) {
      return bad(absl::StrCat("transport ", static_cast<int>(e.transport), " is none between two places"));
    }
    WEFT_RETURN_IF_ERROR(CheckSpec(absl::StrCat("edge ", e.id), e.spec));
    if (e.bytes != e.spec.MaxBytes()) {
      return bad(absl::StrCat("bytes ", e.bytes, " do not fit ", e.spec.ToString(), " (", e.spec.MaxBytes(), ")"));
    }
    if (e.slots < 1 || e.slots > kMaxSlots) return bad(absl::StrCat("slots ", e.slots, ": 1 to ", kMaxSlots));
    if (!std::isfinite(e.emulate_latency_s) || e.emulate_latency_s < 0) return bad("emulated latency is not a finite time >= 0");
    if (!std::isfinite(e.emulate_bandwidth) || e.emulate_bandwidth < 0) return bad("emulated bandwidth is not a finite number >= 0");
    if (!e.emulated && (e.emulate_latency_s != 0 || e.emulate_bandwidth != 0)) return bad("numbers of a link without a link");
    return absl::OkStatus();
  }

  absl::Status CheckGroup(const PlanGroup& g) {
    const auto bad = [&](const std::string& why) { return Bad(absl::StrCat("collective ", g.name, ": ", why)); };
    WEFT_RETURN_IF_ERROR(CheckPartName("collective", g.name));
    if (!v1::CollectiveOp_IsValid(g.op) || g.op == v1::COLLECTIVE_OP_UNSPECIFIED) return bad("unknown operation");
    if (!v1::ReduceOp_IsValid(g.reduce)) return bad("unknown reduction");
    if (g.transport != v1::GLOO && g.transport != v1::NCCL) return bad("transport is neither GLOO nor NCCL");
    if (g.members.empty()) return bad("no members");
    if (g.members.size() > kMaxGroupRanks) return bad(absl::StrCat(g.members.size(), " members: at most ", kMaxGroupRanks));
    if (g.member_nodes.size() != g.members.size()) return bad("not one node name per member");
    std::vector<int32_t> sorted = g.members;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return bad("two members on one worker");
    if (!IsWorker(sorted.front()) || !IsWorker(sorted.back())) return bad("a member's worker is not one of this plan");
    for (const std::string& node : g.member_nodes) WEFT_RETURN_IF_ERROR(CheckPartName("member", node));
    if (g.root_rank < 0 || static_cast<size_t>(g.root_rank) >= g.members.size()) return bad("root is no member");
    WEFT_RETURN_IF_ERROR(CheckSpec(absl::StrCat("collective ", g.name, " input"), g.input));
    return CheckSpec(absl::StrCat("collective ", g.name, " output"), g.output);
  }

  absl::Status CheckOp(const PlanOp& op) {
    const auto bad = [&](const std::string& why) { return Bad(absl::StrCat("op ", op.id, ": ", why)); };
    if (!IsOwn(op.worker)) return bad(absl::StrCat("worker ", op.worker, " is not one of this plan"));
    if (op.lane_index < 0 || op.lane_index >= kMaxLanes) return bad(absl::StrCat("lane index ", op.lane_index));
    if (op.slots < 1 || op.slots > kMaxSlots) return bad(absl::StrCat("slots ", op.slots, ": 1 to ", kMaxSlots));
    const bool compute = op.kind == v1::COMPUTE;
    const bool collective = op.kind == v1::COLLECTIVE;
    if (!compute && op.node != -1) return bad("holds a node, though it is not COMPUTE");
    if (!collective && op.group != -1) return bad("holds a group, though it is not COLLECTIVE");
    if ((compute || collective) && op.edge != -1) return bad("holds an edge, though it is no transfer");
    size_t args = 0;
    switch (op.kind) {
      case v1::COMPUTE: {
        const PlanNode* node = FindNode(p_, op.node);
        if (node == nullptr) return bad(absl::StrCat("no node ", op.node));
        if (FindActor(p_, node->actor)->worker != op.worker) return bad(absl::StrCat("node ", node->name, " is of another worker"));
        if (op.lane != v1::LANE_COMPUTE) return bad("COMPUTE is not on a compute lane");
        args = op.args.size();
        break;
      }
      case v1::COLLECTIVE: {
        const PlanGroup* group = FindGroup(p_, op.group);
        if (group == nullptr) return bad(absl::StrCat("no group ", op.group));
        if (std::find(group->members.begin(), group->members.end(), op.worker) == group->members.end()) {
          return bad(absl::StrCat("its worker is no member of ", group->name));
        }
        if (op.lane != v1::LANE_COLLECTIVE) return bad("COLLECTIVE is not on a collective lane");
        args = 1;
        break;
      }
      case v1::READ:
      case v1::RECV:
      case v1::SEND:
      case v1::WRITE: {
        const PlanEdge* edge = FindEdge(p_, op.edge);
        if (edge == nullptr) return bad(absl::StrCat("no edge ", op.edge));
        const bool in = op.kind == v1::READ || op.kind == v1::RECV;
        if ((in ? edge->dst_worker : edge->src_worker) != op.worker) return bad("is not at its end of the edge");
        if (edge->rendezvous != (op.kind == v1::RECV || op.kind == v1::SEND)) return bad("kind does not fit the edge's transfer");
        if (op.lane != (in ? v1::LANE_RECV : v1::LANE_SEND) && op.lane != v1::LANE_COPY) return bad("transfer on a wrong lane");
        if (in && op.slots != edge->slots) return bad(absl::StrCat("slots ", op.slots, " differ from its edge's ", edge->slots));
        args = in || edge->control ? 0 : 1;
        break;
      }
      default:
        return bad(absl::StrCat("unknown kind ", static_cast<int>(op.kind)));
    }
    if (op.args.size() != args) return bad(absl::StrCat(op.args.size(), " arguments, ", args, " needed"));
    for (const PlanValue& v : op.args) {
      const PlanOp* from = FindOp(p_, v.op);
      if (from == nullptr || from == &op || from->worker != op.worker) {
        return bad(absl::StrCat("argument names op ", v.op, ", which is no other op of its worker"));
      }
      if (v.output < 0 || v.output >= NumOutputs(p_, *from)) {
        return bad(absl::StrCat("argument names output ", v.output, " of op ", v.op, ", which has ", NumOutputs(p_, *from)));
      }
    }
    for (const PlanWait& w : op.waits) {
      const PlanOp* on = FindOp(p_, w.op);
      if (on == nullptr || on->worker != op.worker) return bad(absl::StrCat("waits for op ", w.op, ", which is no op of its worker"));
      if (w.distance < 0 || w.distance > kMaxSlots) return bad(absl::StrCat("wait distance ", w.distance, ": 0 to ", kMaxSlots));
      if (on == &op && w.distance == 0) return bad("waits for itself");
      if (!v1::PlanWait::Reason_IsValid(w.reason) || w.reason == v1::PlanWait::REASON_UNSPECIFIED) {
        return bad(absl::StrCat("unknown reason ", static_cast<int>(w.reason), " of a wait"));
      }
    }
    return absl::OkStatus();
  }

  const Plan& p_;
  const int32_t workers_;
};

}  // namespace

absl::Status CheckPlan(const Plan& plan) { return Checker(plan).Run(); }

}  // namespace weft
