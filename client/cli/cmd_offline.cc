#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/plan_file.h"
#include "client/cli/simulation.h"
#include "common/plan/plan_text.h"
#include "driver/draw/graph_view.h"
#include "driver/draw/plan_picture.h"
#include "driver/plan/verify.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr char kRules[] =
    "V1 transfers in one order at both ends, V2 collectives in one order, V3 one launch order, V4 live for any number of executions, "
    "V5 no buffer overwritten, V6 bytes within limits, V7 well formed";

// "V4 these ops ...\n     w0: ..." and so on, one a finding.
std::vector<std::string> SplitFindings(absl::string_view text) {
  std::vector<std::string> out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!out.empty() && !line.empty() && line[0] == ' ') {
      absl::StrAppend(&out.back(), "\n", line);
    } else {
      out.emplace_back(line);
    }
  }
  if (!out.empty()) out.erase(out.begin());  // "plan of graph ... is refused:"
  return out;
}

// Of a plan that states its hash, and is not what had it.
std::string WrongHash(const Plan& plan) {
  const std::string hash = HashPlan(plan);
  if (plan.hash.empty() || plan.hash == hash) return "";
  return absl::StrCat("HASH the plan states hash ", plan.hash, ", what it says has ", hash, ": after an edit by hand, write \"hash ", hash,
                      "\" or leave the line out");
}

Outcome WriteOrPrint(const std::string& text, const std::string& file) {
  if (!file.empty()) return Outcome::OfArgument(WriteFile(file, text));
  Print(text);
  return Outcome();
}

}  // namespace

Outcome RunSimulate(const CommonArgs& common, const SimulateArgs& args) {
  OfflinePlan offline;
  if (Outcome loaded = LoadOffline(args.offline, &offline); !loaded.ok()) return loaded;
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
  const absl::Status status = Verify(plan);
  std::vector<std::string> findings = status.ok() ? std::vector<std::string>() : SplitFindings(status.message());
  const std::string hash = WrongHash(plan);
  if (!hash.empty()) findings.push_back(hash);
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
