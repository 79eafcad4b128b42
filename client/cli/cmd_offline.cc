#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/plan_file.h"
#include "client/cli/plan_findings.h"
#include "client/cli/simulation.h"
#include "driver/draw/graph_view.h"
#include "driver/draw/plan_picture.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr char kRules[] =
    "V1 transfers in one order at both ends, V2 collectives in one order, V3 one launch order, V4 live for any number of executions, "
    "V5 no buffer overwritten, V6 bytes within limits, V7 well formed";

Outcome WriteOrPrint(const std::string& text, const std::string& file) {
  if (!file.empty()) return Outcome::OfArgument(WriteFile(file, text));
  Print(text);
  return Outcome();
}

}  // namespace

Outcome RunSimulate(const CommonArgs& common, const SimulateArgs& args) {
  OfflinePlan offline;
  if (args.bytes && args.draw_file.empty() && !common.json) {
    return Outcome(ExitCode::kUsage, "--bytes: add --json or --draw, which show them");
  }
  if (Outcome loaded = LoadOffline(args.offline, &offline); !loaded.ok()) return loaded;
  WarnOfFindings(args.offline.file, offline);
  SimulationRequest request;
  request.options.executions = args.executions;
  request.options.in_flight = args.in_flight;
  request.options.end_barrier = args.end_barrier;
  request.draw_file = args.draw_file;
  request.json = common.json;
  request.bytes = args.bytes;
  return SimulateAndPrint(offline, request);
}

Outcome RunVerify(const CommonArgs& common, const VerifyArgs& args) {
  OfflinePlan offline;
  if (Outcome loaded = LoadOffline(args.offline, &offline); !loaded.ok()) return loaded;
  const Plan& plan = offline.plan;
  const std::vector<std::string> findings = PlanFindings(plan);
  if (common.json) {
    ordered_json list = ordered_json::array();
    for (const std::string& f : findings) {
      const size_t blank = f.find(' ');
      list.push_back({{"rule", f.substr(0, blank)}, {"text", blank == std::string::npos ? "" : f.substr(blank + 1)}});
    }
    PrintJson({{"graph", plan.graph}, {"plan_hash", plan.hash}, {"ops", plan.ops.size()}, {"workers", plan.workers.size()},
               {"ok", findings.empty()}, {"findings", list}});
  }
  if (!findings.empty()) {
    std::string text = absl::StrCat(args.offline.file, ": plan of graph \"", plan.graph, "\" is refused:");
    for (const std::string& f : findings) absl::StrAppend(&text, "\n", f);
    return Outcome(ExitCode::kInvalidGraph, text);
  }
  if (!common.json) {
    Print(absl::StrCat("graph \"", plan.graph, "\", plan ", plan.hash, ": ", plan.ops.size(), " ops on ", plan.workers.size(),
                       plan.workers.size() == 1 ? " worker" : " workers", " are good\n", kRules, "\n"));
  }
  return Outcome();
}

Outcome RunDraw(const CommonArgs& common, const DrawArgs& args) {
  OfflinePlan offline;
  if (Outcome loaded = LoadOffline(args.offline, &offline); !loaded.ok()) return loaded;
  WarnOfFindings(args.offline.file, offline);
  const bool dot = args.format == "dot";
  std::string text;
  if (args.what == "graph" || (args.what.empty() && offline.compiled)) {
    const GraphView view = ViewOf(offline.plan);
    text = dot ? GraphToDot(view) : GraphToSvg(view);
  } else if (dot) {
    text = PlanToDot(offline.plan);
  } else {
    SimOptions options;
    options.executions = args.executions;
    options.in_flight = args.in_flight;
    const auto result = Simulate(offline.plan, offline.costs, options);
    if (!result.ok()) return Outcome(ExitCode::kInvalidGraph, std::string(result.status().message()));
    PlanPictureOptions picture;
    picture.bytes = true;
    text = PlanPicture(offline.plan, *result, "plan.svg", picture);
  }
  if (!common.json) return WriteOrPrint(text, args.output_file);
  if (!args.output_file.empty()) {
    if (Outcome written = WriteOrPrint(text, args.output_file); !written.ok()) return written;
    PrintJson({{"graph", offline.plan.graph}, {"plan_hash", offline.plan.hash}, {"file", args.output_file}});
  } else {
    PrintJson({{"graph", offline.plan.graph}, {"plan_hash", offline.plan.hash}, {args.format, text}});
  }
  return Outcome();
}

}  // namespace weft
