#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/execute.h"
#include "client/cli/interrupt.h"
#include "client/cli/picture.h"
#include "client/cli/telling_wait.h"
#include "common/base/parse.h"
#include "common/plan/plan.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

ordered_json ToJson(const v1::GraphInfo& g) {
  ordered_json json = {{"name", g.name()},
                       {"state", g.state()},
                       {"plan_hash", g.plan_hash()},
                       {"workers", std::vector<std::string>(g.worker().begin(), g.worker().end())},
                       {"executions_admitted", g.executions_admitted()},
                       {"executions_done", g.executions_done()}};
  if (!g.error().empty()) json["error"] = g.error();
  if (!g.stalled().empty()) json["stalled"] = g.stalled();
  return json;
}

void PrintGraphs(const google::protobuf::RepeatedPtrField<v1::GraphInfo>& graphs) {
  std::vector<std::vector<std::string>> rows = {{"GRAPH", "STATE", "EXECUTIONS", "PLAN", "WORKERS"}};
  std::string troubles;
  for (const v1::GraphInfo& g : graphs) {
    rows.push_back({g.name(), absl::StrCat(g.state(), g.stalled().empty() ? "" : ", stalled"), 
                    absl::StrCat(g.executions_done(), "/", g.executions_admitted()), g.plan_hash(), absl::StrJoin(g.worker(), ",")});
    if (!g.error().empty()) absl::StrAppend(&troubles, "graph \"", g.name(), "\": ", g.error(), "\n");
    if (!g.stalled().empty()) {
      absl::StrAppend(&troubles, "graph \"", g.name(), "\" is stalled: ", absl::StrReplaceAll(g.stalled(), {{"\n", "\n  "}}), "\n");
    }
  }
  Print(graphs.empty() ? "no graphs\n" : Table(rows) + troubles);
}

// Whether the worker is there and does not answer; of one that is lost, another of its name may be there by now.
bool IsSilence(const std::string& problem) {
  return problem == "no answer in time" || absl::StartsWith(problem, "unresponsive");
}

}  // namespace

Outcome RunWorkers(const CommonArgs& common) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  auto reply = client->ListWorkers();
  if (!reply.ok()) return Outcome::Of(reply.status());
  if (common.json) {
    ordered_json workers = ordered_json::array();
    for (const v1::WorkerInfo& w : reply->worker()) {
      workers.push_back({{"name", w.name()},
                         {"state", w.state()},
                         {"device", w.device()},
                         {"pid", w.pid()},
                         {"host_id", w.host_id()},
                         {"incarnation", w.incarnation()},
                         {"heartbeat_age_s", w.heartbeat_age_s()},
                         {"graphs", std::vector<std::string>(w.graph().begin(), w.graph().end())},
                         {"classes", std::vector<std::string>(w.class_().begin(), w.class_().end())}});
    }
    PrintJson({{"driver_incarnation", reply->driver_incarnation()}, {"workers", workers}});
    return Outcome();
  }
  std::vector<std::vector<std::string>> rows = {{"WORKER", "STATE", "DEVICE", "PID", "HOST", "HEARTBEAT", "GRAPHS"}};
  for (const v1::WorkerInfo& w : reply->worker()) {
    rows.push_back({w.name(), w.state(), w.device(), absl::StrCat(w.pid()), w.host_id(),
                    absl::StrCat(FormatSeconds(w.heartbeat_age_s()), " ago"), absl::StrJoin(w.graph(), ",")});
  }
  Print(rows.size() == 1 ? "no workers\n" : Table(rows));
  return Outcome();
}

Outcome RunGraphs(const CommonArgs& common) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  auto reply = client->ListGraphs();
  if (!reply.ok()) return Outcome::Of(reply.status());
  if (common.json) {
    ordered_json graphs = ordered_json::array();
    for (const v1::GraphInfo& g : reply->graph()) graphs.push_back(ToJson(g));
    PrintJson({{"graphs", graphs}});
    return Outcome();
  }
  PrintGraphs(reply->graph());
  return Outcome();
}

Outcome RunInspect(const CommonArgs& common, const InspectArgs& args) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  auto reply = client->Inspect(args.graph);
  if (!reply.ok()) return Outcome::Of(reply.status());
  if (common.json) {
    ordered_json graphs = ordered_json::array();
    for (const v1::GraphInfo& g : reply->graph()) graphs.push_back(ToJson(g));
    ordered_json views = ordered_json::array();
    for (const v1::WorkerView& v : reply->view()) {
      ordered_json lanes = ordered_json::array();
      for (const v1::LaneView& l : v.lane()) {
        lanes.push_back({{"lane", LaneName(l.lane(), l.index())}, {"state", l.state()}, {"op", l.op()}, {"execution", l.execution()},
                         {"waits_for", l.waits_for()}, {"since_s", l.since_s()}});
      }
      ordered_json view = {{"graph", v.graph()}, {"worker", v.worker()}, {"admitted", v.admitted()}, {"completed", v.completed()},
                           {"lanes", lanes}};
      if (!v.problem().empty()) view["problem"] = v.problem();
      views.push_back(view);
    }
    PrintJson({{"graphs", graphs}, {"views", views}});
    return Outcome();
  }
  PrintGraphs(reply->graph());
  if (reply->view().empty()) return Outcome();
  std::vector<std::vector<std::string>> rows = {{"GRAPH", "WORKER", "LANE", "STATE", "SINCE", "EXECUTION", "OP", "WAITS FOR"}};
  std::string problems;
  std::optional<v1::ListWorkersReply> workers;
  for (const v1::WorkerView& v : reply->view()) {
    if (!v.problem().empty()) {
      if (!workers.has_value()) workers = client->ListWorkers().value_or(v1::ListWorkersReply());
      // A worker that does not answer is listed once for all its graphs, without a name.
      const std::string advice = IsSilence(v.problem()) ? AdviceForSilent(*workers, v.worker()) : "";
      absl::StrAppend(&problems, advice.empty() ? absl::StrCat("worker ", v.worker()) : WorkerWithPid(*workers, v.worker()),
                      v.graph().empty() ? "" : absl::StrCat(", graph \"", v.graph(), "\""), ": ", v.problem(),
                      advice.empty() ? "" : ".", advice, "\n");
    }
    for (const v1::LaneView& l : v.lane()) {
      rows.push_back({v.graph(), v.worker(), LaneName(l.lane(), l.index()), l.state(), FormatSeconds(l.since_s()),
                      l.op().empty() ? "-" : absl::StrCat(l.execution()), l.op().empty() ? "-" : l.op(), l.waits_for()});
    }
  }
  Print(absl::StrCat("\n", rows.size() > 1 ? Table(rows) : "", problems));
  return Outcome();
}

Outcome RunTrace(const CommonArgs& common, const TraceArgs& args) {
  std::unique_ptr<Client> client;
  if (Outcome connected = ConnectTo(common, &client); !connected.ok()) return connected;
  const Interrupt::Scope scope([&] { client->CancelAll(); });
  auto timeline = WriteTrace(client.get(), args.graph, args.executions, args.file);
  if (!timeline.ok()) {
    return absl::IsInvalidArgument(timeline.status()) ? Outcome::OfArgument(timeline.status()) : Outcome::Of(timeline.status());
  }
  int64_t first = 0, count = 0;
  ExecutionRange(timeline->measured, &first, &count);
  const double measured = timeline->measured.SecondsPerExecution();
  const double predicted = timeline->predicted.SecondsPerExecution();
  int64_t first_predicted = 0, predicted_count = 0;
  ExecutionRange(timeline->predicted, &first_predicted, &predicted_count);
  if (common.json) {
    // One execution has no distance to another: null, not 0.
    const auto per_execution = [](double s, int64_t n) { return n > 1 ? ordered_json(s) : ordered_json(); };
    PrintJson({{"graph", args.graph},
               {"file", args.file},
               {"first_execution", first},
               {"executions", count},
               {"measured_s", per_execution(measured, count)},
               {"predicted_s", per_execution(predicted, predicted_count)},
               {"notes", timeline->measured.notes}});
  } else {
    Print(absl::StrCat(args.file, ": ", count, count == 1 ? " execution, #" : " executions from #", first,
                       count > 1 ? absl::StrCat(" on; measured ", FormatSeconds(measured), " per execution") : std::string(),
                       predicted_count > 1 && predicted > 0 ? absl::StrCat(count > 1 ? ", predicted " : "; predicted per execution ", FormatSeconds(predicted))
                                           : std::string(),
                       "\n"));
    for (const std::string& note : timeline->measured.notes) Print(note + "\n");
  }
  return Outcome();
}

}  // namespace weft
