#include "driver/plan/verify.h"

#include "driver/plan/verify_rules.h"

namespace weft {

absl::Status Verify(const Plan& plan) {
  Findings findings;
  PlanIndex::Check(plan, &findings);
  if (findings.empty()) {
    const PlanIndex index(plan);
    CheckDefinitions(index, &findings);
    CheckOrders(index, &findings);
    CheckLiveness(index, &findings);
    CheckBuffers(index, &findings);
    CheckBytes(index, &findings);
  }
  return findings.ToStatus(absl::StatusCode::kFailedPrecondition, plan.graph);
}

}  // namespace weft
