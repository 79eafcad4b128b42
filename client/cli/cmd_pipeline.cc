#include <fstream>
#include <sstream>

#include <google/protobuf/text_format.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "driver/schedules/csv.h"
#include "driver/schedules/graph.h"
#include "driver/schedules/pipeline.h"
#include "driver/schedules/svg.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr char kGridPrefix[] = "csv:";

absl::StatusOr<std::string> ReadGridFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in) return absl::InvalidArgumentError(absl::StrCat("--schedule csv: cannot read \"", path, "\""));
  return text.str();
}

absl::StatusOr<PipelineRequest> ToRequest(const PipelineArgs& args) {
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

ordered_json OpJson(const PipelinePlan& plan, int32_t worker, size_t i) {
  const PipelineOp& op = plan.schedule.orders[worker][i];
  const Ticks start = plan.times.start[worker][i];
  const bool pair = op.pass == Pass::kPair;
  ordered_json json = {{"name", PassName(plan.schedule, op)},
                       {"op", pair ? "F&B" : std::string(1, PassLetter(op.pass))},
                       {"stage", op.stage},
                       {"microbatch", op.microbatch}};
  if (pair) {
    json["back_stage"] = op.back_stage;
    json["back_microbatch"] = op.back_microbatch;
  }
  json["start"] = plan.costs.ToUnits(start);
  json["end"] = plan.costs.ToUnits(start + plan.costs.Of(op));
  return json;
}

ordered_json ToJson(const PipelinePlan& plan) {
  const PipelineSchedule& s = plan.schedule;
  ordered_json orders = ordered_json::array();
  for (int32_t w = 0; w < s.workers; ++w) {
    ordered_json order = ordered_json::array();
    for (size_t i = 0; i < s.orders[w].size(); ++i) order.push_back(OpJson(plan, w, i));
    orders.push_back(std::move(order));
  }
  // One entry a worker in any case; bytes are not known without --memory.
  ordered_json bytes = ordered_json::array();
  for (int32_t w = 0; w < s.workers; ++w)
    bytes.push_back(plan.peak_bytes.empty() ? ordered_json(nullptr) : ordered_json(plan.peak_bytes[w]));
  return {{"schedule", s.name},
          {"stages", s.workers},
          {"microbatches", s.microbatches},
          {"chunks", plan.chunks},
          {"worker_of_stage", s.worker_of},
          {"exact", plan.costs.exact},
          {"makespan", plan.makespan},
          {"span", plan.span},
          {"bubble_global", plan.bubble_global},
          {"bubble_span", plan.bubble_span},
          {"peak_activations", plan.peak_activations},
          {"peak_bytes", bytes},
          {"scheduler_s", plan.scheduler_s},
          {"orders", orders}};
}

// Whole and short decimal numbers as they are.
std::string Short(double v) { return absl::StrFormat("%.10g", v); }
std::string Time(const PipelinePlan& plan, double v) { return plan.has_unit ? FormatSeconds(v) : Short(v); }

std::string ToText(const PipelinePlan& plan) {
  const PipelineSchedule& s = plan.schedule;
  std::string out = absl::StrCat(s.name, ": ", s.workers, " workers, ", s.microbatches, " microbatches",
                                 plan.chunks > 1 ? absl::StrCat(", ", plan.chunks, " stages a worker") : "", "\nmakespan ",
                                 Time(plan, plan.makespan), ", of it bubble ", absl::StrFormat("%.2f %%", 100 * plan.bubble_global),
                                 "; span ", Time(plan, plan.span), ", of it bubble ", absl::StrFormat("%.2f %%", 100 * plan.bubble_span),
                                 "\nmade in ", FormatSeconds(plan.scheduler_s), "\n\n");
  std::vector<std::vector<std::string>> rows = {{"WORKER", "FIRST", "LAST", "SPAN", "ACTIVATIONS"}};
  if (!plan.peak_bytes.empty()) rows[0].push_back("BYTES");
  for (int32_t w = 0; w < s.workers; ++w) {
    const double first = plan.costs.ToUnits(plan.times.first[w]), last = plan.costs.ToUnits(plan.times.last[w]);
    rows.push_back({absl::StrCat("w", w), Time(plan, first), Time(plan, last),
                    Time(plan, plan.costs.ToUnits(plan.times.last[w] - plan.times.first[w])), Short(plan.peak_activations[w])});
    if (!plan.peak_bytes.empty()) rows.back().push_back(Short(plan.peak_bytes[w]));
  }
  absl::StrAppend(&out, Table(rows), "\n");
  for (int32_t w = 0; w < s.workers; ++w) {
    absl::StrAppend(&out, "w", w);
    for (size_t i = 0; i < s.orders[w].size(); ++i) {
      absl::StrAppend(&out, " ", PassName(s, s.orders[w][i]), "@", Short(plan.costs.ToUnits(plan.times.start[w][i])));
    }
    absl::StrAppend(&out, " end ", Short(plan.costs.ToUnits(plan.times.last[w])), "\n");
  }
  return out;
}

Outcome PrintGraph(const PipelinePlan& plan) {
  const v1::Graph graph = PipelineGraph(plan, absl::StrCat("pipeline-", plan.schedule.name));
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  if (!printer.PrintToString(graph, &text)) return Outcome(ExitCode::kInvalidGraph, "the graph has no text form");
  Print(absl::StrCat("# ", plan.schedule.name, ", ", plan.schedule.workers, " workers, ", plan.schedule.microbatches,
                     " microbatches: ", FormatSeconds(plan.makespan), " an execution.\n", text));
  return Outcome();
}

}  // namespace

Outcome RunPipeline(const CommonArgs& common, const PipelineArgs& args) {
  const auto request = ToRequest(args);
  if (!request.ok()) return Outcome::OfArgument(request.status());
  const auto plan = PlanPipeline(*request);
  if (!plan.ok()) {
    // A grid is a plan that the user wrote; whatever else is wrong, arguments are.
    if (request->schedule != "csv") return Outcome::OfArgument(plan.status());
    return Outcome(ExitCode::kInvalidGraph, absl::StrCat(absl::StripPrefix(args.schedule, kGridPrefix), ":\n", plan.status().message()));
  }
  if (!plan->costs.exact) Complain("warning: the costs have more digits than can be counted with, they were rounded");
  if (common.json || args.format == "json") {
    PrintJson(ToJson(*plan));
  } else if (args.format == "csv") {
    Print(WriteScheduleGrid(plan->schedule));
  } else if (args.format == "svg") {
    Print(PipelineSvg(*plan));
  } else if (args.format == "graph") {
    return PrintGraph(*plan);
  } else {
    Print(ToText(*plan));
  }
  return Outcome();
}

}  // namespace weft
