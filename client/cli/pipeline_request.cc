#include "client/cli/pipeline_request.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "driver/graph/parse.h"

namespace weft {
namespace {

constexpr char kGridPrefix[] = "csv:";

absl::StatusOr<std::string> ReadGridFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFileBytes(path, "grid");
  if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat("--schedule csv: ", std::string(text.status().message())));
  return text;
}

}  // namespace

absl::StatusOr<PipelineRequest> ToPipelineRequest(const PipelineArgs& args) {
  PipelineRequest r;
  r.schedule = args.schedule;
  if (absl::StartsWith(args.schedule, kGridPrefix)) {
    r.schedule = "csv";
    WEFT_ASSIGN_OR_RETURN(r.grid, ReadGridFile(args.schedule.substr(sizeof(kGridPrefix) - 1)));
  }
  r.workers = args.stages;
  r.microbatches = args.microbatches;
  if (args.chunks > 0) r.chunks = args.chunks;
  r.placement = args.placement;
  if (!args.cost.empty()) {
    WEFT_ASSIGN_OR_RETURN(r.costs, ParseCosts(args.cost, r.schedule == "forward-only"));
  }
  bool unit = false;
  if (!args.hop.empty()) {
    WEFT_ASSIGN_OR_RETURN(r.costs.hop, ParseDuration("--hop", args.hop, &unit));
    r.costs.has_unit |= unit;
  }
  if (!args.memory.empty()) {
    WEFT_ASSIGN_OR_RETURN(r.memory, ParseMemory(args.memory));
  }
  if (!args.cap_activations.empty()) {
    WEFT_ASSIGN_OR_RETURN(r.cap_activations, ParseDecimal("--cap-activations", args.cap_activations));
  }
  if (!args.cap_bytes.empty()) {
    WEFT_ASSIGN_OR_RETURN(r.cap_bytes, ParseDecimalBytes("--cap-bytes", args.cap_bytes));
  }
  return r;
}

absl::StatusOr<TrainingModel> ToTrainingModel(const PipelineArgs& args) {
  TrainingModel m;
  for (const std::string& width : std::vector<std::string>(absl::StrSplit(args.mlp, ','))) {
    WEFT_ASSIGN_OR_RETURN(const int64_t w, ParseInt("--mlp", width, 1, int64_t{1} << 31));
    m.widths.push_back(w);
  }
  if (m.widths.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mlp \"", args.mlp, "\": give the features of the input and of each layer's output, such as 8,16,16,4"));
  }
  m.rows = args.rows;
  m.seed = static_cast<uint64_t>(args.seed);
  m.activation = args.activation;
  m.dtype = args.dtype == "F64" ? v1::F64 : args.dtype == "F16" ? v1::F16 : args.dtype == "BF16" ? v1::BF16 : v1::F32;
  m.in_flight = args.in_flight;
  m.weights = args.weights.value_or(true);
  if (!absl::SimpleAtod(args.learning_rate, &m.learning_rate) || !std::isfinite(m.learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat("--learning-rate: \"", args.learning_rate, "\" is not a finite number, such as 0.1"));
  }
  return m;
}

Outcome PlanOf(const PipelineArgs& args, PipelinePlan* plan) {
  const auto request = ToPipelineRequest(args);
  if (!request.ok()) return Outcome::OfArgument(request.status());
  auto made = PlanPipeline(*request);
  if (made.ok()) {
    *plan = *std::move(made);
    return Outcome();
  }
  if (request->schedule != "csv") return Outcome::OfArgument(made.status());
  return Outcome(ExitCode::kInvalidGraph, absl::StrCat(absl::StripPrefix(args.schedule, kGridPrefix), ":\n", made.status().message()));
}

}  // namespace weft
