#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/execute.h"
#include "client/cli/graph_file.h"
#include "client/cli/interrupt.h"
#include "client/cli/picture.h"
#include "client/cli/progress.h"
#include "client/cli/simulation.h"
#include "common/base/parse.h"
#include "common/plan/plan.h"
#include "driver/simulate/cost_file.h"
#include "driver/simulate/predict.h"

namespace weft {
namespace {

// How long executions of a graph that `weft run` made may take to finish at its end: after a good run none is left, after a deadline or
// Ctrl-C nobody wants them.
constexpr double kDrainAfterSuccessS = 5;
constexpr double kDrainAfterFailureS = 0.2;
constexpr int64_t kMostPredictedOps = 20'000;

std::string Describe(const v1::CompileReply& reply) {
  return absl::StrCat("graph \"", reply.graph(), "\": ", reply.ops(), " ops on ", reply.workers(),
                      reply.workers() == 1 ? " worker" : " workers", ", plan ", reply.plan_hash(), "; compiled in ",
                      FormatSeconds(reply.compile_s()), ", connected in ", FormatSeconds(reply.bootstrap_s()), "\n");
}

nlohmann::ordered_json ToJson(const v1::CompileReply& reply) {
  nlohmann::ordered_json json = {{"graph", reply.graph()},         {"plan_hash", reply.plan_hash()}, {"workers", reply.workers()},
                                 {"ops", reply.ops()},             {"compile_s", reply.compile_s()}, {"bootstrap_s", reply.bootstrap_s()}};
  json["peak_bytes"] = std::vector<uint64_t>(reply.peak_bytes().begin(), reply.peak_bytes().end());
  json["inputs"] = nlohmann::ordered_json::array();
  for (const v1::Input& input : reply.inputs()) {
    json["inputs"].push_back({{"name", input.name()}, {"dtype", v1::DType_Name(input.dtype())}, {"shape", input.shape()}});
  }
  json["warnings"] = std::vector<std::string>(reply.warning().begin(), reply.warning().end());
  json["outputs"] = nlohmann::ordered_json::array();
  for (const v1::Output& output : reply.outputs()) json["outputs"].push_back(output.name());
  return json;
}

// Cancels the client's calls on Ctrl-C.
class CancelOnInterrupt {
 public:
  explicit CancelOnInterrupt(Client* client) : scope_([client] { client->CancelAll(); }) {}

 private:
  Interrupt::Scope scope_;
};

Outcome Compile(Client* client, const v1::Graph& graph, bool trace, const std::optional<v1::Costs>& costs, const std::string& costs_file,
                v1::CompileReply* reply) {
  Client::CompileOptions options;
  if (costs.has_value()) options.costs = costs->SerializeAsString();
  options.trace = trace;
  // Each of the two bootstrap phases has the graph's own limit; compiling has ours.
  options.timeout_s += 2 * (graph.options().has_bootstrap_timeout_s() ? graph.options().bootstrap_timeout_s() : 30);
  auto compiled = client->Compile(graph, options);
  if (absl::IsAlreadyExists(compiled.status())) {
    return Outcome(ExitCode::kInvalidGraph, absl::StrCat(std::string(compiled.status().message()), "\nremove it with `weft teardown ",
                                                         graph.name(), "`, or execute it with `weft execute ", graph.name(), "`"));
  }
  if (!compiled.ok()) return OfCosts(compiled.status(), costs_file);
  *reply = *std::move(compiled);
  for (const std::string& w : reply->warning()) Complain(absl::StrCat("warning: graph \"", reply->graph(), "\": ", w));
  return Outcome();
}

// Empty without a file.
Outcome ReadCosts(const std::string& file, std::optional<v1::Costs>* costs) {
  if (file.empty()) return Outcome();
  auto read = ReadCostFile(file);
  if (!read.ok()) return Outcome::OfArgument(read.status());
  *costs = *std::move(read);
  return Outcome();
}

// What the driver's plan is predicted to do with as many in flight as it allows; null when nothing of it is known to take time, or the plan is
// larger than what may be simulated on the way to a run.
nlohmann::ordered_json Predicted(Client* client, const v1::CompileReply& reply, const std::optional<v1::Costs>& costs, std::string* text) {
  if (reply.ops() > kMostPredictedOps) return nullptr;
  const auto proto = client->GetPlan(reply.graph());
  if (!proto.ok()) return nullptr;
  const auto plan = PlanFromProto(*proto);
  if (!plan.ok()) return nullptr;
  const auto p = Predict(*plan, costs.has_value() ? MakeCostModel(*costs, {}) : CostModel::Default(), {});
  if (!p.ok() || p->makespan == 0) return nullptr;
  *text = PredictionText(*p);
  return PredictionJson(*p);
}

// Runs the graph, and writes its trace if that is wanted. The session is gone when it returns.
Outcome ExecuteCompiled(Client* client, const std::string& graph, const ExecuteArgs& args, InputSet* inputs, bool json,
                        nlohmann::ordered_json* report) {
  auto session = client->OpenSession(SessionFor(graph, args));
  if (!session.ok()) return Outcome::Of(session.status());
  return ExecuteAll(session->get(), AskThrough(client), graph, args, inputs, json, report);
}

// By a connection of its own: the one in use may have been cancelled, and a teardown is wanted all the same.
absl::Status TearDownAnew(const Client& used, const std::string& graph, double drain_s) {
  auto client = used.Reconnect();
  if (!client.ok()) return client.status();
  return (*client)->Teardown(graph, drain_s);
}

}  // namespace

Outcome RunRun(const CommonArgs& common, const RunArgs& args) {
  v1::Graph graph;
  if (Outcome read = ReadGraph(args.graph_file, args.overlap, &graph); !read.ok()) return read;
  if (args.execute.in_flight > 0) graph.mutable_options()->set_max_in_flight(args.execute.in_flight);
  auto inputs = InputSet::Load(args.execute.inputs, args.execute.inputs_each, args.execute.repeat,
                               {graph.input().begin(), graph.input().end()});
  if (!inputs.ok()) return Outcome::OfArgument(inputs.status());

  std::optional<v1::Costs> costs;
  if (Outcome read = ReadCosts(args.costs_file, &costs); !read.ok()) return read;
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const CancelOnInterrupt cancel(client.get());
  v1::CompileReply reply;
  {
    ProgressLine progress;
    progress.Update(absl::StrCat(graph.name(), ": compiling"));
    const bool trace = args.keep || !args.trace_file.empty();
    if (Outcome compiled = Compile(client.get(), graph, trace, costs, args.costs_file, &reply); !compiled.ok()) return compiled;
  }
  nlohmann::ordered_json report = ToJson(reply);
  std::string predicted;
  report["predicted"] = Predicted(client.get(), reply, costs, &predicted);
  if (!common.json) Print(Describe(reply) + predicted);

  Outcome outcome = ExecuteCompiled(client.get(), graph.name(), args.execute, &*inputs, common.json, &report);
  if (!args.trace_file.empty() && !Interrupt::Requested()) {
    auto written = WriteTrace(client.get(), graph.name(), 0, args.trace_file);
    if (!written.ok() && outcome.ok()) outcome = written.status().code() == absl::StatusCode::kInvalidArgument
                                                     ? Outcome::OfArgument(written.status())
                                                     : Outcome::Of(written.status());
    if (written.ok()) report["trace"] = args.trace_file;
    if (written.ok() && !common.json) Print(absl::StrCat("timeline: ", args.trace_file, "\n"));
  }
  if (!args.keep) {
    const absl::Status torn = TearDownAnew(*client, graph.name(), outcome.ok() ? kDrainAfterSuccessS : kDrainAfterFailureS);
    if (!torn.ok() && !absl::IsNotFound(torn) && outcome.ok()) outcome = Outcome::Of(torn);
  }
  if (common.json) PrintJson(report);
  return outcome;
}

Outcome RunCompile(const CommonArgs& common, const CompileArgs& args) {
  v1::Graph graph;
  if (Outcome read = ReadGraph(args.graph_file, args.overlap, &graph); !read.ok()) return read;
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const CancelOnInterrupt cancel(client.get());
  std::optional<v1::Costs> costs;
  if (Outcome read = ReadCosts(args.costs_file, &costs); !read.ok()) return read;
  v1::CompileReply reply;
  if (Outcome compiled = Compile(client.get(), graph, args.trace, costs, args.costs_file, &reply); !compiled.ok()) return compiled;
  if (common.json) {
    PrintJson(ToJson(reply));
  } else {
    Print(Describe(reply));
  }
  return Outcome();
}

Outcome RunExecute(const CommonArgs& common, const ExecuteNamedArgs& args) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const CancelOnInterrupt cancel(client.get());
  auto session = client->OpenSession(SessionFor(args.graph, args.execute));
  if (!session.ok()) return Outcome::Of(session.status());
  auto inputs = InputSet::Load(args.execute.inputs, args.execute.inputs_each, args.execute.repeat, (*session)->inputs());
  if (!inputs.ok()) return Outcome::OfArgument(inputs.status());
  nlohmann::ordered_json report = {{"graph", args.graph}};
  const Outcome outcome = ExecuteAll(session->get(), AskThrough(client.get()), args.graph, args.execute, &*inputs, common.json, &report);
  if (common.json) PrintJson(report);
  return outcome;
}

Outcome RunTeardown(const CommonArgs& common, const TeardownArgs& args) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const CancelOnInterrupt cancel(client.get());
  const absl::Status status = client->Teardown(args.graph, args.drain_s);
  if (!status.ok()) return Outcome::Of(status);
  if (common.json) {
    PrintJson({{"graph", args.graph}});
  } else {
    Print(absl::StrCat("graph \"", args.graph, "\" is gone\n"));
  }
  return Outcome();
}

}  // namespace weft
