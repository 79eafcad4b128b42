#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "driver/cluster/coordinator.h"
#include "driver/graph/warnings.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

std::vector<v1::DriverMessage> LoadMessages(const Plan& plan, int32_t worker, const std::string& attempt, bool trace) {
  const std::string bytes = PlanToProto(PartOf(plan, worker)).SerializeAsString();
  std::vector<v1::DriverMessage> messages;
  size_t at = 0;
  do {
    v1::LoadPlan* load = messages.emplace_back().mutable_load();
    const size_t n = std::min(kPieceBytes, bytes.size() - at);
    load->set_graph(plan.graph);
    load->set_attempt(attempt);
    load->set_piece(bytes.substr(at, n));
    load->set_trace(trace);
    at += n;
    load->set_last(at == bytes.size());
  } while (at < bytes.size());
  return messages;
}

}  // namespace

std::vector<v1::DriverMessage> NextPlanMessages(const Plan& plan, int32_t worker, const std::string& attempt) {
  std::vector<v1::DriverMessage> messages;
  for (v1::DriverMessage& load : LoadMessages(plan, worker, attempt, false)) {
    v1::NextPlan* next = messages.emplace_back().mutable_next_plan();
    next->set_graph(plan.graph);
    next->set_attempt(attempt);
    *next->mutable_piece() = std::move(*load.mutable_load()->mutable_piece());
    next->set_last(load.load().last());
  }
  return messages;
}

std::vector<int32_t> WorkersWithAPart(const Plan& plan) {
  std::vector<bool> has(plan.workers.size(), false);
  const auto mark = [&](int32_t w) {
    if (w >= 0 && w < static_cast<int32_t>(has.size())) has[w] = true;
  };
  for (const PlanActor& a : plan.actors) mark(a.worker);
  for (const PlanOp& op : plan.ops) mark(op.worker);
  std::vector<int32_t> workers;
  for (size_t i = 0; i < has.size(); ++i) {
    if (has[i]) workers.push_back(static_cast<int32_t>(i));
  }
  return workers;
}

absl::Status Coordinator::Reserve(const v1::Graph& graph, const std::string& attempt, Actions* after) {
  if (!shut_down_.ok()) return shut_down_;
  const auto it = graphs_.find(graph.name());
  if (it != graphs_.end()) {
    if (it->second.state != GraphState::kFailed || it->second.in_compiler) {
      return absl::AlreadyExistsError(absl::StrCat("graph ", graph.name(), " is ", GraphStateName(it->second.state),
                                                   ": tear it down first, or give this one another name"));
    }
    Drop(it, after);
  }
  GraphRecord& g = graphs_[graph.name()];
  g.name = graph.name();
  g.attempt = attempt;
  g.state = GraphState::kCompiling;
  g.in_compiler = true;
  return absl::OkStatus();
}

// Forgets a failed graph here and on its workers; nobody waits for their answers, which carry the old attempt.
void Coordinator::Drop(std::map<std::string, GraphRecord>::iterator it, Actions* after) {
  GraphRecord& g = it->second;
  for (GraphMember& m : g.members) {
    v1::DriverMessage unload;
    unload.mutable_unload()->set_graph(g.name);
    unload.mutable_unload()->set_attempt(g.attempt);
    if (!m.gone) registry_.Send(m.name, m.incarnation, std::move(unload));
  }
  EndReplan(&g, g.cause.ok() ? absl::AbortedError("the graph was torn down") : g.cause, after);
  if (g.session != nullptr) graveyard_.push_back(std::move(g.session));
  after->Add([this, attempt = g.attempt, cause = g.cause] {
    kv_.Close(attempt, cause.ok() ? absl::AbortedError("the graph was torn down") : cause);
  });
  graphs_.erase(it);
}

std::string Coordinator::Compile(const v1::Graph& graph, bool trace, GraphRecord::CompileDone done, const v1::Costs* costs) {
  const std::string attempt = NewIncarnation();
  absl::Status status = CheckName("graph", graph.name());
  if (status.ok()) {
    Actions after;
    {
      MutexLock lock(&mu_);
      status = Reserve(graph, attempt, &after);
    }
    after.Run();
  }
  if (!status.ok()) {
    done(status);
    return "";
  }
  const Nanos began = clock_->Now();
  std::vector<WorkerSnapshot> live;
  for (WorkerSnapshot& w : registry_.List()) {
    if (w.state != WorkerState::kLost) live.push_back(std::move(w));
  }
  std::shared_ptr<const Plan> plan;
  std::vector<int32_t> workers;
  Pieces pieces;
  {
    absl::StatusOr<Plan> compiled = compile_(graph, live, costs);
    status = compiled.status();
    if (compiled.ok()) {
      plan = std::make_shared<const Plan>(*std::move(compiled));
      workers = WorkersWithAPart(*plan);
      for (const int32_t w : workers) pieces.push_back(LoadMessages(*plan, w, attempt, trace));
      if (graphs_on_disk_ != nullptr) status = graphs_on_disk_->Save(graph);
    }
  }
  std::shared_ptr<GraphEnd> session;
  if (status.ok()) {
    GraphEndArgs args;
    args.plan = plan;
    args.attempt = attempt;
    args.workers = workers;
    args.on_failed = [this, name = graph.name(), attempt](absl::Status s) { SessionFailed(name, attempt, s); };
    session = make_session_(std::move(args));
    status = session->Prepare();
    if (!status.ok()) {
      status = absl::Status(status.code(), absl::StrCat("graph ", graph.name(), ", phase 1 (load): the driver's own end: ",
                                                        std::string(status.message())));
    }
  }

  Actions after;
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph.name());  // there, since in_compiler keeps it
    GraphRecord& g = it->second;
    g.in_compiler = false;
    // Shutdown and Teardown leave word in the record.
    if (status.ok() && g.state != GraphState::kCompiling) status = g.cause;
    if (!status.ok()) {
      if (session != nullptr) graveyard_.push_back(session);
      // A graph that the driver's end stopped is still to be known by the next driver.
      if (graphs_on_disk_ != nullptr && shut_down_.ok()) {
        after.Add([this, name = graph.name()] { graphs_on_disk_->Remove(name).IgnoreError(); });
      }
      for (auto& torn : g.teardown_done) after.Add([torn] { torn(absl::OkStatus()); });
      after.Add([done, status] { done(status); });
      graphs_.erase(it);
    } else {
      g.graph = std::make_shared<const v1::Graph>(graph);
      g.plan = plan;
      g.session = session;
      g.compile_done = std::move(done);
      for (const int32_t w : workers) {
        GraphMember m;
        m.index = w;
        m.name = plan->workers[w].name;
        m.incarnation = "none";  // so that nothing is sent to a worker that the compiler made up
        for (const WorkerSnapshot& s : live) {
          if (s.name != m.name) continue;
          m.incarnation = s.incarnation;
          m.pid = s.registration.pid();
        }
        g.members.push_back(std::move(m));
      }
      g.reply.set_graph(graph.name());
      g.reply.set_plan_hash(plan->hash);
      g.reply.set_workers(static_cast<int32_t>(workers.size()));
      g.reply.set_ops(static_cast<int64_t>(plan->ops.size()));
      for (const uint64_t b : plan->peak_bytes) g.reply.add_peak_bytes(b);
      g.reply.set_compile_s(ToSeconds(clock_->Now() - began));
      *g.reply.mutable_outputs() = graph.output();
      *g.reply.mutable_inputs() = graph.input();
      for (const std::string& w : GraphWarnings(graph)) g.reply.add_warning(w);
      BeginBootstrap(&g, std::move(pieces), &after);
    }
  }
  after.Run();
  return attempt;
}

void Coordinator::BeginBootstrap(GraphRecord* g, Pieces pieces, Actions* after) {
  kv_.Open(g->name, g->attempt);
  g->bootstrap_began = clock_->Now();
  EnterPhase(g, GraphState::kLoading);
  for (size_t i = 0; i < g->members.size(); ++i) {
    for (v1::DriverMessage& message : pieces[i]) {
      SendToMember(g, &g->members[i], std::move(message), after);
      if (g->state != GraphState::kLoading) return;
    }
  }
  AdvanceIfAnswered(g, after);
}

void Coordinator::CancelCompile(const std::string& graph, const std::string& attempt) {
  Actions after;
  {
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g != nullptr && g->bootstrapping()) {
      Fail(g, absl::CancelledError(absl::StrCat("graph ", graph, ": the client that compiled it went away")), false, &after);
    }
  }
  after.Run();
}

}  // namespace weft
