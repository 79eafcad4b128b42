#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "driver/cluster/coordinator.h"

namespace weft {

std::string Coordinator::Situation(const GraphRecord& g) const {
  switch (g.state) {
    case GraphState::kLoading: return absl::StrCat("graph ", g.name, " was in phase 1 (load)");
    case GraphState::kConnecting: return absl::StrCat("graph ", g.name, " was in phase 2 (connect)");
    case GraphState::kStarting: return absl::StrCat("graph ", g.name, " was being started");
    default: break;
  }
  const GraphEnd::Counts counts = g.session == nullptr ? g.last_counts : g.session->counts();
  if (counts.admitted <= counts.completed) return absl::StrCat("graph ", g.name, " had no execution in flight");
  if (counts.admitted == counts.completed + 1) {
    return absl::StrCat("graph ", g.name, " had execution ", counts.completed, " in flight");
  }
  return absl::StrCat("graph ", g.name, " had executions ", counts.completed, "..", counts.admitted - 1, " in flight");
}

void Coordinator::WorkerLost(const std::string& name, const std::string& incarnation) {
  if (!registry_.Lose(name, incarnation)) return;
  spdlog::warn("worker {} is gone: its control stream closed (incarnation {})", name, incarnation);
  clock_sync_.Lost(name);
  fan_out_.Lost(name, "lost: its control stream closed");
  Actions after;
  {
    MutexLock lock(&mu_);
    std::vector<std::string> names;
    for (const auto& [graph, g] : graphs_) names.push_back(graph);
    for (const std::string& graph : names) {
      GraphRecord* g = &graphs_[graph];
      for (GraphMember& m : g->members) {
        if (m.name != name || m.incarnation != incarnation || m.gone) continue;
        const std::string situation = Situation(*g);
        m.gone = true;
        if (g->state == GraphState::kUnloading) {
          FinishUnloadIfAnswered(graph, &after);
        } else {
          Fail(g, absl::UnavailableError(absl::StrCat("worker ", name, " (pid ", m.pid, ") is gone: its control stream closed; ",
                                                      situation)),
               false, &after);
        }
        break;
      }
    }
  }
  after.Run();
}

void Coordinator::SessionFailed(const std::string& graph, const std::string& attempt, const absl::Status& status) {
  Actions after;
  {
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g == nullptr) return;
    Fail(g, absl::Status(status.code(), absl::StrCat("the driver's end of graph ", graph, ": ", std::string(status.message()))),
         absl::IsUnavailable(status) || absl::IsAborted(status), &after);
  }
  after.Run();
}

void Coordinator::Fail(GraphRecord* g, const absl::Status& cause, bool provisional, Actions* after) {
  if (g->state == GraphState::kFailed && g->settle_at == 0) return;  // the first cause stays
  if (g->state == GraphState::kUnloading) return;
  if (g->state == GraphState::kCompiling) {
    if (g->cause.ok()) g->cause = cause;
    // The compiling thread finds this when it comes back.
    g->state = GraphState::kFailed;
    return;
  }
  if (g->settle_at != 0) {
    // A consequence does not replace another; a cause does.
    if (provisional) return;
    g->cause = cause;
    Settle(g, after);
    return;
  }
  g->cause = cause;
  if (provisional) {
    g->settle_at = clock_->Now() + FromSeconds(timeouts_.settle_s);
    return;
  }
  Settle(g, after);
}

// The cause is final: tells everybody.
void Coordinator::Settle(GraphRecord* g, Actions* after) {
  g->settle_at = 0;
  const bool draining = g->state == GraphState::kDraining;
  const bool bootstrapping = g->bootstrapping();
  spdlog::error("graph {} failed: {}", g->name, std::string(g->cause.message()));
  EndReplan(g, g->cause, after);
  for (GraphMember& m : g->members) {
    if (m.gone) continue;
    v1::DriverMessage abort;
    abort.mutable_abort()->set_graph(g->name);
    abort.mutable_abort()->set_attempt(g->attempt);
    abort.mutable_abort()->set_code(static_cast<int32_t>(g->cause.code()));
    abort.mutable_abort()->set_message(std::string(g->cause.message()));
    registry_.Send(m.name, m.incarnation, std::move(abort));
    if (bootstrapping) {
      // Nobody can want to look at a graph that never ran.
      v1::DriverMessage unload;
      unload.mutable_unload()->set_graph(g->name);
      unload.mutable_unload()->set_attempt(g->attempt);
      registry_.Send(m.name, m.incarnation, std::move(unload));
    }
  }
  if (g->session != nullptr) {
    g->last_counts = g->session->counts();
    after->Add([session = g->session, cause = g->cause] { session->Fail(cause); });
  }
  after->Add([this, attempt = g->attempt, cause = g->cause] { kv_.Close(attempt, cause); });
  if (g->compile_done) {
    after->Add([done = std::move(g->compile_done), cause = g->cause] { done(cause); });
    g->compile_done = nullptr;
  }
  if (draining) {
    BeginUnload(g, after);
  } else {
    g->state = GraphState::kFailed;
  }
}

}  // namespace weft
