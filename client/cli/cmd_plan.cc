#include <cmath>
#include <set>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/graph_file.h"
#include "client/cli/picture.h"
#include "client/cli/worker_list.h"
#include "common/base/parse.h"
#include "common/classes/signature.h"
#include "common/plan/plan_text.h"
#include "driver/graph/warnings.h"
#include "driver/plan/compiler.h"
#include "driver/simulate/simulator.h"
#include "driver/simulate/timeline.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

Outcome PrintPlan(const Plan& plan, bool json) {
  if (!json) {
    Print(PlanToText(plan));
    return Outcome();
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(PlanToProto(plan), &text, options);
  if (!status.ok()) return Outcome(ExitCode::kInvalidGraph, absl::StrCat("the plan has no JSON form: ", std::string(status.message())));
  Print(text);
  return Outcome();
}

// What the simulation says of a whole run, and of each worker.
void PrintSimulation(const Plan& plan, const SimResult& result, const SimOptions& options, bool json) {
  ordered_json workers = ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"WORKER", "BUSY", "SPAN", "BUBBLE", "PEAK"}};
  for (size_t w = 0; w < plan.workers.size(); ++w) {
    const double busy = ToSeconds(result.busy[w]), span = ToSeconds(result.span[w]);
    const uint64_t peak = w < plan.peak_bytes.size() ? plan.peak_bytes[w] : 0;
    workers.push_back({{"name", plan.workers[w].name}, {"busy_s", busy}, {"span_s", span}, {"bubble_s", span - busy}, {"peak_bytes", peak}});
    rows.push_back({plan.workers[w].name, FormatSeconds(busy), FormatSeconds(span),
                    absl::StrCat(FormatSeconds(span - busy), span > 0 ? absl::StrFormat(" (%.0f %%)", 100 * (span - busy) / span) : ""),
                    FormatBytes(peak)});
  }
  const int in_flight = options.in_flight > 0 ? options.in_flight : plan.options.max_in_flight();
  if (json) {
    PrintJson({{"graph", plan.graph},
               {"plan_hash", plan.hash},
               {"executions", options.executions},
               {"in_flight", in_flight},
               {"makespan_s", ToSeconds(result.makespan)},
               {"seconds_per_execution", result.seconds_per_execution},
               {"workers", workers}});
    return;
  }
  Print(absl::StrCat("graph \"", plan.graph, "\", plan ", plan.hash, ": ", options.executions, " executions, ", in_flight, " in flight, take ",
                     FormatSeconds(ToSeconds(result.makespan)), ", ", FormatSeconds(result.seconds_per_execution), " each\n", Table(rows)));
}

}  // namespace

Outcome RunPlan(const CommonArgs& common, const PlanArgs& args) {
  v1::Graph graph;
  if (Outcome read = ReadGraph(args.graph_file, args.overlap, &graph); !read.ok()) return read;
  Cluster cluster = ClusterFromGraph(graph);
  if (!args.workers.empty()) {
    auto workers = ParseWorkerList(args.workers);
    if (!workers.ok()) return Outcome::OfArgument(workers.status());
    cluster.workers.clear();
    for (const ListedWorker& w : *workers) {
      cluster.workers.push_back({w.name, w.host.empty() ? cluster.client_host_id : w.host, "cpu"});
    }
  }
  CompileTimes times;
  auto plan = Compile(graph, ClassTable::Std(), cluster, &times);
  if (!plan.ok()) {
    return Outcome(ExitCode::kInvalidGraph, absl::StrCat(args.graph_file, ":\n", std::string(plan.status().message())));
  }
  for (const std::string& w : GraphWarnings(graph)) Complain(absl::StrCat("warning: ", args.graph_file, ": ", w));
  if (args.timing) {
    for (const auto& [pass, seconds] : times.passes) Complain(absl::StrFormat("%-10s %s", pass, FormatSeconds(seconds)));
  }
  if (args.simulate == 0 && args.draw_file.empty()) return PrintPlan(*plan, common.json || args.format == "json");

  SimOptions options;
  // A picture without a stated number shows what it can show.
  options.executions = args.simulate > 0 ? args.simulate : 6;
  options.in_flight = args.in_flight;
  options.record = !args.draw_file.empty();
  auto result = Simulate(*plan, CostModel::Default(), options);
  if (!result.ok()) return Outcome(ExitCode::kInvalidGraph, std::string(result.status().message()));
  PrintSimulation(*plan, *result, options, common.json || args.format == "json");
  if (args.draw_file.empty()) return Outcome();
  return Outcome::OfArgument(WriteTimeline(BuildTimeline(PredictedTimeline(*plan, *result)), plan->graph, args.draw_file));
}

}  // namespace weft
