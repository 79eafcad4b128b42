#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/execute.h"
#include "client/cli/graph_file.h"
#include "client/cli/interrupt.h"
#include "client/cli/temporary_cluster.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "driver/plan/compiler.h"
#include "driver/simulate/cost_file.h"
#include "driver/simulate/measured_costs.h"

namespace weft {
namespace {

constexpr int64_t kDefaultExecutions = 20;

// Workers that a cluster of w0, w1, ... must have for this graph.
absl::StatusOr<int> WorkersNeeded(const v1::Graph& graph) {
  int needed = 1;
  for (const ClusterWorker& w : ClusterFromGraph(graph).workers) {
    int number = 0;
    if (w.name.size() < 2 || w.name[0] != 'w' || !absl::SimpleAtoi(w.name.substr(1), &number) || number < 0 || number > 1023 ||
        w.name != absl::StrCat("w", number)) {
      return absl::InvalidArgumentError(absl::StrCat("the graph names worker \"", w.name,
                                                     "\", and a cluster for this measurement would have w0, w1, ...: measure on your own, with "
                                                     "--address or --cluster"));
    }
    needed = std::max(needed, number + 1);
  }
  return needed;
}

// From compiling to the costs; the graph is torn down whatever happens.
absl::StatusOr<MeasuredCosts> Measure(Client* client, const v1::Graph& graph, const ProfileArgs& args, InputSet* inputs, Outcome* failed) {
  Client::CompileOptions options;
  options.trace = true;
  WEFT_RETURN_IF_ERROR(client->Compile(graph, options).status());
  const auto measured = [&]() -> absl::StatusOr<MeasuredCosts> {
    WEFT_ASSIGN_OR_RETURN(auto session, client->OpenSession(SessionFor(graph.name(), args.execute)));
    nlohmann::ordered_json quiet;
    *failed = ExecuteAll(session.get(), AskThrough(client), graph.name(), args.execute, inputs, /*json=*/true, &quiet);
    session.reset();
    if (!failed->ok()) return absl::FailedPreconditionError(failed->message());
    WEFT_ASSIGN_OR_RETURN(const v1::Plan proto, client->GetPlan(graph.name()));
    WEFT_ASSIGN_OR_RETURN(const Plan plan, PlanFromProto(proto));
    WEFT_ASSIGN_OR_RETURN(const std::vector<v1::TraceTrack> tracks, client->GetTrace(graph.name(), 0));
    return CostsFromTrace(plan, tracks);
  }();
  // By a connection of its own, which Ctrl-C has not cancelled.
  auto fresh = client->Reconnect();
  const absl::Status torn = fresh.ok() ? (*fresh)->Teardown(graph.name(), 5) : fresh.status();
  WEFT_RETURN_IF_ERROR(measured.status());
  WEFT_RETURN_IF_ERROR(torn);
  return measured;
}

}  // namespace

Outcome RunProfile(const CommonArgs& common, const ProfileArgs& given) {
  ProfileArgs args = given;
  if (!args.execute.repeat.has_value() && args.execute.inputs_each.empty()) args.execute.repeat = kDefaultExecutions;
  v1::Graph graph;
  if (Outcome read = ReadGraph(args.graph_file, args.overlap, &graph); !read.ok()) return read;
  auto inputs = InputSet::Load(args.execute.inputs, args.execute.inputs_each, args.execute.repeat, {graph.input().begin(), graph.input().end()});
  if (!inputs.ok()) return Outcome::OfArgument(inputs.status());
  // Before all the work, not after it.
  if (!args.output_file.empty()) {
    if (const absl::Status s = CheckCanWrite(args.output_file); !s.ok()) return Outcome::OfArgument(s);
  }
  CommonArgs where = common;
  std::unique_ptr<TemporaryCluster> cluster;
  const char* env = getenv("WEFT_ADDRESS");
  if (common.address.empty() && common.cluster.empty() && (env == nullptr || *env == '\0')) {
    const auto workers = WorkersNeeded(graph);
    if (!workers.ok()) return Outcome::OfArgument(workers.status());
    auto started = TemporaryCluster::Start(*workers, common.token_file);
    if (!started.ok()) return Outcome::Of(started.status());
    cluster = *std::move(started);
    where.address = cluster->address();
  }
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(where, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  // Beside a graph of that name which may be there.
  const std::string name = graph.name();
  graph.set_name(absl::StrCat(name.substr(0, 40), "-profile-", getpid()));
  Outcome failed;
  auto measured = Measure(client.get(), graph, args, &*inputs, &failed);
  if (!failed.ok()) return failed;
  if (!measured.ok()) return Outcome::Of(measured.status());
  v1::Costs& costs = measured->costs;
  costs.set_graph(name);
  const std::string text = CostsToText(costs, absl::StrCat("Measured on ", measured->executions, " executions; medians, in seconds."));
  if (!args.output_file.empty()) {
    if (const absl::Status s = WriteFile(args.output_file, text); !s.ok()) return Outcome::OfArgument(s);
  }
  if (common.json) {
    PrintJson({{"graph", name},
               {"executions", measured->executions},
               {"nodes", costs.node_size()},
               {"edges", costs.edge_size()},
               {"collectives", costs.collective_size()},
               {"file", args.output_file.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(args.output_file)},
               {"costs", args.output_file.empty() ? nlohmann::ordered_json(text) : nlohmann::ordered_json()}});
  } else if (args.output_file.empty()) {
    Print(text);
  } else {
    Print(absl::StrCat(args.output_file, ": costs of ", costs.node_size(), " nodes, ", costs.edge_size(), " edges and ", costs.collective_size(),
                       " collectives, measured on ", measured->executions, " executions\n"));
  }
  return Outcome();
}

Outcome RunReplan(const CommonArgs& common, const ReplanArgs& args) {
  if (args.measure && !args.costs_file.empty()) {
    return Outcome::OfArgument(absl::InvalidArgumentError("--measure and --costs contradict each other: give one of them"));
  }
  Client::ReplanOptions options;
  options.executions = args.executions;
  options.timeout_s = args.timeout_s;
  if (!args.costs_file.empty()) {
    const auto costs = ReadCostFile(args.costs_file);
    if (!costs.ok()) return Outcome::OfArgument(costs.status());
    options.costs = costs->SerializeAsString();
  }
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  const auto reply = client->Replan(args.graph, options);
  if (!reply.ok()) return OfCosts(reply.status(), args.costs_file);
  if (common.json) {
    const auto measured = [](double s, int n) { return n > 0 ? nlohmann::ordered_json(s) : nlohmann::ordered_json(); };
    PrintJson({{"graph", args.graph},
               {"old_plan", reply->old_plan()},
               {"new_plan", reply->new_plan()},
               {"kept_plan", reply->kept_plan()},
               {"old_predicted_s", reply->old_predicted_s()},
               {"new_predicted_s", reply->new_predicted_s()},
               {"old_measured_s", measured(reply->old_measured_s(), reply->old_executions())},
               {"new_measured_s", measured(reply->new_measured_s(), reply->new_executions())},
               {"old_executions", reply->old_executions()},
               {"new_executions", reply->new_executions()},
               {"swapped_at", reply->swapped_at()},
               {"reason", reply->reason()}});
    return Outcome();
  }
  std::vector<std::vector<std::string>> rows = {{"PLAN", "PREDICTED", "MEASURED", "EXECUTIONS", ""}};
  const auto row = [&](const std::string& plan, double predicted, double measured, int executions, bool kept) {
    rows.push_back({plan, FormatSeconds(predicted), executions > 0 ? FormatSeconds(measured) : "-", absl::StrCat(executions), kept ? "runs" : ""});
  };
  const bool same = reply->new_plan() == reply->old_plan();
  row(reply->old_plan(), reply->old_predicted_s(), reply->old_measured_s(), reply->old_executions(), reply->kept_plan() == reply->old_plan());
  if (!same) {
    row(reply->new_plan(), reply->new_predicted_s(), reply->new_measured_s(), reply->new_executions(), reply->kept_plan() == reply->new_plan());
  }
  Print(absl::StrCat("graph \"", args.graph, "\", seconds per execution:\n", Table(rows),
                     reply->reason().empty() ? "" : absl::StrCat("kept as it was: ", reply->reason(), "\n")));
  return Outcome();
}

}  // namespace weft
