#pragma once

// Costs of a graph's parts from the trace of a run.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"
#include "weft/v1/client_service.pb.h"
#include "weft/v1/costs.pb.h"

namespace weft {

struct MeasuredCosts {
  v1::Costs costs;
  // Executions of which some op was seen.
  int64_t first_execution = 0;
  int64_t executions = 0;
};

// Medians over the executions in `tracks` (the workers', predicted ones are left out), execution 0 apart where there are others: what it took
// longer is `first_s`.
//   call: from its start to its end.
//   rendezvous transfer, collective: from when the last end had issued it until the last end saw it over.
//   buffered transfer: how long WRITE and READ held their lanes; latency from the end of WRITE to the start of a READ whose lane was free
//   before, the least that was seen.
// Ops that carried an error are left out. FailedPrecondition names the workers or nodes of which nothing was recorded.
absl::StatusOr<MeasuredCosts> CostsFromTrace(const Plan& plan, const std::vector<v1::TraceTrack>& tracks);

}  // namespace weft
