#pragma once

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cli/exit_code.h"
#include "driver/schedules/pipeline.h"
#include "driver/schedules/training_graph.h"

namespace weft {

// What the arguments of `weft pipeline` and `weft bench pipeline` ask for. InvalidArgument names the option. Reads the grid of csv:FILE.
absl::StatusOr<PipelineRequest> ToPipelineRequest(const PipelineArgs& args);

// Of --mlp and what goes with it.
absl::StatusOr<TrainingModel> ToTrainingModel(const PipelineArgs& args);

// The request's plan, or why there is none, in words and with the exit code that fits: a grid is a plan that the user wrote, whatever else
// is wrong, arguments are.
Outcome PlanOf(const PipelineArgs& args, PipelinePlan* plan);

}  // namespace weft
