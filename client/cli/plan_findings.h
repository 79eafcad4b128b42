#pragma once

#include <string>
#include <vector>

#include "client/cli/plan_file.h"
#include "common/plan/plan.h"

namespace weft {

// What is wrong with a plan, each as "RULE text": the verifier's findings, and a stated hash that is not its own. Empty for a good one.
std::vector<std::string> PlanFindings(const Plan& plan);

// Of a plan that was read, not compiled: warns, on stderr, that workers would refuse it. Its times and pictures are shown all the same,
// since they help to see what is wrong.
void WarnOfFindings(const std::string& file, const OfflinePlan& offline);

}  // namespace weft
