#include "common/session/session_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/session/edge_trial.h"

namespace weft {

absl::StatusOr<std::shared_ptr<SessionCore>> SessionCore::Create(std::shared_ptr<const Plan> plan, Options options) {
  absl::StatusOr<ClientEdges> edges = FindClientEdges(*plan);
  if (!edges.ok()) return edges.status();
  return std::shared_ptr<SessionCore>(new SessionCore(std::move(plan), *std::move(edges), std::move(options)));
}

SessionCore::SessionCore(std::shared_ptr<const Plan> plan, ClientEdges edges, Options options)
    : plan_(std::move(plan)), edges_(std::move(edges)), options_(std::move(options)), stream_(options_.clock) {
  MutexLock lock(&mu_);
  worker_completed_.assign(options_.workers.size(), 0);
}

SessionCore::~SessionCore() = default;

void SessionCore::Connect(SessionPorts ports, Nanos deadline, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(&mu_);
    have_new_ports_ = true;
    new_ports_ = std::move(ports);
    new_deadline_ = deadline;
    new_done_ = std::move(done);
  }
  options_.doorbell->Ring();
}

void SessionCore::Start() {
  {
    MutexLock lock(&mu_);
    started_ = true;
  }
  options_.doorbell->Ring();
}

absl::Status SessionCore::Refusal() const {
  if (!failed_.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", edges_.spec.graph, " failed: ", std::string(failed_.message())));
  }
  if (draining_) return absl::FailedPreconditionError(absl::StrCat("graph ", edges_.spec.graph, " is being torn down"));
  return absl::OkStatus();
}

absl::StatusOr<Session::Ticket> SessionCore::Submit(SessionSubmit submit) {
  const absl::Status fits = CheckInputs(edges_.spec, submit.inputs);
  if (!fits.ok()) return fits;
  v1::SubmitMode mode = submit.mode;
  if (mode == v1::SUBMIT_MODE_UNSPECIFIED) mode = edges_.spec.submit;
  Pending pending;
  pending.submit = std::move(submit);
  if (mode != v1::QUEUE && mode != v1::FAIL_FAST) {
    // An absurd timeout saturates in FromSeconds, so the sum is taken with care.
    const Nanos wait = FromSeconds(edges_.spec.submit_timeout_s);
    const Nanos now = options_.clock->Now();
    pending.give_up = wait > Event::kUnknown - now ? Event::kUnknown : now + wait;
  }
  Ticket ticket = 0;
  {
    MutexLock lock(&mu_);
    const absl::Status refusal = Refusal();
    if (!refusal.ok()) return refusal;
    const int64_t taken = admitted_.load() - completed_.load() + static_cast<int64_t>(queue_.size());
    if (mode == v1::FAIL_FAST && taken >= edges_.spec.max_in_flight) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "graph %s: %d executions are in flight or wait, max_in_flight is %d and the submit mode FAIL_FAST", edges_.spec.graph,
          taken, edges_.spec.max_in_flight));
    }
    ticket = pending.ticket = next_ticket_++;
    queue_.push_back(std::move(pending));
  }
  options_.doorbell->Ring();
  return ticket;
}

void SessionCore::Forget(Ticket ticket) {
  Pending dropped;  // its callbacks are destroyed without the lock
  {
    MutexLock lock(&mu_);
    const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const Pending& p) { return p.ticket == ticket; });
    if (it != queue_.end()) {
      dropped = std::move(*it);
      queue_.erase(it);
    } else if (running_tickets_.count(ticket) > 0) {
      forgotten_.insert(ticket);
    }
  }
  options_.doorbell->Ring();  // a drain may be waiting for this
}

void SessionCore::Fail(const absl::Status& cause) {
  {
    MutexLock lock(&mu_);
    if (!failed_.ok() || cause.ok()) return;
    failed_ = cause;
  }
  options_.doorbell->Ring();
}

absl::Status SessionCore::status() const {
  MutexLock lock(&mu_);
  return failed_;
}

void SessionCore::Drain(std::function<void()> done) {
  {
    MutexLock lock(&mu_);
    draining_ = true;
    drained_.push_back(std::move(done));
  }
  options_.doorbell->Ring();
}

void SessionCore::Pause(std::function<void(int64_t)> done) {
  {
    MutexLock lock(&mu_);
    paused_ = true;
    pause_done_ = std::move(done);
  }
  options_.doorbell->Ring();
}

void SessionCore::Resume() {
  {
    MutexLock lock(&mu_);
    paused_ = false;
    pause_done_ = nullptr;
  }
  options_.doorbell->Ring();
}

std::vector<SessionCore::ExecutionTime> SessionCore::Times(int64_t first) const {
  MutexLock lock(&mu_);
  std::vector<ExecutionTime> times;
  for (const ExecutionTime& t : times_) {
    if (t.execution >= first) times.push_back(t);
  }
  return times;
}

void SessionCore::Progress(int32_t worker, int64_t completed) {
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < options_.workers.size(); ++i) {
      if (options_.workers[i] == worker) worker_completed_[i] = std::max(worker_completed_[i], completed);
    }
  }
  options_.doorbell->Ring();
}

SessionCore::Counts SessionCore::counts() const {
  Counts c;
  // In this order completed never exceeds admitted.
  c.completed = completed_.load();
  c.admitted = admitted_.load();
  MutexLock lock(&mu_);
  c.queued = static_cast<int64_t>(queue_.size());
  return c;
}

std::string SessionCore::OpNameOf(const PlanEdge& e, bool output) const {
  return output ? absl::StrCat("READ ", e.src, ":", e.src_output, " -> ", e.dst)
                : absl::StrCat("WRITE ", e.src, " -> ", e.dst, ":", e.dst_arg);
}

std::vector<SessionCore::EdgeView> SessionCore::View() const {
  std::vector<EdgeView> views;
  if (!ports_visible_.load(std::memory_order_acquire)) return views;
  const Nanos now = options_.clock->Now();
  const int64_t admitted = admitted_.load();
  const auto add = [&](const PlanEdge& e, bool output, int64_t next, Nanos since) {
    EdgeView view;
    view.op = OpNameOf(e, output);
    view.output = output;
    view.execution = next;
    if (next < admitted) {
      view.waits_for = !output                   ? absl::StrCat(WorkerName(*plan_, e.dst_worker), " to release one of ", e.slots, " slots")
                       : next == kTrialExecution ? absl::StrCat(WorkerName(*plan_, e.src_worker), " to try the edge, in bootstrap")
                                                 : absl::StrCat(WorkerName(*plan_, e.src_worker), " to write execution ", next);
      view.since_s = ToSeconds(std::max<Nanos>(0, now - since));
    }
    views.push_back(std::move(view));
  };
  for (size_t i = 0; i < inputs_.size(); ++i) add(*edges_.inputs[i].edge, false, inputs_[i]->next.load(), inputs_[i]->since.load());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    add(*edges_.outputs[i].edge, true, outputs_[i]->next.load(), outputs_[i]->since.load());
  }
  return views;
}

}  // namespace weft
