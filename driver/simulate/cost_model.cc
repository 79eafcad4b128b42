#include "driver/simulate/cost_model.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

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

Nanos CollectiveCost(const CostModel& costs, const Plan& plan, const PlanGroup& group) {
  const Nanos said = costs.collective ? costs.collective(plan, group) : 0;
  if (said != 0 || group.op != v1::BROADCAST || !absl::StartsWith(group.name, "broadcast+") || !costs.transfer) return said;
  // "broadcast+NODE:OUTPUT" of members NODE and "room+NODE:OUTPUT+CONSUMER", as broadcasts.cc makes them. A plan that was edited by hand may have
  // others, for which nothing is known.
  Nanos slowest = 0;
  for (size_t r = 0; r < group.members.size() && r < group.member_nodes.size(); ++r) {
    if (static_cast<int32_t>(r) == group.root_rank || group.root_rank < 0 || static_cast<size_t>(group.root_rank) >= group.members.size()) continue;
    PlanEdge e;
    e.src_worker = group.members[group.root_rank];
    e.dst_worker = group.members[r];
    e.src = group.member_nodes[group.root_rank];
    int output = 0;
    if (absl::SimpleAtoi(group.name.substr(group.name.rfind(':') + 1), &output)) e.src_output = output;
    e.dst = group.member_nodes[r].substr(group.member_nodes[r].rfind('+') + 1);
    e.transport = group.transport;
    e.spec = group.input;
    e.bytes = group.input.MaxBytes();
    e.rendezvous = true;
    slowest = std::max(slowest, costs.transfer(plan, e));
  }
  int high = 0;
  while ((size_t{1} << high) < group.members.size()) ++high;
  return slowest > std::numeric_limits<Nanos>::max() / std::max(high, 1) ? std::numeric_limits<Nanos>::max() : slowest * high;
}

}  // namespace weft
