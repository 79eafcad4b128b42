#include <unistd.h>

#include <limits>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/execute.h"
#include "client/cli/interrupt.h"
#include "client/cli/overlap_bench.h"
#include "client/cli/picture.h"
#include "client/cli/progress.h"
#include "client/cli/telling_wait.h"
#include "client/cli/temporary_cluster.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct Measured {
  double seconds = 0;
  double predicted = 0;
};

// Executes a compiled graph, all executions queued with the driver, so that no time of this client lies between them.
absl::StatusOr<double> Measure(Client* client, const std::string& graph, int executions) {
  SessionOptions options;
  options.graph = graph;
  options.submit = v1::QUEUE;
  options.discard_outputs = true;
  WEFT_ASSIGN_OR_RETURN(auto session, client->OpenSession(options));
  std::vector<ClientSession::Handle> handles;
  for (int i = 0; i < executions; ++i) {
    WEFT_ASSIGN_OR_RETURN(const ClientSession::Handle handle, session->Submit({}));
    handles.push_back(handle);
  }
  std::vector<int64_t> ends;
  ProgressLine progress;
  TellingWait wait(session.get(), graph, AskThrough(client));
  for (const ClientSession::Handle handle : handles) {
    // Nothing ends an execution that is stuck; it is told, and Ctrl-C ends the wait.
    WEFT_ASSIGN_OR_RETURN(const ExecutionResult result, wait.Wait(handle, kNoLimit, &progress, [&](double) {
      return absl::StrCat(graph, ": ", ends.size(), " of ", executions, " executions done");
    }));
    for (const auto& [name, error] : result.errors) {
      return absl::FailedPreconditionError(absl::StrCat("output \"", name, "\" of execution ", result.execution, " on ", error.worker(), ": ",
                                                        error.message()));
    }
    ends.push_back(result.done_ns);
  }
  return SecondsPerExecution(ends);
}

absl::StatusOr<double> Predict(Client* client, const std::string& graph, int executions, int in_flight) {
  WEFT_ASSIGN_OR_RETURN(const v1::Plan proto, client->GetPlan(graph));
  WEFT_ASSIGN_OR_RETURN(const Plan plan, PlanFromProto(proto));
  SimOptions options;
  options.executions = executions;
  options.in_flight = in_flight;
  options.record = false;
  WEFT_ASSIGN_OR_RETURN(const SimResult result, Simulate(plan, CostModel::Default(), options));
  return result.seconds_per_execution;
}

absl::StatusOr<Measured> RunKind(Client* client, const OverlapKind& kind, const BenchOverlapArgs& args, const std::string& trace_file) {
  const std::string name = absl::StrCat("bench-overlap-", kind.key, "-", getpid());
  Client::CompileOptions options;
  options.trace = !trace_file.empty();
  WEFT_RETURN_IF_ERROR(
      client->Compile(OverlapGraph(name, args.delay_s, args.transfer_s, kind.overlap, kind.in_flight), options).status());
  Measured measured;
  const absl::Status status = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(measured.predicted, Predict(client, name, args.executions, kind.in_flight));
    WEFT_ASSIGN_OR_RETURN(measured.seconds, Measure(client, name, args.executions));
    if (!trace_file.empty()) WEFT_RETURN_IF_ERROR(WriteTrace(client, name, 0, trace_file).status());
    return absl::OkStatus();
  }();
  // By a connection of its own, which Ctrl-C has not cancelled.
  auto fresh = client->Reconnect();
  const absl::Status torn = fresh.ok() ? (*fresh)->Teardown(name, 5) : fresh.status();
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(torn);
  return measured;
}

}  // namespace

Outcome RunBenchOverlap(const CommonArgs& common, const BenchOverlapArgs& args) {
  CommonArgs where = common;
  std::unique_ptr<TemporaryCluster> cluster;
  const char* env = getenv("WEFT_ADDRESS");
  if (common.address.empty() && common.cluster.empty() && (env == nullptr || *env == '\0')) {
    auto started = TemporaryCluster::Start(4, common.token_file);
    if (!started.ok()) return Outcome::Of(started.status());
    cluster = *std::move(started);
    where.address = cluster->address();
  }
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(where, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });

  const double bound = OverlapBound(args.delay_s, args.transfer_s);
  const OverlapKind kinds[] = {{"off", false, 1}, {"on", true, 1}, {"on_inflight", true, args.in_flight}};
  nlohmann::ordered_json json = {{"executions", args.executions}, {"in_flight", args.in_flight}, {"delay_s", args.delay_s},
                                 {"transfer_s", args.transfer_s}};
  nlohmann::ordered_json predicted_json, ratios;
  std::vector<std::vector<std::string>> rows = {{"OVERLAP", "IN FLIGHT", "MEASURED", "PREDICTED", "MEASURED/PREDICTED", "GAIN OVER OFF"}};
  double off = 0;
  for (const OverlapKind& kind : kinds) {
    auto measured = RunKind(client.get(), kind, args, kind.in_flight == args.in_flight && kind.overlap ? args.trace_file : "");
    if (!measured.ok()) {
      const Outcome outcome = Outcome::Of(measured.status());
      return Outcome(outcome.code(), absl::StrCat("overlap ", kind.key, ": ", outcome.message()));
    }
    if (!kind.overlap) off = measured->seconds;
    const double to_predicted = measured->predicted > 0 ? measured->seconds / measured->predicted : 0;
    const double gain = measured->seconds > 0 ? off / measured->seconds : 0;
    json[absl::StrCat(kind.key, "_s")] = measured->seconds;
    predicted_json[absl::StrCat("predicted_", kind.key, "_s")] = measured->predicted;
    ratios[absl::StrCat(kind.key, "_to_predicted")] = to_predicted;
    if (kind.overlap) ratios[absl::StrCat("off_to_", kind.key)] = gain;
    if (kind.overlap && bound > 0) ratios[absl::StrCat(kind.key, "_to_bound")] = measured->seconds / bound;
    rows.push_back({kind.overlap ? "on" : "off", absl::StrCat(kind.in_flight), FormatSeconds(measured->seconds),
                    FormatSeconds(measured->predicted), absl::StrFormat("%.3f", to_predicted), absl::StrFormat("%.2fx", gain)});
  }
  json.update(predicted_json);
  json["bound_s"] = bound;
  json["ratios"] = ratios;
  if (common.json) {
    PrintJson(json);
  } else {
    Print(absl::StrCat("three transfers of ", FormatSeconds(args.transfer_s), " and three computations of ", FormatSeconds(args.delay_s),
                       " an execution, ", args.executions, " executions; seconds per execution:\n", Table(rows),
                       "no schedule is faster than ", FormatSeconds(bound), "\n"));
  }
  return Outcome();
}

}  // namespace weft
