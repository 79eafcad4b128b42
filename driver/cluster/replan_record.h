#pragma once

// A graph that is being re-planned, as the coordinator knows it. Plain data, guarded by the coordinator's lock.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "weft/v1/client_service.pb.h"

namespace weft {

// compiling -> measuring old -> loading -> pausing -> swapping -> measuring new -> (pausing -> swapping, back) -> over. A change that fails on
// any worker goes through rolling back; if that fails too, the graph fails.
struct ReplanRecord {
  using Done = std::function<void(absl::StatusOr<v1::ReplanReply>)>;
  enum class Phase {
    kCompiling,     // on a client's thread
    kMeasuringOld,  // until enough executions are done by the old plan
    kLoading,       // NextPlan sent, NextPlanReply awaited
    kPausing,       // the session is asked to admit nothing more
    kSwapping,      // SwapPlan sent, SwapReply awaited
    kRollingBack,   // SwapPlan to the plan of before sent, SwapReply awaited
    kMeasuringNew,
  };

  Phase phase = Phase::kCompiling;
  Done done;
  v1::ReplanReply reply;
  int64_t executions = 0;  // to be measured
  double timeout_s = 0;    // for these, and for those in flight to end
  Nanos deadline = 0;      // of the phase
  std::shared_ptr<const Plan> old_plan, new_plan;
  bool back = false;          // the change under way leads to the old plan
  int64_t from = 0;           // first execution that is measured
  int64_t swap_at = 0;        // first execution after the change under way
  std::set<std::string> waiting;  // workers whose answer is awaited
  absl::Status failure;       // what went wrong first in the change that is rolled back

  bool paused() const { return phase == Phase::kPausing || phase == Phase::kSwapping || phase == Phase::kRollingBack; }
  const std::shared_ptr<const Plan>& from_plan() const { return back ? new_plan : old_plan; }
  const std::shared_ptr<const Plan>& to_plan() const { return back ? old_plan : new_plan; }
};

}  // namespace weft
