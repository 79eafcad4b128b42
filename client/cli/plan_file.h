#pragma once

#include "client/cli/args.h"
#include "client/cli/exit_code.h"
#include "common/plan/plan.h"
#include "driver/plan/compiler.h"
#include "driver/simulate/cost_model.h"

namespace weft {

// A plan and what it is to cost, got without a daemon.
struct OfflinePlan {
  Plan plan;
  CostModel costs = CostModel::Default();
  bool compiled = false;  // from a graph file; otherwise it was read
  CompileTimes times;     // of a compiled one
};

// Compiles a graph file, or reads a plan file (its text, JSON or wire form), with the cluster and cost files of `args`. Complains of what
// is doubtful in the graph. kUsage: a file is absent, or a cluster or cost file is wrong or does not fit, or an option does not go with
// a plan; kInvalidGraph: graph or plan are wrong. A plan that was read is not verified.
Outcome LoadOffline(const OfflineArgs& args, OfflinePlan* out);

}  // namespace weft
