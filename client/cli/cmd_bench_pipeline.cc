// `weft bench pipeline`.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/execute.h"
#include "client/cli/interrupt.h"
#include "client/cli/pipeline_request.h"
#include "client/cli/progress.h"
#include "client/cli/telling_wait.h"
#include "client/cli/temporary_cluster.h"
#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "driver/schedules/graph.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

struct Numbers {
  double predicted = 0;  // makespan of one execution
  std::vector<double> measured;
  // Seconds an execution with several in flight; 0 unless asked for.
  double predicted_period = 0, measured_period = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

absl::StatusOr<ExecutionResult> Wait(TellingWait* wait, ClientSession::Handle handle, ProgressLine* progress, size_t done, int total) {
  // Nothing ends an execution that is stuck; it is told, and Ctrl-C ends the wait.
  WEFT_ASSIGN_OR_RETURN(ExecutionResult result, wait->Wait(handle, std::numeric_limits<double>::infinity(), progress, [&](double) {
    return absl::StrCat(done, " of ", total, " executions done");
  }));
  for (const auto& [name, error] : result.errors) {
    return absl::FailedPreconditionError(
        absl::StrCat("output \"", name, "\" of execution ", result.execution, " on ", error.worker(), ": ", error.message()));
  }
  return result;
}

// One execution at a time, each from idle workers.
absl::Status MeasureOne(ClientSession* session, TellingWait* wait, int executions, Numbers* numbers) {
  ProgressLine progress;
  // The first one finds cold caches.
  for (int i = 0; i <= executions; ++i) {
    WEFT_ASSIGN_OR_RETURN(const ClientSession::Handle handle, session->Submit({}));
    WEFT_ASSIGN_OR_RETURN(const ExecutionResult result, Wait(wait, handle, &progress, i, executions + 1));
    if (i > 0) numbers->measured.push_back(static_cast<double>(result.done_ns - result.admitted_ns) * 1e-9);
  }
  return absl::OkStatus();
}

absl::Status MeasureMany(ClientSession* session, TellingWait* wait, int executions, Numbers* numbers) {
  std::vector<ClientSession::Handle> handles;
  for (int i = 0; i < executions; ++i) {
    WEFT_ASSIGN_OR_RETURN(const ClientSession::Handle handle, session->Submit({}));
    handles.push_back(handle);
  }
  std::vector<int64_t> ends;
  ProgressLine progress;
  for (const ClientSession::Handle handle : handles) {
    WEFT_ASSIGN_OR_RETURN(const ExecutionResult result, Wait(wait, handle, &progress, ends.size(), executions));
    ends.push_back(result.done_ns);
  }
  numbers->measured_period = SecondsPerExecution(ends);
  return absl::OkStatus();
}

absl::Status Predict(Client* client, const std::string& name, int executions, int in_flight, Numbers* numbers) {
  WEFT_ASSIGN_OR_RETURN(const v1::Plan proto, client->GetPlan(name));
  WEFT_ASSIGN_OR_RETURN(const Plan plan, PlanFromProto(proto));
  SimOptions options;
  options.in_flight = 1;
  options.record = false;
  WEFT_ASSIGN_OR_RETURN(const SimResult one, Simulate(plan, CostModel::Default(), options));
  numbers->predicted = ToSeconds(one.makespan);
  if (in_flight == 1) return absl::OkStatus();
  options.in_flight = in_flight;
  options.executions = executions;
  WEFT_ASSIGN_OR_RETURN(const SimResult many, Simulate(plan, CostModel::Default(), options));
  numbers->predicted_period = many.seconds_per_execution;
  return absl::OkStatus();
}

absl::StatusOr<Numbers> RunGraph(Client* client, v1::Graph graph, const BenchPipelineArgs& args) {
  const std::string name = absl::StrCat("bench-pipeline-", getpid());
  const int in_flight = args.pipeline.in_flight, many = args.executions + in_flight;
  graph.set_name(name);
  graph.mutable_options()->set_max_in_flight(in_flight);
  Client::CompileOptions options;
  options.trace = false;
  WEFT_RETURN_IF_ERROR(client->Compile(graph, options).status());
  Numbers numbers;
  const absl::Status status = [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(Predict(client, name, many, in_flight, &numbers));
    SessionOptions session_options;
    session_options.graph = name;
    session_options.submit = v1::QUEUE;
    session_options.discard_outputs = true;
    WEFT_ASSIGN_OR_RETURN(const auto session, client->OpenSession(session_options));
    TellingWait wait(session.get(), name, AskThrough(client));
    WEFT_RETURN_IF_ERROR(MeasureOne(session.get(), &wait, args.executions, &numbers));
    return in_flight == 1 ? absl::OkStatus() : MeasureMany(session.get(), &wait, many, &numbers);
  }();
  // By a connection of its own, which Ctrl-C has not cancelled.
  auto fresh = client->Reconnect();
  const absl::Status torn = fresh.ok() ? (*fresh)->Teardown(name, 5) : fresh.status();
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(torn);
  return numbers;
}

void Report(bool as_json, const PipelinePlan& plan, const BenchPipelineArgs& args, const Numbers& n) {
  const double measured = Median(n.measured);
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  const double work = plan.makespan * (1 - plan.bubble_global);
  nlohmann::ordered_json json = {{"schedule", plan.schedule.name},
                                 {"stages", plan.schedule.workers},
                                 {"microbatches", plan.schedule.microbatches},
                                 {"chunks", plan.chunks},
                                 {"executions", args.executions},
                                 {"schedule_s", plan.makespan},
                                 {"predicted_s", n.predicted},
                                 {"measured_s", measured},
                                 {"ratio", ratio(measured, n.predicted)},
                                 {"measured_min_s", *std::min_element(n.measured.begin(), n.measured.end())},
                                 {"measured_max_s", *std::max_element(n.measured.begin(), n.measured.end())},
                                 {"bubble_predicted", n.predicted > 0 ? 1 - work / n.predicted : 0},
                                 {"bubble_measured", measured > 0 ? 1 - work / measured : 0},
                                 {"peak_activations", plan.peak_activations}};
  std::string more;
  if (args.pipeline.in_flight > 1) {
    json["in_flight"] = args.pipeline.in_flight;
    json["predicted_period_s"] = n.predicted_period;
    json["measured_period_s"] = n.measured_period;
    json["period_ratio"] = ratio(n.measured_period, n.predicted_period);
    more =
        absl::StrCat("with ", args.pipeline.in_flight, " in flight an execution takes ", FormatSeconds(n.measured_period), ", predicted ",
                     FormatSeconds(n.predicted_period), ": ", absl::StrFormat("%.3f", ratio(n.measured_period, n.predicted_period)), "\n");
  }
  if (as_json) {
    PrintJson(json);
    return;
  }
  Print(absl::StrCat(plan.schedule.name, ": ", plan.schedule.workers, " workers, ", plan.schedule.microbatches, " microbatches\nmeasured ",
                     FormatSeconds(measured), " (median of ", args.executions, "), predicted ", FormatSeconds(n.predicted), ": ",
                     absl::StrFormat("%.3f", ratio(measured, n.predicted)), "; by the schedule alone ", FormatSeconds(plan.makespan), "\n",
                     more));
}

}  // namespace

Outcome RunBenchPipeline(const CommonArgs& common, const BenchPipelineArgs& given) {
  BenchPipelineArgs args = given;
  if (args.pipeline.cost.empty()) args.pipeline.cost = args.pipeline.schedule == "forward-only" ? "F=10ms" : "F=10ms,I=10ms,W=10ms";
  if (args.pipeline.hop.empty()) args.pipeline.hop = "1ms";
  PipelinePlan plan;
  if (Outcome made = PlanOf(args.pipeline, &plan); !made.ok()) return made;

  CommonArgs where = common;
  std::unique_ptr<TemporaryCluster> cluster;
  const char* env = getenv("WEFT_ADDRESS");
  if (common.address.empty() && common.cluster.empty() && (env == nullptr || *env == '\0')) {
    auto started = TemporaryCluster::Start(plan.schedule.workers, common.token_file);
    if (!started.ok()) return Outcome::Of(started.status());
    cluster = *std::move(started);
    where.address = cluster->address();
  }
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(where, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  const auto numbers = RunGraph(client.get(), PipelineGraph(plan, "bench-pipeline"), args);
  if (!numbers.ok()) return Outcome::Of(numbers.status());
  Report(common.json, plan, args, *numbers);
  return Outcome();
}

}  // namespace weft
