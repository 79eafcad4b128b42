#include "client/cli/plan_file.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/console.h"
#include "client/cli/graph_file.h"
#include "client/cli/worker_list.h"
#include "common/base/status_macros.h"
#include "common/classes/signature.h"
#include "common/plan/plan_text.h"
#include "driver/graph/parse.h"
#include "driver/graph/warnings.h"
#include "driver/simulate/cluster_file.h"
#include "driver/simulate/cost_file.h"

namespace weft {
namespace {

enum class Form { kGraph, kPlanText, kPlanJson, kPlanWire };

// The forms of a plan begin with what no graph begins with: the word of its text form, the number of its version.
Form FormOf(const std::string& bytes) {
  if (!bytes.empty() && bytes[0] == '\x08') return Form::kPlanWire;
  size_t at = 0;
  while (at < bytes.size()) {
    at = bytes.find_first_not_of(" \t\r\n", at);
    if (at == std::string::npos || bytes[at] != '#') break;
    at = bytes.find('\n', at);
  }
  if (at == std::string::npos || at >= bytes.size()) return Form::kGraph;
  const absl::string_view rest = absl::string_view(bytes).substr(at);
  if (absl::StartsWith(rest, "weft-plan")) return Form::kPlanText;
  if (rest[0] != '{') return Form::kGraph;
  const size_t key = rest.find_first_not_of(" \t\r\n", 1);
  return key != absl::string_view::npos && absl::StartsWith(rest.substr(key), "\"version\"") ? Form::kPlanJson : Form::kGraph;
}

absl::StatusOr<Plan> ReadPlan(const std::string& bytes, Form form) {
  if (form == Form::kPlanText) return PlanFromText(bytes);
  const google::protobuf::LogSilencer silent;  // it would print what is in a status here
  v1::Plan proto;
  if (form == Form::kPlanJson) {
    const auto status = google::protobuf::util::JsonStringToMessage(bytes, &proto);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("not a plan in JSON: ", std::string(status.message())));
  } else if (!proto.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("begins like a plan in wire form, but is none: it may be cut short");
  }
  return PlanFromProto(proto);
}

bool IsAbsent(const absl::Status& status, const std::string& file) {
  std::error_code ec;
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) || std::filesystem::is_directory(file, ec);
}

Outcome InFile(const std::string& file, const absl::Status& status) {
  return Outcome(ExitCode::kInvalidGraph, absl::StrCat(file, ":\n", std::string(status.message())));
}

Outcome CompileGraph(const OfflineArgs& args, const std::string& text, const std::optional<Cluster>& given, const CostModel& costs,
                     OfflinePlan* out) {
  auto graph = ParseGraph(args.file, text);
  if (!graph.ok()) return Outcome(ExitCode::kInvalidGraph, std::string(graph.status().message()));
  if (args.overlap) graph->mutable_options()->set_overlap(*args.overlap ? v1::ON : v1::OFF);
  Cluster cluster = given.has_value() ? *given : ClusterFromGraph(*graph);
  if (!args.workers.empty()) {
    if (given.has_value()) return Outcome(ExitCode::kUsage, "--workers: the workers are those of --cluster: give one of the two");
    auto workers = ParseWorkerList(args.workers);
    if (!workers.ok()) return Outcome::OfArgument(workers.status());
    cluster.workers.clear();
    for (const ListedWorker& w : *workers) cluster.workers.push_back({w.name, w.host.empty() ? cluster.client_host_id : w.host, "cpu"});
  }
  auto plan = Compile(*graph, ClassTable::Std(), cluster, &out->times, costs);
  if (!plan.ok()) return InFile(args.file, plan.status());
  for (const std::string& w : GraphWarnings(*graph)) Complain(absl::StrCat("warning: ", args.file, ": ", w));
  out->plan = *std::move(plan);
  out->compiled = true;
  return Outcome();
}

}  // namespace

Outcome LoadOffline(const OfflineArgs& args, OfflinePlan* out) {
  std::optional<Cluster> cluster;
  if (!args.cluster_file.empty()) {
    auto read = ReadClusterFile(args.cluster_file);
    if (!read.ok()) return Outcome::OfArgument(read.status());
    cluster = *std::move(read);
  }
  const std::vector<ClusterLink> links = cluster.has_value() ? cluster->links : std::vector<ClusterLink>();
  std::optional<v1::Costs> costs;
  if (!args.costs_file.empty()) {
    auto read = ReadCostFile(args.costs_file);
    if (!read.ok()) return Outcome::OfArgument(read.status());
    costs = *std::move(read);
    out->costs = MakeCostModel(*costs, links);
  } else if (!links.empty()) {
    out->costs = MakeCostModel(links);
  }

  const auto bytes = ReadFileBytes(args.file, "graph or plan");
  if (!bytes.ok()) {
    return Outcome(IsAbsent(bytes.status(), args.file) ? ExitCode::kUsage : ExitCode::kInvalidGraph, std::string(bytes.status().message()));
  }
  const Form form = FormOf(*bytes);
  if (form == Form::kGraph) {
    if (Outcome compiled = CompileGraph(args, *bytes, cluster, out->costs, out); !compiled.ok()) return compiled;
  } else {
    if (args.overlap) return Outcome(ExitCode::kUsage, absl::StrCat("--overlap: ", args.file, " is a plan, which is made already; name its graph"));
    if (!args.workers.empty()) return Outcome(ExitCode::kUsage, absl::StrCat("--workers: ", args.file, " is a plan, which has its workers; name its graph"));
    auto plan = ReadPlan(*bytes, form);
    if (!plan.ok()) return InFile(args.file, plan.status());
    if (plan->part_of >= 0) return InFile(args.file, absl::InvalidArgumentError("this is the part of one worker: the whole plan is needed"));
    if (cluster.has_value()) {
      if (const absl::Status fits = CheckCluster(*cluster, *plan); !fits.ok()) return InFile(args.file, fits);
    }
    out->plan = *std::move(plan);
  }
  if (costs.has_value()) return Outcome::OfArgument(CheckCosts(args.costs_file, *costs, out->plan));
  return Outcome();
}

}  // namespace weft
