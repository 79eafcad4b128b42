#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "driver/cluster/coordinator.h"
#include "driver/cluster/inspect_text.h"

namespace weft {

v1::GraphInfo Coordinator::InfoOf(const GraphRecord& g) const {
  v1::GraphInfo info;
  info.set_name(g.name);
  info.set_state(GraphStateName(g.state));
  if (g.plan != nullptr) info.set_plan_hash(g.plan->hash);
  for (const GraphMember& m : g.members) info.add_worker(m.name);
  const GraphEnd::Counts counts = g.session == nullptr ? g.last_counts : g.session->counts();
  info.set_executions_admitted(counts.admitted);
  info.set_executions_done(counts.completed);
  if (g.state == GraphState::kFailed) info.set_error(std::string(g.cause.message()));
  info.set_stalled(g.stalled);
  return info;
}

v1::ListGraphsReply Coordinator::ListGraphs() const {
  v1::ListGraphsReply reply;
  MutexLock lock(&mu_);
  for (const auto& [name, g] : graphs_) *reply.add_graph() = InfoOf(g);
  return reply;
}

v1::ListWorkersReply Coordinator::ListWorkers() const {
  v1::ListWorkersReply reply;
  reply.set_driver_incarnation(registry_.options().driver_incarnation);
  reply.set_dropped_messages(registry_.dropped());
  std::map<std::string, std::vector<std::string>> graphs;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, g] : graphs_) {
      for (const GraphMember& m : g.members) {
        if (!m.gone) graphs[m.name].push_back(name);
      }
    }
  }
  for (const WorkerSnapshot& s : registry_.List()) {
    v1::WorkerInfo* info = reply.add_worker();
    info->set_name(s.name);
    info->set_incarnation(s.incarnation);
    info->set_host_id(s.registration.host_id());
    info->set_device(s.registration.device());
    info->set_pid(s.registration.pid());
    info->set_state(WorkerStateName(s.state));
    for (const std::string& g : graphs[s.name]) info->add_graph(g);
    info->set_heartbeat_age_s(ToSeconds(s.heartbeat_age));
    for (const std::string& c : s.registration.class_()) info->add_class_(c);
  }
  return reply;
}

absl::Status Coordinator::Inspect(const std::string& graph, InspectDone done) {
  auto reply = std::make_shared<v1::InspectReply>();
  std::set<std::string> ask;
  if (graph.empty()) {
    // Those that have no graph may have one whose removal takes long, and which is forgotten here.
    for (const WorkerSnapshot& s : registry_.List()) {
      if (s.state == WorkerState::kAlive) ask.insert(s.name);
    }
  }
  {
    MutexLock lock(&mu_);
    if (!graph.empty() && graphs_.count(graph) == 0) return absl::NotFoundError(absl::StrCat("there is no graph ", graph));
    for (const auto& [name, g] : graphs_) {
      if (!graph.empty() && name != graph) continue;
      *reply->add_graph() = InfoOf(g);
      if (g.session != nullptr) *reply->add_view() = g.session->View();
      for (const GraphMember& m : g.members) {
        if (!m.gone) {
          ask.insert(m.name);
          continue;
        }
        v1::WorkerView* view = reply->add_view();
        view->set_graph(name);
        view->set_worker(m.name);
        view->set_problem("lost: its control stream closed");
      }
    }
  }
  fan_out_.Ask(
      std::vector<std::string>(ask.begin(), ask.end()), clock_->Now() + FromSeconds(timeouts_.inspect_s),
      [graph](int64_t request) {
        v1::DriverMessage message;
        message.mutable_inspect()->set_request(request);
        message.mutable_inspect()->set_graph(graph);
        return message;
      },
      [reply, graph, done = std::move(done)](FanOut::Result result) {
        for (auto& [worker, messages] : result.answers) {
          for (v1::WorkerMessage& message : messages) {
            for (v1::WorkerView& view : *message.mutable_inspect_result()->mutable_view()) {
              if (!graph.empty() && view.graph() != graph) continue;
              view.set_worker(worker);  // whatever it calls itself
              *reply->add_view() = std::move(view);
            }
          }
        }
        for (const auto& [worker, problem] : result.problems) {
          v1::WorkerView* view = reply->add_view();
          view->set_graph(graph);
          view->set_worker(worker);
          view->set_problem(problem);
        }
        done(std::move(*reply));
      });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Plan>> Coordinator::PlanOf(const std::string& graph) const {
  MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return absl::NotFoundError(absl::StrCat("there is no graph ", graph));
  if (it->second.plan == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", graph, " has no plan: it is ", GraphStateName(it->second.state),
                                                      it->second.cause.ok() ? "" : ": ", std::string(it->second.cause.message())));
  }
  return it->second.plan;
}

absl::Status Coordinator::Trace(const std::string& graph, int32_t executions, TraceDone done) {
  std::vector<std::string> ask;
  auto problems = std::make_shared<std::map<std::string, std::string>>();
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (it == graphs_.end()) return absl::NotFoundError(absl::StrCat("there is no graph ", graph));
    for (const GraphMember& m : it->second.members) {
      if (m.gone) {
        (*problems)[m.name] = "lost: its control stream closed";
      } else {
        ask.push_back(m.name);
      }
    }
  }
  fan_out_.Ask(
      ask, clock_->Now() + FromSeconds(timeouts_.trace_s),
      [graph, executions](int64_t request) {
        v1::DriverMessage message;
        message.mutable_fetch_trace()->set_request(request);
        message.mutable_fetch_trace()->set_graph(graph);
        message.mutable_fetch_trace()->set_executions(executions);
        return message;
      },
      [this, problems, done = std::move(done)](FanOut::Result result) {
        std::vector<v1::TraceTrack> tracks;
        for (auto& [worker, messages] : result.answers) {
          const ClockSync::Offset offset = clock_sync_.OffsetOf(worker);
          for (v1::WorkerMessage& message : messages) {
            v1::TraceTrack& track = tracks.emplace_back(std::move(*message.mutable_trace_result()->mutable_track()));
            track.set_worker(worker);
            track.set_predicted(false);
            track.set_clock_offset_ns(offset.offset);
            track.set_clock_error_ns(offset.error);
          }
        }
        problems->insert(result.problems.begin(), result.problems.end());
        done(std::move(tracks), std::move(*problems));
      });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<GraphEnd>> Coordinator::SessionOf(const std::string& graph) const {
  MutexLock lock(&mu_);
  if (!shut_down_.ok()) return shut_down_;
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return absl::NotFoundError(absl::StrCat("there is no graph ", graph));
  const GraphRecord& g = it->second;
  if (g.state == GraphState::kReady && g.session != nullptr) return g.session;
  if (g.state == GraphState::kFailed) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", graph, " failed: ", std::string(g.cause.message())));
  }
  return absl::FailedPreconditionError(absl::StrCat("graph ", graph, " is ", GraphStateName(g.state)));
}

absl::StatusOr<std::shared_ptr<GraphEnd>> Coordinator::SessionOfAttempt(const std::string& graph, const std::string& attempt,
                                                                            const std::string& worker,
                                                                            const std::string& incarnation) const {
  MutexLock lock(&mu_);
  const auto it = graphs_.find(graph);
  if (it == graphs_.end() || attempt.empty() || it->second.attempt != attempt) {
    return absl::AbortedError(absl::StrCat("graph ", graph, " has no attempt ", attempt, " here"));
  }
  const GraphRecord& g = it->second;
  const bool member = std::any_of(g.members.begin(), g.members.end(), [&](const GraphMember& m) {
    return m.name == worker && m.incarnation == incarnation && !m.gone;
  });
  if (!member) {
    return absl::AbortedError(absl::StrCat("worker ", worker, " of incarnation ", incarnation, " has no part in graph ", graph));
  }
  if (g.session == nullptr || (!g.cause.ok() && g.settle_at == 0)) {
    return absl::AbortedError(g.cause.ok() ? absl::StrCat("graph ", graph, " is ", GraphStateName(g.state))
                                           : std::string(g.cause.message()));
  }
  return g.session;
}

void Coordinator::CheckProgress(GraphRecord* g, Nanos now, Actions* after) {
  const GraphEnd::Counts counts = g->session->counts();
  int64_t sum = counts.completed + counts.admitted;
  if (counts.admitted > counts.completed) {
    for (const GraphMember& m : g->members) sum += registry_.ProgressOf(m.name);
  }
  if (sum != g->progress || counts.admitted <= counts.completed) {
    g->progress = sum;
    g->progress_at = now;
    g->stall_reported = false;
    g->stalled.clear();
    return;
  }
  const double limit_s = g->plan->options.progress_timeout_s() > 0 ? g->plan->options.progress_timeout_s() : 60.0;
  const double since_s = ToSeconds(now - g->progress_at);
  if (g->stall_reported || since_s < limit_s) return;
  g->stall_reported = true;
  after->Add([this, name = g->name, attempt = g->attempt, since_s, limit_s] { ReportStall(name, attempt, since_s, limit_s); });
}

// Pending calls are not failed: a worker may be slow, or stopped by somebody who will let it go on.
void Coordinator::ReportStall(const std::string& graph, const std::string& attempt, double since_s, double limit_s) {
  Inspect(graph, [this, graph, attempt, since_s, limit_s](v1::InspectReply reply) {
    const std::string text = absl::StrFormat("nothing has moved for %.1f s (progress_timeout_s is %.1f):\n%s", since_s, limit_s,
                                             InspectText(reply, graph));
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g == nullptr || !g->stall_reported) return;
    g->stalled = text;
    spdlog::warn("graph {}: {}", graph, text);
  }).IgnoreError();
}

void Coordinator::LogChangedWorkers() {
  const std::vector<WorkerSnapshot> workers = registry_.List();
  MutexLock lock(&mu_);
  std::map<std::string, WorkerState> before;
  before.swap(logged_states_);
  for (const WorkerSnapshot& s : workers) {
    const auto it = before.find(s.name);
    const WorkerState logged = it == before.end() ? WorkerState::kAlive : it->second;
    logged_states_[s.name] = s.state;
    if (logged == s.state) continue;
    if (s.state == WorkerState::kUnresponsive) {
      spdlog::warn("worker {} is unresponsive: no heartbeat for {:.1f} s; nothing fails for that", s.name, ToSeconds(s.heartbeat_age));
    } else if (s.state == WorkerState::kAlive && logged == WorkerState::kUnresponsive) {
      spdlog::info("worker {} answers again", s.name);
    }
  }
}

}  // namespace weft
