#pragma once

// Pictures of a plan: its lanes over simulated time, and its ops for Graphviz.

#include <string>

#include "common/plan/plan.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct PlanPictureOptions {
  // Below each worker's lanes, a curve of the bytes that its values take.
  bool bytes = false;
};

// One row a lane, an arrow from each SEND or WRITE to its RECV or READ, a time axis; Chrome JSON for a `file` that ends in ".json", else SVG.
// Pre: `result` has recorded events of `plan`.
std::string PlanPicture(const Plan& plan, const SimResult& result, const std::string& file, const PlanPictureOptions& options);

// For Graphviz: a cluster a worker, within it one a lane, whose ops are chained in gray; transfers are blue, labelled by transport and slots;
// waits are dashed, labelled REASON@DISTANCE. Pre: CheckPlan(plan) is OK.
std::string PlanToDot(const Plan& plan);

}  // namespace weft
