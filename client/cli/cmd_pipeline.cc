#include <google/protobuf/text_format.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/pipeline_request.h"
#include "common/base/parse.h"
#include "driver/schedules/csv.h"
#include "driver/schedules/graph.h"
#include "driver/schedules/pipeline.h"
#include "driver/schedules/svg.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

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

Outcome PrintGraph(const PipelinePlan& plan, const PipelineArgs& args) {
  v1::Graph graph;
  std::string what = absl::StrCat(FormatSeconds(plan.makespan), " an execution");
  if (args.mlp.empty()) {
    graph = PipelineGraph(plan, absl::StrCat("pipeline-", plan.schedule.name));
  } else {
    const auto model = ToTrainingModel(args);
    if (!model.ok()) return Outcome::OfArgument(model.status());
    auto trains = TrainingGraph(plan, *model, absl::StrCat("training-", plan.schedule.name));
    if (!trains.ok())
      return Outcome::OfArgument(absl::InvalidArgumentError(absl::StrCat("--mlp: ", std::string(trains.status().message()))));
    graph = *std::move(trains);
    what = absl::StrCat("trains a network of ", model->widths.size() - 1, " layers, one step of ", model->rows * plan.schedule.microbatches,
                        " rows an execution");
  }
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  if (!printer.PrintToString(graph, &text)) return Outcome(ExitCode::kInvalidGraph, "the graph has no text form");
  Print(absl::StrCat("# ", plan.schedule.name, ", ", plan.schedule.workers, " workers, ", plan.schedule.microbatches,
                     " microbatches: ", what, ".\n", text));
  return Outcome();
}

}  // namespace

Outcome RunPipeline(const CommonArgs& common, const PipelineArgs& args) {
  if (!args.mlp.empty() && args.format != "graph")
    return Outcome(ExitCode::kUsage, "--mlp says what the graph computes: add --format graph");
  PipelinePlan plan;
  if (Outcome made = PlanOf(args, &plan); !made.ok()) return made;
  if (!plan.costs.exact) Complain("warning: the costs have more digits than can be counted with, they were rounded");
  if (common.json || args.format == "json") {
    PrintJson(ToJson(plan));
  } else if (args.format == "csv") {
    Print(WriteScheduleGrid(plan.schedule));
  } else if (args.format == "svg") {
    Print(PipelineSvg(plan));
  } else if (args.format == "graph") {
    return PrintGraph(plan, args);
  } else {
    Print(ToText(plan));
  }
  return Outcome();
}

}  // namespace weft
