#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/plan_file.h"
#include "driver/simulate/predict.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct SimulationRequest {
  SimOptions options;  // `record` is set as needed
  std::string draw_file;
  bool json = false;
  bool bytes = false;  // bytes over time, in the JSON and in the picture
};

// A prediction as commands show it: an object of seconds and counts ("cycle" and "warm_up" are null without a steady state); one line.
nlohmann::ordered_json PredictionJson(const Prediction& prediction);
std::string PredictionText(const Prediction& prediction);

// What `weft simulate` and `weft plan --simulate` print, and the picture if one is wanted. kInvalidGraph: the plan comes to a standstill,
// or cannot be simulated.
Outcome SimulateAndPrint(const OfflinePlan& offline, const SimulationRequest& request);

}  // namespace weft
