#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "driver/cluster/coordinator.h"

namespace weft {

void Coordinator::Teardown(const std::string& graph, double drain_timeout_s, GraphRecord::TeardownDone done) {
  Actions after;
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (!shut_down_.ok()) {
      after.Add([done, status = shut_down_] { done(status); });
    } else if (it == graphs_.end()) {
      after.Add([done, graph] { done(absl::NotFoundError(absl::StrCat("there is no graph ", graph))); });
    } else {
      GraphRecord* g = &it->second;
      g->teardown_done.push_back(std::move(done));
      if (g->state == GraphState::kReady && g->settle_at == 0) {
        g->state = GraphState::kDraining;
        g->drain_timeout_s = drain_timeout_s;
        g->deadline = clock_->Now() + FromSeconds(drain_timeout_s);
        after.Add([this, session = g->session, graph, attempt = g->attempt] {
          session->Drain([this, graph, attempt] { Drained(graph, attempt); });
        });
      } else if (g->state == GraphState::kCompiling) {
        // The compiling thread removes it when it comes back.
        Fail(g, absl::CancelledError(absl::StrCat("graph ", graph, " was torn down while it was compiled")), false, &after);
      } else if (g->settle_at != 0) {
        const std::string attempt = g->attempt;
        Settle(g, &after);  // which unloads a draining graph, and removes it if nobody is to be waited for
        GraphRecord* left = FindAttempt(graph, attempt);
        if (left != nullptr && left->state == GraphState::kFailed) BeginUnload(left, &after);
      } else if (g->bootstrapping()) {
        Fail(g, absl::CancelledError(absl::StrCat("graph ", graph, " was torn down while it was ", GraphStateName(g->state))), false,
             &after);
        BeginUnload(g, &after);
      } else if (g->state == GraphState::kFailed && (g->plan != nullptr || g->attempt.empty())) {
        BeginUnload(g, &after);
      }
      // Otherwise it is being torn down or removed already, and ends for all who wait.
    }
  }
  after.Run();
}

void Coordinator::Drained(const std::string& graph, const std::string& attempt) {
  Actions after;
  {
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g != nullptr && g->state == GraphState::kDraining) BeginUnload(g, &after);
  }
  after.Run();
}

void Coordinator::BeginUnload(GraphRecord* g, Actions* after) {
  if (g->state == GraphState::kDraining && g->cause.ok() && g->session != nullptr) {
    const GraphEnd::Counts counts = g->session->counts();
    absl::Status cause = absl::CancelledError(absl::StrCat("graph ", g->name, " was torn down"));
    if (counts.admitted > counts.completed) {
      cause = absl::DeadlineExceededError(absl::StrFormat(
          "graph %s was torn down; executions %d..%d had not finished within %.1f s", g->name, counts.completed,
          counts.admitted - 1, g->drain_timeout_s));
    }
    g->cause = cause;
  }
  g->settle_at = 0;
  EndReplan(g, g->cause.ok() ? absl::CancelledError(absl::StrCat("graph ", g->name, " was torn down")) : g->cause, after);
  g->state = GraphState::kUnloading;
  g->deadline = clock_->Now() + FromSeconds(timeouts_.unload_s);
  for (GraphMember& m : g->members) {
    m.answered = false;
    if (m.gone) continue;
    v1::DriverMessage unload;
    unload.mutable_unload()->set_graph(g->name);
    unload.mutable_unload()->set_attempt(g->attempt);
    if (!registry_.Send(m.name, m.incarnation, std::move(unload))) m.gone = true;
  }
  // After Unload is on its way, so that no worker takes the closed links for a failure.
  if (g->session != nullptr) after->Add([session = g->session, cause = g->cause] { session->Fail(cause); });
  FinishUnloadIfAnswered(g->name, after);
}

void Coordinator::FinishUnloadIfAnswered(const std::string& graph, Actions* after) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end() || it->second.state != GraphState::kUnloading) return;
  GraphRecord& g = it->second;
  if (!std::all_of(g.members.begin(), g.members.end(), [](const GraphMember& m) { return m.gone || m.answered; })) return;
  if (g.session != nullptr) graveyard_.push_back(std::move(g.session));
  spdlog::info("graph {} is torn down", graph);
  after->Add([this, graph, attempt = g.attempt, dones = std::move(g.teardown_done)] {
    if (!attempt.empty()) kv_.Close(attempt, absl::AbortedError(absl::StrCat("graph ", graph, " was torn down")));
    absl::Status removed = graphs_on_disk_ == nullptr ? absl::OkStatus() : graphs_on_disk_->Remove(graph);
    for (const auto& done : dones) done(removed);
  });
  graphs_.erase(it);
}

}  // namespace weft
