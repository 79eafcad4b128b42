// CapturedRun's answer to "what are you waiting for".

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/run/captured_run.h"

namespace weft {

std::string CapturedRun::FlightText(const Flight& flight) const {
  std::vector<std::string> values;
  for (const Receiver& r : receivers_) {
    const PlanEdge& e = *options_.program->ops[r.op].edge;
    if (e.transport == v1::SHM || !r.port->MayWait(static_cast<int>(flight.execution % slots_))) continue;
    values.push_back(EdgeName(*options_.plan, e));
  }
  if (values.empty()) return "the GPU";
  return absl::StrCat("the GPU, and in it perhaps for the value of ", absl::StrJoin(values, ", "));
}

std::string CapturedRun::WaitText(int64_t admitted) const {
  if (launched_ > admitted) return absl::StrCat("execution ", launched_, " to be admitted");
  std::vector<std::string> reasons;
  for (const Sender& s : senders_) {
    if (s.drives && !s.told) reasons.push_back(absl::StrCat(Describe(s.op), ": ", s.port->WaitsFor()));
  }
  for (const Receiver& r : receivers_) {
    if (r.drives && !r.taken) reasons.push_back(absl::StrCat(Describe(r.op), ": ", r.port->WaitsFor()));
  }
  return reasons.empty() ? "nothing: about to be launched" : absl::StrJoin(reasons, "; ");
}

void CapturedRun::Inspect(int64_t admitted, const absl::Status& failure, v1::WorkerView* view) const {
  v1::LaneView* v = view->add_lane();
  v->set_lane(v1::LANE_COMPUTE);
  v->set_op(absl::StrCat("iteration of ", options_.program->ops.size(), " ops"));
  v->set_since_s(ToSeconds(options_.clock->Now() - since_));
  if (!flights_.empty()) {
    v->set_execution(flights_.front().execution);
    v->set_state("running");
    v->set_waits_for(FlightText(flights_.front()));
    return;
  }
  v->set_execution(launched_);
  if (!failure.ok()) {
    v->set_state("idle");
    v->set_waits_for(absl::StrCat("nothing: the graph failed: ", std::string(failure.message())));
    return;
  }
  v->set_state(launched_ > admitted ? "idle" : "waiting");
  if (launched_ > admitted) v->clear_op();
  v->set_waits_for(WaitText(admitted));
}

}  // namespace weft
