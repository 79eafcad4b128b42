#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/plan/bootstrap_timeout.h"
#include "driver/cluster/coordinator.h"

namespace weft {
namespace {

using Phase = ReplanRecord::Phase;

constexpr int64_t kDefaultExecutions = 20;
constexpr double kDefaultTimeoutS = 60;

struct Measured {
  int64_t executions = 0;
  double seconds = 0;  // per execution
};

// What the last `most` executions from `first` on took, each from its admission or the end of the one before, whichever came later: pauses
// of the clients do not count.
Measured Measure(const GraphEnd& session, int64_t first, int64_t most) {
  const std::vector<GraphEnd::ExecutionTime> times = session.Times(std::max<int64_t>(0, first - 1));
  Measured m;
  Nanos total = 0;
  for (size_t i = times.size(); i-- > 0 && m.executions < most;) {
    const GraphEnd::ExecutionTime& t = times[i];
    if (t.execution < first) break;
    const bool follows = i > 0 && times[i - 1].execution + 1 == t.execution;
    total += t.done - (follows ? std::max(t.admitted, times[i - 1].done) : t.admitted);
    ++m.executions;
  }
  if (m.executions > 0) m.seconds = ToSeconds(total) / static_cast<double>(m.executions);
  return m;
}

}  // namespace

std::weak_ptr<ReplanRecord> Coordinator::Replan(const std::string& graph, const v1::Costs& costs, int64_t executions, double timeout_s,
                                                ReplanRecord::Done done) {
  auto r = std::make_shared<ReplanRecord>();
  std::shared_ptr<const v1::Graph> source;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (!shut_down_.ok()) {
      status = shut_down_;
    } else if (it == graphs_.end()) {
      status = absl::NotFoundError(absl::StrCat("there is no graph ", graph));
    } else if (it->second.state != GraphState::kReady || it->second.settle_at != 0) {
      status = absl::FailedPreconditionError(absl::StrCat("graph ", graph, " is ", GraphStateName(it->second.state), ", not ready"));
    } else if (it->second.replan != nullptr) {
      status = absl::FailedPreconditionError(absl::StrCat("graph ", graph, " is being re-planned already: ask again when that is over"));
    } else if (recompile_ == nullptr) {
      status = absl::UnimplementedError("this driver cannot re-plan");
    } else {
      r->done = std::move(done);
      r->executions = executions > 0 ? executions : kDefaultExecutions;
      r->timeout_s = timeout_s > 0 ? timeout_s : kDefaultTimeoutS;
      r->old_plan = it->second.plan;
      it->second.replan = r;
      source = it->second.graph;
    }
  }
  if (!status.ok()) {
    done(status);
    return {};
  }
  absl::StatusOr<Recompiled> compiled = recompile_(*source, *r->old_plan, costs);

  Actions after;
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (it == graphs_.end() || it->second.replan != r) return r;  // it has ended meanwhile, and so has this
    GraphRecord* g = &it->second;
    r->reply.set_old_plan(r->old_plan->hash);
    r->reply.set_new_plan(r->old_plan->hash);
    r->reply.set_kept_plan(r->old_plan->hash);
    r->reply.set_swapped_at(-1);
    if (!compiled.ok()) {
      EndReplan(g, compiled.status(), &after);
    } else {
      r->reply.set_old_predicted_s(compiled->old_predicted_s);
      r->reply.set_new_predicted_s(compiled->new_predicted_s);
      if (compiled->plan.hash == r->old_plan->hash || compiled->new_predicted_s >= compiled->old_predicted_s) {
        r->reply.set_reason("no order was found that is predicted to be faster");
        EndReplan(g, absl::OkStatus(), &after);
      } else {
        r->reply.set_new_plan(compiled->plan.hash);
        r->new_plan = std::make_shared<const Plan>(std::move(compiled->plan));
        r->phase = Phase::kMeasuringOld;
        r->from = 1;  // the first execution is unlike the others
        r->deadline = clock_->Now() + FromSeconds(r->timeout_s);
        TickReplan(g, clock_->Now(), &after);
      }
    }
  }
  after.Run();
  return r;
}

void Coordinator::CancelReplan(const std::string& graph, const std::weak_ptr<ReplanRecord>& which) {
  Actions after;
  {
    MutexLock lock(&mu_);
    const std::shared_ptr<ReplanRecord> r = which.lock();
    const auto it = graphs_.find(graph);
    if (r == nullptr || it == graphs_.end() || it->second.replan != r) return;
    if (r->phase == Phase::kMeasuringOld || r->phase == Phase::kLoading) {
      const absl::Status gone = absl::CancelledError(absl::StrCat("graph ", graph, ": the client that asked for a new plan went away"));
      EndReplan(&it->second, gone, &after);
    }
  }
  after.Run();
}

// Tells the client and forgets it. With OK: the reply as it is.
void Coordinator::EndReplan(GraphRecord* g, const absl::Status& status, Actions* after) {
  if (g->replan == nullptr) return;
  const std::shared_ptr<ReplanRecord> r = std::move(g->replan);
  g->replan = nullptr;
  if (status.ok()) {
    const v1::ReplanReply& reply = r->reply;
    spdlog::info("graph {}: re-planned; plan {} instead of {}: predicted {} s and {} s, measured {} s and {} s an execution; {} stays",
                 g->name, reply.new_plan(), reply.old_plan(), reply.new_predicted_s(), reply.old_predicted_s(), reply.new_measured_s(),
                 reply.old_measured_s(), reply.kept_plan());
    after->Add([r] { r->done(r->reply); });
  } else {
    spdlog::warn("graph {}: not re-planned: {}", g->name, std::string(status.message()));
    after->Add([r, status] { r->done(status); });
  }
}

void Coordinator::TickReplan(GraphRecord* g, Nanos now, Actions* after) {
  ReplanRecord* r = g->replan.get();
  const bool overdue = now >= r->deadline;
  switch (r->phase) {
    case Phase::kCompiling:
      return;
    case Phase::kMeasuringOld:
    case Phase::kMeasuringNew:
      return MeasureReplan(g, overdue, after);
    case Phase::kLoading:
      if (!overdue) return;
      return EndReplan(g, absl::DeadlineExceededError(absl::StrCat("graph ", g->name, ": the new plan was not taken in time by worker ",
                                                                   absl::StrJoin(r->waiting, ", "), "; the old plan goes on")),
                       after);
    case Phase::kPausing:
      if (!overdue) return;
      after->Add([session = g->session] { session->Resume(); });
      return EndReplan(
          g, absl::DeadlineExceededError(absl::StrCat("graph ", g->name, ": the driver's end did not pause; the old plan goes on")), after);
    case Phase::kSwapping:
      if (!overdue) return;
      r->failure = absl::DeadlineExceededError(absl::StrFormat(
          "graph %s: the executions in flight were not done within %g s on worker %s, so that it could not change its plan; it goes on by "
          "plan %s: raise the timeout",
          g->name, r->timeout_s, absl::StrJoin(r->waiting, ", "), r->from_plan()->hash));
      return SendSwaps(g, Phase::kRollingBack, after);
    case Phase::kRollingBack:
      if (!overdue) return;
      return Fail(g, absl::DeadlineExceededError(absl::StrCat("graph ", g->name, ": worker ", absl::StrJoin(r->waiting, ", "),
                                                              " has not gone back to its plan after: ", std::string(r->failure.message()))),
                  false, after);
  }
}

void Coordinator::MeasureReplan(GraphRecord* g, bool overdue, Actions* after) {
  ReplanRecord* r = g->replan.get();
  const bool old = r->phase == Phase::kMeasuringOld;
  if (g->state != GraphState::kReady) {
    return EndReplan(g, absl::FailedPreconditionError(absl::StrCat("graph ", g->name, " is ", GraphStateName(g->state))), after);
  }
  const Measured m = Measure(*g->session, r->from, r->executions);
  if (m.executions < r->executions && !overdue) return;
  if (old) {
    if (m.executions < r->executions) {
      return EndReplan(g, absl::DeadlineExceededError(absl::StrFormat(
                              "graph %s: only %d of %d executions to measure were done within %g s; the plan stays: execute the graph "
                              "meanwhile, ask for fewer executions, or raise the timeout",
                              g->name, m.executions, r->executions, r->timeout_s)),
                       after);
    }
    r->reply.set_old_measured_s(m.seconds);
    r->reply.set_old_executions(static_cast<int32_t>(m.executions));
    return LoadReplan(g, after);
  }
  r->reply.set_new_measured_s(m.executions > 0 ? m.seconds : 0);
  r->reply.set_new_executions(static_cast<int32_t>(m.executions));
  if (m.executions < r->executions) {
    r->reply.set_reason(absl::StrFormat("only %d of %d executions to measure were done by the new plan within %g s", m.executions,
                                        r->executions, r->timeout_s));
  } else if (m.seconds < r->reply.old_measured_s()) {
    r->reply.set_kept_plan(r->new_plan->hash);
    return EndReplan(g, absl::OkStatus(), after);
  } else {
    r->reply.set_reason("the new plan was measured to be no faster");
  }
  r->back = true;
  PauseReplan(g, after);
}

// The part of each worker is shipped; what it runs is not touched yet.
void Coordinator::LoadReplan(GraphRecord* g, Actions* after) {
  const std::shared_ptr<ReplanRecord> r = g->replan;
  r->phase = Phase::kLoading;
  const double timeout_s = BootstrapTimeoutS(g->plan->options);
  r->deadline = clock_->Now() + FromSeconds(timeout_s);
  for (const GraphMember& m : g->members) r->waiting.insert(m.name);
  for (GraphMember& m : g->members) {
    for (v1::DriverMessage& message : NextPlanMessages(*r->new_plan, m.index, g->attempt)) {
      SendToMember(g, &m, std::move(message), after);
      if (g->replan != r) return;  // the graph has failed
    }
  }
}

void Coordinator::NextPlanAnswered(GraphRecord* g, const GraphMember& member, const absl::Status& status, Actions* after) {
  ReplanRecord* r = g->replan.get();
  if (r == nullptr || r->phase != Phase::kLoading || g->settle_at != 0) return;
  if (!status.ok()) {
    const std::string why = absl::StrCat("graph ", g->name, ": worker ", member.name,
                                         " cannot change to the new plan: ", std::string(status.message()), "; the old plan goes on");
    return EndReplan(g, absl::Status(status.code(), why), after);
  }
  r->waiting.erase(member.name);
  if (r->waiting.empty()) PauseReplan(g, after);
}

void Coordinator::PauseReplan(GraphRecord* g, Actions* after) {
  ReplanRecord* r = g->replan.get();
  r->phase = Phase::kPausing;
  r->deadline = clock_->Now() + FromSeconds(r->timeout_s);
  after->Add([this, session = g->session, name = g->name, attempt = g->attempt] {
    session->Pause([this, name, attempt](int64_t admitted) { ReplanPaused(name, attempt, admitted); });
  });
}

void Coordinator::ReplanPaused(const std::string& graph, const std::string& attempt, int64_t admitted) {
  Actions after;
  {
    MutexLock lock(&mu_);
    GraphRecord* g = FindAttempt(graph, attempt);
    if (g == nullptr || g->replan == nullptr || g->replan->phase != Phase::kPausing || g->settle_at != 0) return;
    g->replan->swap_at = admitted;
    SendSwaps(g, Phase::kSwapping, &after);
  }
  after.Run();
}

// All workers change, each once it has done what was admitted; or go back.
void Coordinator::SendSwaps(GraphRecord* g, ReplanRecord::Phase phase, Actions* after) {
  const std::shared_ptr<ReplanRecord> r = g->replan;
  r->phase = phase;
  r->deadline = clock_->Now() + FromSeconds(r->timeout_s);
  r->waiting.clear();
  for (const GraphMember& m : g->members) r->waiting.insert(m.name);
  v1::DriverMessage message;
  message.mutable_swap()->set_graph(g->name);
  message.mutable_swap()->set_attempt(g->attempt);
  message.mutable_swap()->set_plan_hash(phase == Phase::kSwapping ? r->to_plan()->hash : r->from_plan()->hash);
  message.mutable_swap()->set_execution(r->swap_at);
  for (GraphMember& m : g->members) {
    SendToMember(g, &m, message, after);
    if (g->replan != r) return;
  }
}

void Coordinator::SwapAnswered(GraphRecord* g, const GraphMember& member, const std::string& hash, const absl::Status& status,
                               Actions* after) {
  ReplanRecord* r = g->replan.get();
  if (r == nullptr || g->settle_at != 0) return;
  const bool swapping = r->phase == Phase::kSwapping;
  if (!swapping && r->phase != Phase::kRollingBack) return;
  if (hash != (swapping ? r->to_plan() : r->from_plan())->hash) return;  // of a change that is given up
  if (!status.ok() && !swapping) {
    return Fail(g, absl::Status(status.code(), absl::StrCat("graph ", g->name, ": worker ", member.name, " could not go back to its plan: ",
                                                            std::string(status.message()), "; it had to, since: ",
                                                            std::string(r->failure.message()))),
                false, after);
  }
  if (!status.ok() && r->failure.ok()) {
    r->failure = absl::Status(status.code(), absl::StrCat("graph ", g->name, ": worker ", member.name,
                                                          " did not change its plan: ", std::string(status.message()),
                                                          "; the graph goes on by plan ", r->from_plan()->hash));
  }
  r->waiting.erase(member.name);
  if (!r->waiting.empty()) return;
  if (swapping && !r->failure.ok()) return SendSwaps(g, Phase::kRollingBack, after);
  after->Add([session = g->session] { session->Resume(); });
  if (!swapping) return EndReplan(g, r->failure, after);
  g->plan = r->to_plan();
  if (r->back) return EndReplan(g, absl::OkStatus(), after);
  r->reply.set_swapped_at(r->swap_at);
  r->phase = Phase::kMeasuringNew;
  // Until as many are through as can be in flight, the change itself still shows.
  r->from = r->swap_at + std::max(1, g->plan->options.max_in_flight());
  r->deadline = clock_->Now() + FromSeconds(r->timeout_s);
}

}  // namespace weft
