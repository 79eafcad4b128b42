#include "driver/simulate/cost_model.h"

namespace weft {

CostModel CostModel::Default() {
  CostModel model;
  model.compute = [](const Plan& plan, const PlanNode& node) -> Nanos {
    const PlanActor* actor = FindActor(plan, node.actor);
    if (actor == nullptr || actor->cls != "std.Delay") return 0;
    return FromSeconds(node.config.duration_s());
  };
  model.transfer = [](const Plan&, const PlanEdge& edge) -> Nanos {
    if (!edge.emulated) return 0;
    const double move = edge.emulate_bandwidth > 0 ? static_cast<double>(edge.bytes) / edge.emulate_bandwidth : 0;
    return FromSeconds(edge.emulate_latency_s + move);
  };
  model.collective = [](const Plan&, const PlanGroup&) -> Nanos { return 0; };
  return model;
}

}  // namespace weft
