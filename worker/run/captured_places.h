#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/plan/plan.h"

namespace weft {

// For captured iterations: tells the readers of this worker's ipc edges where the values lie that they will copy, variant by variant, since
// they capture their copies before any value is made. `slot` gives the memory of an edge's message number (ShmSegment::SlotMemory); the
// trial is message 0, so variant v is message v + 1. To be called before a reader can look.
absl::Status PresetPlaces(const Plan& part, const std::function<absl::StatusOr<void*>(const PlanEdge& edge, uint64_t message)>& slot);

}  // namespace weft
