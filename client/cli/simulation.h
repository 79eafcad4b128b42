#pragma once

#include <string>

#include "client/cli/exit_code.h"
#include "client/cli/plan_file.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct SimulationRequest {
  SimOptions options;  // `record` is set as needed
  std::string draw_file;
  bool json = false;
  bool bytes = false;  // bytes over time, in the JSON and in the picture
};

// What `weft simulate` and `weft plan --simulate` print, and the picture if one is wanted. kInvalidGraph: the plan comes to a standstill,
// or cannot be simulated.
Outcome SimulateAndPrint(const OfflinePlan& offline, const SimulationRequest& request);

}  // namespace weft
