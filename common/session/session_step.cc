#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/session/edge_trial.h"
#include "common/session/session_core.h"

namespace weft {
namespace {

constexpr size_t kTimesKept = 4096;

// What stands in an output's place when the session itself could not take it.
TaskErrorRef OwnError(const std::string& output, int64_t execution, const absl::Status& why) {
  auto error = std::make_shared<TaskError>();
  error->worker = kClientPlace;
  error->node = output;
  error->execution = execution;
  error->code = why.code();
  error->message = absl::StrCat("output ", output, ": ", std::string(why.message()));
  return error;
}

void WakeAt(const EventRef& event, Nanos* until) {
  if (event != nullptr) *until = std::min(*until, event->ReadyAt());
}

}  // namespace

bool SessionCore::Step(Nanos* until) {
  {
    MutexLock lock(&mu_);
    if (have_new_ports_) {
      have_new_ports_ = false;
      const Nanos now = options_.clock->Now();
      for (auto& port : new_ports_.inputs) {
        inputs_.push_back(std::make_unique<InputState>());
        inputs_.back()->port = std::move(port);
        inputs_.back()->since.store(now);
      }
      for (auto& port : new_ports_.outputs) {
        outputs_.push_back(std::make_unique<OutputState>());
        outputs_.back()->port = std::move(port);
        outputs_.back()->since.store(now);
      }
      links_ = std::move(new_ports_.links);
      new_ports_ = SessionPorts();
      try_deadline_ = new_deadline_;
      try_done_ = std::move(new_done_);
      new_done_ = nullptr;
      trying_ = true;
      connected_ = true;
      ports_visible_.store(true, std::memory_order_release);
    }
  }
  bool busy = Deliver();
  if (delivered_) return busy;
  if (trying_) return TryEdges(until) || busy;
  if (!connected_) return busy;
  busy |= Admit(until);
  busy |= WriteInputs(until);
  busy |= ReadOutputs(until);
  busy |= Complete();
  CheckLinks();
  return busy;
}

// Ends all that is pending with the cause, once.
bool SessionCore::Deliver() {
  absl::Status cause;
  std::deque<Pending> queue;
  std::vector<std::function<void()>> drained;
  {
    MutexLock lock(&mu_);
    cause = failed_;
    if (cause.ok()) {
      if (draining_ && queue_.empty() && running_.empty()) drained.swap(drained_);
    } else {
      drained.swap(drained_);
      queue.swap(queue_);
      running_tickets_.clear();
      for (Running& r : running_) {
        if (forgotten_.count(r.ticket) > 0) r.submit.done = nullptr;
      }
      forgotten_.clear();
    }
  }
  if (cause.ok()) {
    for (const auto& done : drained) done();
    return !drained.empty();
  }
  const bool first = !delivered_;
  delivered_ = true;
  for (const auto& link : links_) link->Close(cause);
  links_.clear();
  const std::deque<Running> running = std::move(running_);
  running_.clear();
  for (const Running& r : running) {
    if (r.submit.done) r.submit.done(cause);
  }
  for (const Pending& p : queue) {
    if (p.submit.done) p.submit.done(cause);
  }
  if (trying_) {
    trying_ = false;
    if (auto done = std::exchange(try_done_, nullptr)) done(cause);
  }
  for (const auto& done : drained) done();
  return first;
}

// Each edge carries one value ahead of execution 0, both to see that it works and so that nothing is connected for the first time
// in the middle of the first execution.
bool SessionCore::TryEdges(Nanos* until) {
  bool busy = false;
  absl::Status failure;
  std::vector<std::string> missing;
  for (size_t i = 0; i < inputs_.size() && failure.ok(); ++i) {
    InputState& in = *inputs_[i];
    const PlanEdge& e = *edges_.inputs[i].edge;
    if (in.next.load() >= 0) continue;
    missing.push_back(EdgeName(*plan_, e));
    const PortState state = in.port->Poll(kTrialExecution);
    if (state == PortState::kClosed) {
      failure = in.port->closed();
    } else if (state == PortState::kReady) {
      absl::StatusOr<EventRef> event = in.port->Send(kTrialExecution, TrialValue(e.id), &stream_);
      if (!event.ok()) {
        failure = event.status();
      } else {
        in.event = *event;
        in.next.store(0);
        missing.pop_back();
        busy = true;
      }
    }
  }
  for (size_t i = 0; i < outputs_.size() && failure.ok(); ++i) {
    if (outputs_[i]->next.load() >= 0) continue;
    const PlanEdge& e = *edges_.outputs[i].edge;
    missing.push_back(EdgeName(*plan_, e));
    SessionOutput value;
    if (!Take(i, kTrialExecution, /*discard=*/true, &value, &failure, until)) continue;
    Value trial;
    trial.error = value.error;
    failure = CheckTrialValue(trial, e.id, EdgeName(*plan_, e));
    missing.pop_back();
    busy = true;
  }
  if (failure.ok() && !missing.empty() && options_.clock->Now() >= try_deadline_) {
    failure = absl::DeadlineExceededError(absl::StrCat("the trial message has not come through on ", absl::StrJoin(missing, ", ")));
  }
  if (failure.ok() && !missing.empty()) {
    for (const auto& link : links_) {
      if (failure.ok()) failure = link->closed();
    }
    *until = std::min(*until, try_deadline_);
    if (failure.ok()) return busy;
  }
  trying_ = false;
  connected_ = failure.ok();  // otherwise nothing is admitted over edges that do not work
  if (auto done = std::exchange(try_done_, nullptr)) done(failure);
  return true;
}

bool SessionCore::Admit(Nanos* until) {
  bool busy = false;
  std::vector<Pending> late;
  std::vector<std::pair<std::function<void(int64_t)>, int64_t>> tell;
  std::function<void(int64_t)> paused;
  {
    MutexLock lock(&mu_);
    const Nanos now = options_.clock->Now();
    while (started_ && !paused_ && !queue_.empty() && running_.size() < static_cast<size_t>(edges_.spec.max_in_flight)) {
      Pending p = std::move(queue_.front());
      queue_.pop_front();
      Running r;
      r.ticket = p.ticket;
      r.execution = admitted_.load();
      r.submit = std::move(p.submit);
      r.outputs.resize(edges_.spec.outputs.size());
      r.missing = static_cast<int>(outputs_.size());
      r.admitted = now;
      if (running_.empty()) {
        // Idle until now: what is waited for is waited for since now.
        for (auto& in : inputs_) in->since.store(now);
        for (auto& out : outputs_) out->since.store(now);
      }
      admitted_.store(r.execution + 1);
      running_tickets_.insert(r.ticket);
      if (r.submit.admitted) tell.emplace_back(std::move(r.submit.admitted), r.execution);
      running_.push_back(std::move(r));
      busy = true;
    }
    if (pause_done_) paused = std::exchange(pause_done_, nullptr);
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (now >= it->give_up) {
        late.push_back(std::move(*it));
        it = queue_.erase(it);
      } else {
        *until = std::min(*until, it->give_up);
        ++it;
      }
    }
  }
  for (const auto& [admitted, execution] : tell) admitted(execution);
  if (paused) {
    busy = true;
    paused(admitted_.load());
  }
  for (const Pending& p : late) {
    busy = true;
    if (!p.submit.done) continue;
    p.submit.done(absl::DeadlineExceededError(absl::StrFormat(
        "graph %s: no free place within submit_timeout_s = %g: %d executions are in flight, max_in_flight is %d", edges_.spec.graph,
        edges_.spec.submit_timeout_s, running_.size(), edges_.spec.max_in_flight)));
  }
  const int64_t highest = admitted_.load() - 1;
  if (highest != published_) {
    published_ = highest;
    for (const auto& link : links_) link->Publish(highest);
  }
  return busy;
}

bool SessionCore::WriteInputs(Nanos* until) {
  bool busy = false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    InputState& in = *inputs_[i];
    while (in.next.load() < admitted_.load() && !link_failed_) {
      if (!IsReady(in.event)) {
        WakeAt(in.event, until);
        break;
      }
      const int64_t execution = in.next.load();
      // An execution stays in running_ until it is done, and with an input to write it cannot be done; but one whose outputs do not
      // depend on this input can.
      const int64_t index = running_.empty() ? -1 : execution - running_.front().execution;
      const PortState state = in.port->Poll(execution);
      if (state == PortState::kClosed) {
        LinkFailed(in.port->closed());
        break;
      }
      if (state != PortState::kReady) break;
      Value value;
      if (index < 0) {
        value.tensor = kept_.count(execution) > 0 ? kept_[execution][edges_.inputs[i].value] : Tensor();
      } else {
        value.tensor = running_[index].submit.inputs[edges_.inputs[i].value];
      }
      absl::StatusOr<EventRef> event = in.port->Send(execution, value, &stream_);
      if (!event.ok()) {
        LinkFailed(event.status());
        break;
      }
      in.event = *event;
      in.sending = value.tensor;
      in.next.store(execution + 1);
      in.since.store(options_.clock->Now());
      busy = true;
    }
  }
  // Inputs of finished executions are kept only until every edge has written them.
  while (!kept_.empty()) {
    const int64_t execution = kept_.begin()->first;
    const bool written = std::all_of(inputs_.begin(), inputs_.end(), [&](const auto& in) { return in->next.load() > execution; });
    if (!written) break;
    kept_.erase(kept_.begin());
  }
  return busy;
}

bool SessionCore::Take(size_t index, int64_t execution, bool discard, SessionOutput* value, absl::Status* error, Nanos* until) {
  OutputState& out = *outputs_[index];
  const PlanEdge& e = *edges_.outputs[index].edge;
  if (!out.receiving) {
    const PortState state = out.port->Poll(execution);
    if (state == PortState::kClosed) *error = out.port->closed();
    if (state != PortState::kReady) return false;
    if (!out.port->ZeroCopy() && !out.buffer.defined()) {
      absl::StatusOr<Tensor> buffer = Tensor::OnHost(e.spec.dtype, e.spec.shape.MaxDims());
      if (!buffer.ok()) {
        *error = buffer.status();
        return false;
      }
      out.buffer = *buffer;
    }
    out.value = Value();
    absl::StatusOr<EventRef> event = out.port->Recv(execution, out.buffer, &out.value, &stream_);
    if (!event.ok()) {
      *error = event.status();
      return false;
    }
    out.event = *event;
    out.receiving = true;
  }
  if (!IsReady(out.event)) {
    WakeAt(out.event, until);
    return false;
  }
  if (!IsReady(out.value.event)) {
    WakeAt(out.value.event, until);
    return false;
  }
  out.receiving = false;
  // Copied out at once: a client that reads slowly must not hold a slot that others' executions need.
  value->error = out.value.error;
  if (value->error == nullptr && !discard) {
    absl::StatusOr<Tensor> copy = Tensor::OnHost(out.value.tensor.dtype(), out.value.tensor.dims());
    if (copy.ok()) {
      if (copy->bytes() > 0) std::memcpy(copy->data(), out.value.tensor.data(), copy->bytes());
      value->tensor = *copy;
    } else {
      value->error = OwnError(e.dst, execution, copy.status());
    }
  }
  out.value = Value();
  out.event = nullptr;
  out.port->Release(execution);
  out.next.store(execution + 1);
  out.since.store(options_.clock->Now());
  return true;
}

bool SessionCore::ReadOutputs(Nanos* until) {
  bool busy = false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    while (outputs_[i]->next.load() < admitted_.load() && !link_failed_) {
      const int64_t execution = outputs_[i]->next.load();
      Running& r = running_[execution - running_.front().execution];
      absl::Status error;
      if (!Take(i, execution, r.submit.discard_outputs || !r.submit.done, &r.outputs[edges_.outputs[i].value], &error, until)) {
        if (!error.ok()) LinkFailed(error);
        break;
      }
      --r.missing;
      busy = true;
    }
  }
  return busy;
}

bool SessionCore::Complete() {
  bool busy = false;
  int64_t workers_done = Event::kUnknown;
  if (outputs_.empty()) {
    MutexLock lock(&mu_);
    workers_done = worker_completed_.empty() ? 0 : *std::min_element(worker_completed_.begin(), worker_completed_.end());
  }
  while (!running_.empty() && running_.front().missing == 0 && running_.front().execution < workers_done) {
    Running r = std::move(running_.front());
    running_.pop_front();
    bool unwritten = false;
    for (const auto& in : inputs_) unwritten |= in->next.load() <= r.execution;
    if (unwritten) kept_[r.execution] = r.submit.inputs;
    const Nanos now = options_.clock->Now();
    {
      MutexLock lock(&mu_);
      if (times_.size() == kTimesKept) times_.pop_front();
      times_.push_back({r.execution, r.admitted, now});
      running_tickets_.erase(r.ticket);
      if (forgotten_.erase(r.ticket) > 0) r.submit.done = nullptr;
    }
    completed_.store(r.execution + 1);
    busy = true;
    if (r.submit.done) {
      SessionResult result;
      result.execution = r.execution;
      result.outputs = std::move(r.outputs);
      result.admitted = r.admitted;
      result.done = now;
      r.submit.done(std::move(result));
    }
  }
  return busy;
}

void SessionCore::CheckLinks() {
  if (link_failed_) return;
  for (const auto& link : links_) {
    const absl::Status closed = link->closed();
    if (closed.ok()) continue;
    LinkFailed(closed);
    return;
  }
}

void SessionCore::LinkFailed(const absl::Status& why) {
  if (link_failed_) return;
  link_failed_ = true;
  if (options_.on_link_failed) options_.on_link_failed(why);
}

}  // namespace weft
