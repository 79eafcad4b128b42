#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/plan_file.h"
#include "client/cli/plan_findings.h"
#include "client/cli/simulation.h"
#include "common/base/parse.h"
#include "common/plan/plan_text.h"

namespace weft {
namespace {

absl::StatusOr<std::string> PlanInForm(const Plan& plan, const std::string& format) {
  if (format == "text") return PlanToText(plan);
  if (format == "wire") return PlanToProto(plan).SerializeAsString();
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(PlanToProto(plan), &text, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("the plan has no JSON form: ", std::string(status.message())));
  return text;
}

}  // namespace

Outcome RunPlan(const CommonArgs& common, const PlanArgs& args) {
  const bool simulates = args.simulate > 0 || !args.draw_file.empty();
  if (args.in_flight > 0 && !simulates) return Outcome(ExitCode::kUsage, "--in-flight is of a simulation: add --simulate or --draw");
  if (!args.output_file.empty() && simulates) {
    return Outcome(ExitCode::kUsage, "-o takes the plan, and --simulate and --draw show times instead: give one of the two");
  }
  OfflinePlan offline;
  if (Outcome loaded = LoadOffline(args.offline, &offline); !loaded.ok()) return loaded;
  if (args.timing) {
    for (const auto& [pass, seconds] : offline.times.passes) Complain(absl::StrFormat("%-10s %s", pass, FormatSeconds(seconds)));
  }
  const bool json = common.json && args.format == "text";
  WarnOfFindings(args.offline.file, offline);
  if (!simulates) {
    const auto text = PlanInForm(offline.plan, json ? "json" : args.format);
    if (!text.ok()) return Outcome(ExitCode::kInvalidGraph, std::string(text.status().message()));
    if (!args.output_file.empty()) return Outcome::OfArgument(WriteFile(args.output_file, *text));
    Print(*text);
    return Outcome();
  }
  SimulationRequest request;
  // A picture without a stated number shows what it can show.
  request.options.executions = args.simulate > 0 ? args.simulate : 6;
  request.options.in_flight = args.in_flight;
  request.draw_file = args.draw_file;
  request.json = json || args.format == "json";
  return SimulateAndPrint(offline, request);
}

}  // namespace weft
