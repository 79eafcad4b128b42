// GraphRun's answer to "what are you waiting for".

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/run/graph_run.h"

namespace weft {

std::string GraphRun::WaitText(const LocalOp& op, const OpState& state, int64_t k) const {
  int which = 0;
  switch (WhyBlocked(op, state, k, &which)) {
    case Blocked::kNot:
      return "nothing: about to be issued";
    case Blocked::kFailed:
      return absl::StrCat("nothing: the graph failed: ", std::string(failure_.message()));
    case Blocked::kAdmission:
      return absl::StrCat("execution ", k, " to be admitted");
    case Blocked::kPort:
      return state.sender != nullptr ? state.sender->WaitsFor() : state.receiver->WaitsFor();
    case Blocked::kLoads:
      return "transfers that peers have been told of to be launched, and bootstraps of other graphs to end: loading device code for the call's shapes would hold them up";
    case Blocked::kWait:
      break;
  }
  const LocalWait& w = op.waits[which];
  const char* why = "";
  switch (w.reason) {
    case v1::PlanWait::DATA:
      why = "its value";
      break;
    case v1::PlanWait::CONTROL:
      why = "control edge";
      break;
    case v1::PlanWait::PROGRAM:
      why = "program order";
      break;
    case v1::PlanWait::BUFFER:
      why = "its buffer is still read";
      break;
    case v1::PlanWait::NO_OVERLAP:
      why = "overlap is off";
      break;
    default:
      why = "plan";
  }
  return absl::StrCat(Describe(program_.ops[w.op]), " of execution ", k - w.distance, " (", why, ")");
}

std::string GraphRun::CallName(LoopCall call, int op) const {
  if (op < 0 || op >= static_cast<int>(program_.ops.size())) return "an op";
  const LocalOp& o = program_.ops[op];
  if (call != LoopCall::kIssue) return Describe(o);
  if (o.node == nullptr) return absl::StrCat("issuing ", Describe(o));
  const auto actor = std::find_if(loaded_.plan.actors.begin(), loaded_.plan.actors.end(), [&](const PlanActor& a) { return a.id == o.node->actor; });
  return absl::StrCat("method `", o.node->method, "` of node ", o.node->name,
                      actor == loaded_.plan.actors.end() ? "" : absl::StrCat(", actor ", actor->name, " of class ", actor->cls));
}

v1::WorkerView GraphRun::Inspect() const {
  v1::WorkerView view;
  view.set_graph(name());
  view.set_worker(worker_);
  view.set_admitted(admitted_ + 1);
  view.set_completed(completed_);
  if (!failure_.ok()) view.set_problem(std::string(failure_.message()));
  if (captured_ != nullptr) {
    captured_->Inspect(admitted_, failure_, &view);
    return view;
  }
  const Nanos now = clock_->Now();
  for (size_t l = 0; l < lanes_.size(); ++l) {
    const Lane& lane = lanes_[l];
    const LocalLane& queue = program_.lanes[l];
    v1::LaneView* v = view.add_lane();
    v->set_lane(queue.kind);
    v->set_index(queue.index);
    v->set_since_s(ToSeconds(now - lane.since));
    if (!lane.outstanding.empty()) {
      const Outstanding& o = lane.outstanding.front();
      const LocalOp& op = program_.ops[o.op];
      v->set_op(Describe(op));
      v->set_execution(o.execution);
      v->set_state("running");
      if (op.plan->kind == v1::RECV) v->set_waits_for(state_[o.op].receiver->WaitsFor());
      if (op.plan->kind == v1::SEND) v->set_waits_for(state_[o.op].sender->WaitsFor());
      if (op.plan->kind == v1::COLLECTIVE) v->set_waits_for(absl::StrCat("all ", op.group->members.size(), " members"));
      continue;
    }
    const int i = queue.ops[lane.position];
    if (lane.execution > Allowed() && failure_.ok()) {
      v->set_state("idle");
      v->set_execution(lane.execution);
      v->set_waits_for(absl::StrCat("execution ", lane.execution, lane.execution > admitted_ ? " to be admitted" : " to be begun, when this worker pauses no more"));
      continue;
    }
    v->set_op(Describe(program_.ops[i]));
    v->set_execution(lane.execution);
    v->set_state(failure_.ok() ? "waiting" : "idle");
    v->set_waits_for(WaitText(program_.ops[i], state_[i], lane.execution));
  }
  return view;
}

}  // namespace weft
