#include "driver/plan/same_parts.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/plan/plan_text.h"

namespace weft {
namespace {

// Everything of a plan but its ops.
std::string Parts(Plan plan) {
  plan.ops.clear();
  plan.hash.clear();
  plan.peak_bytes.clear();
  return PlanToText(plan);
}

// Each op as what it does, on which worker, with how many buffers.
std::vector<std::tuple<int, int32_t, int32_t, int32_t, int32_t, int32_t>> Deeds(const Plan& plan) {
  std::vector<std::tuple<int, int32_t, int32_t, int32_t, int32_t, int32_t>> deeds;
  for (const PlanOp& o : plan.ops) deeds.emplace_back(o.kind, o.worker, o.node, o.edge, o.group, o.slots);
  std::sort(deeds.begin(), deeds.end());
  return deeds;
}

}  // namespace

bool OnlyOrderDiffers(const Plan& a, const Plan& b) { return Deeds(a) == Deeds(b) && Parts(a) == Parts(b); }

}  // namespace weft
