#include "driver/simulate/timeline.h"

#include <string>

namespace weft {

std::vector<v1::TraceTrack> PredictedTimeline(const Plan& plan, const SimResult& result) {
  std::vector<v1::TraceTrack> tracks(plan.workers.size());
  for (size_t w = 0; w < tracks.size(); ++w) {
    tracks[w].set_worker(plan.workers[w].name);
    tracks[w].set_predicted(true);
  }
  std::vector<std::string> names(plan.ops.size());  // made once an op, not once an execution
  for (const SimEvent& e : result.events) {
    if (e.op < 0 || static_cast<size_t>(e.op) >= plan.ops.size()) continue;
    const PlanOp& op = plan.ops[e.op];
    if (op.worker < 0 || static_cast<size_t>(op.worker) >= tracks.size()) continue;
    std::string& name = names[e.op];
    if (name.empty()) {
      const PlanNode* node = op.kind == v1::COMPUTE ? FindNode(plan, op.node) : nullptr;
      name = node != nullptr ? node->name : OpName(plan, op);
    }
    v1::TraceEvent* out = tracks[op.worker].add_event();
    out->set_op(op.id);
    out->set_name(name);
    out->set_kind(op.kind);
    out->set_lane(op.lane);
    out->set_lane_index(op.lane_index);
    out->set_execution(e.execution);
    out->set_start_ns(e.start);
    out->set_end_ns(e.end);
  }
  return tracks;
}

}  // namespace weft
