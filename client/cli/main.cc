#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/interrupt.h"
#include "client/cli/version.h"
#include "common/base/parse.h"

namespace weft {
namespace {

Outcome RunVersion(const CommonArgs& common) {
  if (common.json) {
    PrintJson({{"version", kVersion}, {"plan_version", kPlanFormat}});
  } else {
    Print(absl::StrCat("weft ", kVersion, ", plan format ", kPlanFormat, "\n"));
  }
  return Outcome();
}

Outcome Dispatch(const ParsedArgs& parsed) {
  const CommonArgs& common = parsed.common;
  // `up` forks and takes signals itself; all others are interrupted from a thread.
  if (const auto* up = std::get_if<UpArgs>(&parsed.command)) return RunUp(common, *up);
  Interrupt::Install();
  struct Visitor {
    const CommonArgs& common;
    Outcome operator()(const UpArgs& a) const { return RunUp(common, a); }
    Outcome operator()(const DownArgs& a) const { return RunDown(common, a); }
    Outcome operator()(const RunArgs& a) const { return RunRun(common, a); }
    Outcome operator()(const CompileArgs& a) const { return RunCompile(common, a); }
    Outcome operator()(const ExecuteNamedArgs& a) const { return RunExecute(common, a); }
    Outcome operator()(const TeardownArgs& a) const { return RunTeardown(common, a); }
    Outcome operator()(const WorkersArgs&) const { return RunWorkers(common); }
    Outcome operator()(const GraphsArgs&) const { return RunGraphs(common); }
    Outcome operator()(const InspectArgs& a) const { return RunInspect(common, a); }
    Outcome operator()(const PlanArgs& a) const { return RunPlan(common, a); }
    Outcome operator()(const SimulateArgs& a) const { return RunSimulate(common, a); }
    Outcome operator()(const VerifyArgs& a) const { return RunVerify(common, a); }
    Outcome operator()(const DrawArgs& a) const { return RunDraw(common, a); }
    Outcome operator()(const PipelineArgs& a) const { return RunPipeline(common, a); }
    Outcome operator()(const TraceArgs& a) const { return RunTrace(common, a); }
    Outcome operator()(const ProfileArgs& a) const { return RunProfile(common, a); }
    Outcome operator()(const ReplanArgs& a) const { return RunReplan(common, a); }
    Outcome operator()(const BenchOverlapArgs& a) const { return RunBenchOverlap(common, a); }
    Outcome operator()(const BenchPipelineArgs& a) const { return RunBenchPipeline(common, a); }
    Outcome operator()(const DoctorArgs& a) const { return RunDoctor(common, a); }
    Outcome operator()(const VersionArgs&) const { return RunVersion(common); }
  };
  Outcome outcome = std::visit(Visitor{common}, parsed.command);
  if (Interrupt::Requested()) return Outcome(ExitCode::kInterrupted, outcome.ok() ? "interrupted" : outcome.message());
  return outcome;
}

// Of arguments that do not parse.
bool WantsJson(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json") return true;
    if (arg.rfind("--json=", 0) == 0) return ParseBool("--json", arg.substr(7)).value_or(false);
  }
  return false;
}

int Main(int argc, char** argv) {
  const auto parsed = ParseArgs(std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) {
    const std::string message(parsed.status().message());
    Complain(message);
    // As below; what else the arguments say is not known.
    if (WantsJson(argc, argv)) {
      PrintJson({{"error", message}, {"exit_code", static_cast<int>(ExitCode::kUsage)}});
      (void)FlushOutput();
    }
    return static_cast<int>(ExitCode::kUsage);
  }
  if (parsed->help) {
    Print(*parsed->help);
    return FlushOutput().ok() ? 0 : static_cast<int>(ExitCode::kExecutionFailed);
  }
  Outcome outcome = Dispatch(*parsed);
  if (!outcome.ok()) {
    Complain(outcome.message());
    // With --json, stdout is always one JSON document.
    if (parsed->common.json && !HasPrinted()) {
      PrintJson({{"error", outcome.message()}, {"exit_code", static_cast<int>(outcome.code())}});
    }
  }
  const absl::Status flushed = FlushOutput();
  if (!flushed.ok() && outcome.ok()) {
    outcome = Outcome(ExitCode::kExecutionFailed, std::string(flushed.message()));
    Complain(outcome.message());
  }
  return static_cast<int>(outcome.code());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
