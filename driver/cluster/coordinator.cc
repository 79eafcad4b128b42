#include "driver/cluster/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace weft {

const char* GraphStateName(GraphState state) {
  switch (state) {
    case GraphState::kCompiling: return "compiling";
    case GraphState::kLoading:
    case GraphState::kConnecting:
    case GraphState::kStarting: return "bootstrapping";
    case GraphState::kReady: return "ready";
    case GraphState::kFailed: return "failed";
    case GraphState::kDraining:
    case GraphState::kUnloading: return "tearing-down";
  }
  return "unknown";
}

Coordinator::Coordinator(const Clock* clock, WorkerRegistry::Options options, CoordinatorTimeouts timeouts, CompileFn compile,
                         GraphEndFactory make_session, const GraphStore* store, RecompileFn recompile)
    : clock_(clock),
      timeouts_(timeouts),
      compile_(std::move(compile)),
      recompile_(std::move(recompile)),
      make_session_(std::move(make_session)),
      graphs_on_disk_(store),
      registry_(clock, std::move(options)),
      fan_out_(clock, &registry_),
      clock_sync_(clock, &registry_),
      kv_(clock) {}

Coordinator::~Coordinator() { Shutdown(absl::UnavailableError("the driver ended")); }

absl::Status Coordinator::Recover() {
  if (graphs_on_disk_ == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> names = graphs_on_disk_->List();
  if (!names.ok()) return names.status();
  MutexLock lock(&mu_);
  for (const std::string& name : *names) {
    GraphRecord& g = graphs_[name];
    g.name = name;
    g.state = GraphState::kFailed;
    g.cause = absl::UnavailableError("the driver restarted; compile it again");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Coordinator::WorkerJoined(const v1::WorkerMessage& first, std::shared_ptr<WorkerLink> link) {
  {
    MutexLock lock(&mu_);
    if (!shut_down_.ok()) return shut_down_;
  }
  absl::StatusOr<std::string> name = registry_.Register(first, std::move(link));
  if (!name.ok()) return name;
  spdlog::info("worker {} joined: pid {}, host {}, device {}, incarnation {}", *name, first.register_().pid(),
               first.register_().host_id(), first.register_().device(), first.incarnation());
  clock_sync_.Joined(*name, first.incarnation());
  return name;
}

void Coordinator::WorkerSaid(const std::string& name, const v1::WorkerMessage& message) {
  const Nanos now = clock_->Now();
  if (!registry_.Accept(name, message.incarnation())) return;
  // Whatever a worker says shows that it lives.
  Actions after;
  bool known = true;
  switch (message.what_case()) {
    case v1::WorkerMessage::kHeartbeat:
      registry_.Heartbeat(name, message.heartbeat().progress());
      return;
    case v1::WorkerMessage::kClockReply:
      clock_sync_.Reply(name, message.clock_reply().request(), message.clock_reply().worker_ns(), now);
      return;
    case v1::WorkerMessage::kInspectResult:
      known = fan_out_.Answer(message.inspect_result().request(), name, message, /*last=*/true);
      break;
    case v1::WorkerMessage::kTraceResult:
      known = fan_out_.Answer(message.trace_result().request(), name, message, message.trace_result().last());
      break;
    case v1::WorkerMessage::kRegister:
    case v1::WorkerMessage::WHAT_NOT_SET:
      known = false;
      break;
    default: {
      MutexLock lock(&mu_);
      const auto phase = [&](const auto& reply, GraphState state, const absl::Status& status) WEFT_NO_THREAD_SAFETY_ANALYSIS {
        GraphRecord* g = FindAttempt(reply.graph(), reply.attempt());
        GraphMember* m = g == nullptr ? nullptr : FindMember(g, name);
        if (m == nullptr) {
          known = false;
        } else {
          Answered(g, state, m, status, &after);
        }
      };
      const auto status_of = [](const auto& reply) {
        return reply.code() == 0 ? absl::OkStatus()
                                 : absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
      };
      if (message.has_load_reply()) {
        const v1::LoadReply& reply = message.load_reply();
        absl::Status status = status_of(reply);
        const GraphRecord* g = FindAttempt(reply.graph(), reply.attempt());
        if (status.ok() && g != nullptr && g->plan != nullptr && reply.plan_hash() != g->plan->hash) {
          status = absl::InternalError(absl::StrCat("it loaded plan ", reply.plan_hash(), " instead of ", g->plan->hash));
        }
        phase(reply, GraphState::kLoading, status);
      } else if (message.has_connect_reply()) {
        phase(message.connect_reply(), GraphState::kConnecting, status_of(message.connect_reply()));
      } else if (message.has_start_reply()) {
        phase(message.start_reply(), GraphState::kStarting, absl::OkStatus());
      } else if (message.has_unload_reply()) {
        phase(message.unload_reply(), GraphState::kUnloading, absl::OkStatus());
      } else if (message.has_next_plan_reply()) {
        const v1::NextPlanReply& reply = message.next_plan_reply();
        GraphRecord* g = FindAttempt(reply.graph(), reply.attempt());
        const GraphMember* m = g == nullptr ? nullptr : FindMember(g, name);
        known = m != nullptr;
        if (known) NextPlanAnswered(g, *m, status_of(reply), &after);
      } else if (message.has_swap_reply()) {
        const v1::SwapReply& reply = message.swap_reply();
        GraphRecord* g = FindAttempt(reply.graph(), reply.attempt());
        const GraphMember* m = g == nullptr ? nullptr : FindMember(g, name);
        known = m != nullptr;
        if (known) SwapAnswered(g, *m, reply.plan_hash(), status_of(reply), &after);
      } else if (message.has_graph_failed()) {
        const v1::GraphFailed& failed = message.graph_failed();
        GraphRecord* g = FindAttempt(failed.graph(), failed.attempt());
        if (g == nullptr || FindMember(g, name) == nullptr) {
          known = false;
        } else {
          const absl::StatusCode code = static_cast<absl::StatusCode>(failed.code());
          const absl::Status cause(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                                   absl::StrCat("worker ", name, ": ", failed.message()));
          // That a peer is gone is often a consequence: the peer's own end, noticed here, is the better cause.
          Fail(g, cause, code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted, &after);
        }
      } else if (message.has_graph_progress()) {
        GraphRecord* g = FindAttempt(message.graph_progress().graph(), message.graph_progress().attempt());
        GraphMember* m = g == nullptr ? nullptr : FindMember(g, name);
        if (m == nullptr) {
          known = false;
        } else if (g->session != nullptr) {
          after.Add([session = g->session, index = m->index, completed = message.graph_progress().completed()] {
            session->Progress(index, completed);
          });
        }
      } else {
        known = false;
      }
    }
  }
  after.Run();
  if (!known) registry_.CountDropped();
}

std::vector<std::string> Coordinator::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, g] : graphs_) names.push_back(name);
  return names;
}

// At most one step a call, since a step may remove the graph.
void Coordinator::TickGraph(GraphRecord* g, Nanos now, Actions* after) {
  if (g->settle_at != 0) {
    if (now >= g->settle_at) Settle(g, after);
  } else if (g->bootstrapping()) {
    if (now >= g->phase_deadline) {
      PhaseOverdue(g, after);
    } else if (!g->asked && now >= g->phase_deadline - FromSeconds(timeouts_.inspect_s)) {
      AskWhatHolds(g, after);
    }
  } else if (g->state == GraphState::kDraining) {
    if (g->replan != nullptr) TickReplan(g, now, after);
    if (now >= g->deadline && g->state == GraphState::kDraining) BeginUnload(g, after);
  } else if (g->state == GraphState::kReady) {
    CheckProgress(g, now, after);
    if (g->replan != nullptr) TickReplan(g, now, after);
  } else if (g->state == GraphState::kUnloading && now >= g->deadline) {
    for (GraphMember& m : g->members) {
      if (!m.gone && !m.answered) {
        const std::string problem = registry_.Problem(m.name);
        spdlog::warn("graph {}: worker {} has not answered Unload within {} s{}; it will when it goes on", g->name, m.name,
                     timeouts_.unload_s, problem.empty() ? "" : " (" + problem + ")");
      }
      m.answered = true;
    }
    FinishUnloadIfAnswered(g->name, after);
  }
}

bool Coordinator::Tick() {
  const bool asking = fan_out_.Tick();
  clock_sync_.Tick();
  const bool waiting = kv_.Tick();
  Actions after;
  std::vector<std::shared_ptr<GraphEnd>> graveyard;
  bool check_workers = false;
  bool pending = false;
  {
    MutexLock lock(&mu_);
    graveyard.swap(graveyard_);
    const Nanos now = clock_->Now();
    for (const std::string& name : Names()) TickGraph(&graphs_[name], now, &after);
    for (const auto& [name, g] : graphs_) {
      pending |= g.settle_at != 0 || g.replan != nullptr || g.bootstrapping() || g.state == GraphState::kDraining || g.state == GraphState::kUnloading;
    }
    if (now >= next_worker_check_) {
      next_worker_check_ = now + kNanosPerSecond;
      check_workers = true;
    }
  }
  after.Run();
  if (check_workers) LogChangedWorkers();
  return pending || asking || waiting;
}

bool Coordinator::shut_down() const {
  MutexLock lock(&mu_);
  return !shut_down_.ok();
}

void Coordinator::Shutdown(const absl::Status& cause) {
  Actions after;
  {
    MutexLock lock(&mu_);
    if (!shut_down_.ok()) return;
    shut_down_ = cause;
    for (const std::string& name : Names()) {
      Fail(&graphs_[name], cause, /*provisional=*/false, &after);
      const auto it = graphs_.find(name);  // a graph that was draining may be gone now
      if (it == graphs_.end()) continue;
      GraphRecord& g = it->second;
      for (auto& done : g.teardown_done) after.Add([done, cause] { done(cause); });
      g.teardown_done.clear();
      if (g.session != nullptr) graveyard_.push_back(std::move(g.session));
      g.session = nullptr;
      after.Add([this, attempt = g.attempt, cause] { kv_.Close(attempt, cause); });
    }
  }
  after.Run();
  std::vector<std::shared_ptr<GraphEnd>> graveyard;
  {
    MutexLock lock(&mu_);
    graveyard.swap(graveyard_);
  }
}

}  // namespace weft
