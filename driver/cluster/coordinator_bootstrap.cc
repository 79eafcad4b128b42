#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/plan/bootstrap_timeout.h"
#include "driver/cluster/coordinator.h"

namespace weft {
namespace {

std::string PhaseName(GraphState state) {
  switch (state) {
    case GraphState::kLoading: return "phase 1 (load)";
    case GraphState::kConnecting: return "phase 2 (connect)";
    case GraphState::kStarting: return "start";
    default: return GraphStateName(state);
  }
}

}  // namespace

GraphRecord* Coordinator::FindAttempt(const std::string& graph, const std::string& attempt) {
  const auto it = graphs_.find(graph);
  return it == graphs_.end() || attempt.empty() || it->second.attempt != attempt ? nullptr : &it->second;
}

GraphMember* Coordinator::FindMember(GraphRecord* g, const std::string& worker) {
  for (GraphMember& m : g->members) {
    if (m.name == worker && !m.gone) return &m;
  }
  return nullptr;
}

void Coordinator::EnterPhase(GraphRecord* g, GraphState phase) {
  g->state = phase;
  for (GraphMember& m : g->members) m.answered = false;
  g->asked = false;
  g->doing.clear();
  const double timeout_s = BootstrapTimeoutS(g->plan->options);
  g->phase_deadline = clock_->Now() + FromSeconds(timeout_s);
}

void Coordinator::SendToMember(GraphRecord* g, GraphMember* m, v1::DriverMessage message, Actions* after) {
  if (m->gone) return;
  if (registry_.Send(m->name, m->incarnation, std::move(message))) return;
  // Its end is being reported on another thread; this thread noticed first.
  const std::string situation = Situation(*g);
  m->gone = true;
  Fail(g, absl::UnavailableError(absl::StrCat("worker ", m->name, " (pid ", m->pid, ") is gone: its control stream closed; ", situation)),
       false, after);
}

void Coordinator::Answered(GraphRecord* g, GraphState phase, GraphMember* member, const absl::Status& status, Actions* after) {
  if (g->state != phase) return;  // the attempt has failed meanwhile
  if (!status.ok()) {
    const bool provisional = absl::IsUnavailable(status) || absl::IsAborted(status);
    Fail(g,
         absl::Status(status.code(), absl::StrCat("graph ", g->name, ", ", PhaseName(phase), ": worker ", member->name, ": ",
                                                  std::string(status.message()))),
         provisional, after);
    return;
  }
  member->answered = true;
  if (phase == GraphState::kUnloading) {
    FinishUnloadIfAnswered(g->name, after);
  } else {
    AdvanceIfAnswered(g, after);
  }
}

void Coordinator::AdvanceIfAnswered(GraphRecord* g, Actions* after) {
  if (!g->bootstrapping() || g->settle_at != 0) return;
  if (!std::all_of(g->members.begin(), g->members.end(), [](const GraphMember& m) { return m.answered; })) return;
  if (g->state == GraphState::kLoading) {
    EnterPhase(g, GraphState::kConnecting);
    v1::DriverMessage message;
    v1::Connect* connect = message.mutable_connect();
    connect->set_graph(g->name);
    connect->set_attempt(g->attempt);
    const double timeout_s = ToSeconds(g->phase_deadline - clock_->Now()) * timeouts_.worker_share;
    connect->set_timeout_s(timeout_s);
    for (const PlanWorker& w : g->plan->workers) connect->add_peer()->set_worker(w.name);
    for (const GraphMember& m : g->members) {
      const absl::StatusOr<WorkerSnapshot> s = registry_.Find(m.name);
      if (!s.ok() || s->incarnation != m.incarnation) continue;
      v1::PeerAddress* peer = connect->mutable_peer(m.index);
      peer->set_incarnation(s->incarnation);
      peer->set_shm_address(s->registration.shm_address());
      peer->set_data_address(s->registration.data_address());
    }
    const std::vector<v1::PeerAddress> peers(connect->peer().begin(), connect->peer().end());
    for (GraphMember& m : g->members) {
      SendToMember(g, &m, message, after);
      if (g->state != GraphState::kConnecting) return;
    }
    g->session_connected = false;
    after->Add([this, session = g->session, peers, deadline = clock_->Now() + FromSeconds(timeout_s), name = g->name,
                attempt = g->attempt] {
      session->Connect(peers, deadline, [this, name, attempt](absl::Status s) { SessionConnected(name, attempt, s); });
    });
  } else if (g->state == GraphState::kConnecting) {
    if (!g->session_connected) return;
    EnterPhase(g, GraphState::kStarting);
    v1::DriverMessage message;
    message.mutable_start()->set_graph(g->name);
    message.mutable_start()->set_attempt(g->attempt);
    for (GraphMember& m : g->members) {
      SendToMember(g, &m, message, after);
      if (g->state != GraphState::kStarting) return;
    }
  } else {
    g->state = GraphState::kReady;
    g->progress_at = clock_->Now();
    g->reply.set_bootstrap_s(ToSeconds(clock_->Now() - g->bootstrap_began));
    spdlog::info("graph {} is ready: plan {}, {} workers, {} ops", g->name, g->plan->hash, g->members.size(), g->plan->ops.size());
    after->Add([session = g->session, done = std::move(g->compile_done), reply = g->reply] {
      session->Start();
      if (done) done(reply);
    });
    g->compile_done = nullptr;
  }
}

void Coordinator::SessionConnected(const std::string& graph, const std::string& attempt, const absl::Status& status) {
  Actions after;
  {
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g == nullptr || g->state != GraphState::kConnecting) return;
    if (status.ok()) {
      g->session_connected = true;
      AdvanceIfAnswered(g, &after);
    } else {
      Fail(g,
           absl::Status(status.code(), absl::StrCat("graph ", graph, ", ", PhaseName(g->state), ": the driver's own end: ",
                                                    std::string(status.message()))),
           absl::IsUnavailable(status) || absl::IsAborted(status), &after);
    }
  }
  after.Run();
}

// Shortly before the phase is overdue, so that its error says what is being waited for.
void Coordinator::AskWhatHolds(GraphRecord* g, Actions* after) {
  g->asked = true;
  after->Add([this, name = g->name, attempt = g->attempt, phase = g->state] {
    Inspect(name, [this, name, attempt, phase](v1::InspectReply reply) {
      MutexLock lock(&mu_);
      GraphRecord* const record = FindAttempt(name, attempt);
      if (record == nullptr || record->state != phase || !record->asked) return;
      for (const v1::WorkerView& view : reply.view()) {
        if (view.graph() == name && absl::StartsWith(view.problem(), "bootstrap: ")) record->doing[view.worker()] = view.problem();
      }
    }).IgnoreError();  // the graph has gone meanwhile
  });
}

void Coordinator::PhaseOverdue(GraphRecord* g, Actions* after) {
  std::vector<std::string> missing;
  for (const GraphMember& m : g->members) {
    if (m.answered) continue;
    std::string problem = registry_.Problem(m.name);
    if (const auto said = g->doing.find(m.name); problem.empty() && said != g->doing.end()) problem = said->second;
    missing.push_back(absl::StrCat("worker ", m.name, problem.empty() ? "" : absl::StrCat(" (", problem, ")")));
  }
  if (g->state == GraphState::kConnecting && !g->session_connected) missing.push_back("the driver's own end");
  const double timeout_s = BootstrapTimeoutS(g->plan->options);
  Fail(g,
       absl::DeadlineExceededError(absl::StrFormat("graph %s, %s: no answer within %.1f s from %s; see its log, or raise "
                                                   "options.bootstrap_timeout_s",
                                                   g->name, PhaseName(g->state), timeout_s, absl::StrJoin(missing, ", "))),
       false, after);
}

}  // namespace weft
