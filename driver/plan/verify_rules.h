#pragma once

// The rules of verify.h, one function each (V1 to V3 share one). All are linear in ops and waits, and add what they find.

#include <cstdint>
#include <optional>

#include "driver/plan/verify_findings.h"
#include "driver/plan/verify_index.h"

namespace weft {

// V7: every node computed once on its actor's worker, every edge with both its ends, every collective with all its members; values exist
// before their use, on the same worker, and are waited for; dtype and size agree along every edge.
void CheckDefinitions(const PlanIndex& index, Findings* findings);
// V1, V2, V3: one order of transfers and collectives that all workers agree on.
void CheckOrders(const PlanIndex& index, Findings* findings);
// V4: no execution can come to a standstill.
void CheckLiveness(const PlanIndex& index, Findings* findings);
// V5: no buffer is written before its readers released it.
void CheckBuffers(const PlanIndex& index, Findings* findings);
// V6: bytes as the plan says, and within the limit.
void CheckBytes(const PlanIndex& index, Findings* findings);

// Spec::MaxBytes for a spec that may hold anything: nullopt when a dimension is negative or the size above kMaxTensorBytes.
std::optional<uint64_t> CheckedBytes(const Spec& spec);

}  // namespace weft
