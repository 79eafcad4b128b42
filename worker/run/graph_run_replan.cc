// A running graph changes to another order between two executions.

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/run/graph_run.h"

namespace weft {
namespace {

// What an op does, whatever its place.
using Deed = std::tuple<int, int32_t, int32_t, int32_t>;  // kind, node, edge, group

Deed DeedOf(const PlanOp& op) { return {op.kind, op.node, op.edge, op.group}; }

bool Equal(const PlanEdge& a, const PlanEdge& b) {
  return a.src_worker == b.src_worker && a.dst_worker == b.dst_worker && a.src == b.src && a.src_output == b.src_output && a.dst == b.dst &&
         a.dst_arg == b.dst_arg && a.transport == b.transport && a.spec == b.spec && a.bytes == b.bytes && a.slots == b.slots &&
         a.rendezvous == b.rendezvous && a.control == b.control && a.emulated == b.emulated && a.emulate_latency_s == b.emulate_latency_s &&
         a.emulate_bandwidth == b.emulate_bandwidth;
}

bool Equal(const PlanGroup& a, const PlanGroup& b) {
  return a.op == b.op && a.reduce == b.reduce && a.members == b.members && a.member_nodes == b.member_nodes && a.root_rank == b.root_rank &&
         a.input == b.input && a.output == b.output && a.transport == b.transport;
}

bool Equal(const PlanNode& a, const PlanNode& b) {
  return a.name == b.name && a.actor == b.actor && a.method == b.method && a.outputs == b.outputs && a.device_error == b.device_error &&
         a.config.SerializeAsString() == b.config.SerializeAsString();
}

bool Equal(const PlanActor& a, const PlanActor& b) { return a.name == b.name && a.cls == b.cls && a.worker == b.worker; }

// Of lists in the order of their ids.
template <typename T, typename Name>
absl::Status SameList(const std::vector<T>& is, const std::vector<T>& next, const char* what, const Name& name) {
  if (is.size() != next.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the new plan has ", next.size(), " ", what, "s on this worker, and ", is.size(), " run"));
  }
  for (size_t i = 0; i < is.size(); ++i) {
    if (is[i].id != next[i].id || !Equal(is[i], next[i])) {
      return absl::InvalidArgumentError(absl::StrCat("the new plan changes ", name(is[i]), ": only the order of a running graph can change"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int>> GraphRun::MatchOps(const Plan& part, const Program& program) const {
  std::map<Deed, int> here;
  for (size_t i = 0; i < program_.ops.size(); ++i) here[DeedOf(*program_.ops[i].plan)] = static_cast<int>(i);
  if (program.ops.size() != program_.ops.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the new plan has ", program.ops.size(), " ops on ", worker_, ", and ", program_.ops.size(), " run"));
  }
  std::vector<int> same;
  same.reserve(program.ops.size());
  for (const LocalOp& op : program.ops) {
    const auto it = here.find(DeedOf(*op.plan));
    if (it == here.end()) return absl::InvalidArgumentError(absl::StrCat("the new plan has ", OpName(part, *op.plan), " on ", worker_, ", which does not run"));
    if (program_.ops[it->second].slots != op.slots) {
      return absl::InvalidArgumentError(absl::StrCat("the new plan gives ", OpName(part, *op.plan), " on ", worker_, " ", op.slots, " buffers, and it has ",
                                                     program_.ops[it->second].slots, ": tear the graph down and compile it again"));
    }
    same.push_back(it->second);
    here.erase(it);  // each once
  }
  return same;
}

absl::Status GraphRun::CheckReplan(const Plan& part) const {
  if (captured_ != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", name(), " on ", worker_,
                                                      " runs captured iterations (options.launch GRAPH), which cannot change: tear it down and "
                                                      "compile it again"));
  }
  const Plan& is = loaded_.plan;
  if (part.graph != is.graph || part.part_of != is.part_of || part.workers.size() != is.workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the new plan is not that of graph ", name(), " on ", worker_));
  }
  WEFT_RETURN_IF_ERROR(SameList(is.actors, part.actors, "actor", [](const PlanActor& a) { return "actor " + a.name; }));
  WEFT_RETURN_IF_ERROR(SameList(is.nodes, part.nodes, "node", [](const PlanNode& n) { return "node " + n.name; }));
  WEFT_RETURN_IF_ERROR(SameList(is.edges, part.edges, "edge", [&](const PlanEdge& e) { return EdgeName(is, e); }));
  WEFT_RETURN_IF_ERROR(SameList(is.groups, part.groups, "collective", [](const PlanGroup& g) { return "collective " + g.name; }));
  WEFT_ASSIGN_OR_RETURN(const Program program, BuildProgram(part));
  return MatchOps(part, program).status();
}

absl::Status GraphRun::Replan(Plan part, int64_t from) {
  WEFT_RETURN_IF_ERROR(CheckReplan(part));
  if (!failure_.ok()) return failure_;
  bool idle = completed_ == from && admitted_ < from;
  for (const Lane& lane : lanes_) idle &= lane.outstanding.empty();
  if (!idle) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", name(), " on ", worker_, ": executions below ", from, " are not all done, or some from it on are admitted: ",
                                                      completed_, " are done, ", admitted_ + 1, " admitted"));
  }
  // The program points into the plan's lists, which stay where they are when the plan moves.
  auto next = std::make_unique<Plan>(std::move(part));
  WEFT_ASSIGN_OR_RETURN(Program program, BuildProgram(*next));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> same, MatchOps(*next, program));
  std::vector<Lane> lanes;
  const Nanos now = clock_->Now();
  std::vector<size_t> take(program.lanes.size(), lanes_.size());  // whose stream it goes on with
  for (size_t l = 0; l < program.lanes.size(); ++l) {
    Lane lane;
    for (size_t old = 0; old < lanes_.size(); ++old) {
      if (program_.lanes[old].kind == program.lanes[l].kind && program_.lanes[old].index == program.lanes[l].index) take[l] = old;
    }
    if (take[l] == lanes_.size()) {
      WEFT_ASSIGN_OR_RETURN(lane.stream, device_->NewStream(program.lanes[l].kind));
    }
    lane.in_order = device_->Polls() && program.lanes[l].kind == v1::LANE_COMPUTE;
    lane.since = now;
    lane.execution = from;
    lanes.push_back(std::move(lane));
  }
  // From here on nothing fails.
  for (size_t l = 0; l < lanes.size(); ++l) {
    if (take[l] < lanes_.size()) lanes[l].stream = std::move(lanes_[take[l]].stream);
  }
  std::vector<OpState> state;
  for (size_t i = 0; i < same.size(); ++i) {
    OpState s = std::move(state_[same[i]]);
    s.issued = s.done = s.first_made = from;
    s.made.clear();
    s.events.clear();
    if (s.call != nullptr) s.call->Rebind(&program.ops[i]);  // the list stays where it is when the program moves
    state.push_back(std::move(s));
  }
  loaded_.plan = std::move(*next);
  program_ = std::move(program);
  state_ = std::move(state);
  lanes_ = std::move(lanes);
  trace_.Clear();
  return absl::OkStatus();
}

}  // namespace weft
