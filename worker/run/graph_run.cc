#include "worker/run/graph_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<GraphRun>> GraphRun::Create(LoadedGraph loaded, const Options& options) {
  // The program points into the plan, so it is built from the plan at its final place.
  std::unique_ptr<GraphRun> run(new GraphRun(std::move(loaded), options));
  WEFT_ASSIGN_OR_RETURN(run->program_, BuildProgram(run->loaded_.plan));
  const absl::Status prepared = run->Prepare();
  if (prepared.ok()) return run;
  // NCCL's thread may yet put there what was about to be captured.
  for (Lane& l : run->lanes_) {
    if (run->loaded_.keep) run->loaded_.keep(std::move(l.stream));
  }
  return prepared;
}

GraphRun::GraphRun(LoadedGraph loaded, const Options& options)
    : loaded_(std::move(loaded)),
      clock_(options.clock),
      device_(options.device),
      attempt_(options.attempt),
      trace_(options.trace_capacity) {}

GraphRun::~GraphRun() {
  captured_ = nullptr;
  // Ports and groups may still hold pointers into slots: they go first.
  loaded_.senders.clear();
  loaded_.receivers.clear();
  loaded_.groups.clear();
}

bool GraphRun::Step() {
  bool any = false;
  Enter(LoopCall::kGraph);
  if (failure_.ok()) {
    admitted_ = std::max(admitted_, loaded_.admitted());
    if (loaded_.link_health) {
      const absl::Status health = loaded_.link_health();
      if (!health.ok()) {
        Fail(health);
        return true;
      }
    }
  }
  if (captured_ != nullptr) return StepCaptured();
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t l = 0; l < lanes_.size(); ++l) {
      while (CompleteFront(&lanes_[l])) moved = true;
      while (failure_.ok() && IssueHead(&lanes_[l], static_cast<int>(l))) moved = true;
    }
    any |= moved;
  }
  if (any || lanes_.empty()) UpdateCompleted();
  return any;
}

bool GraphRun::StepCaptured() {
  if (!failure_.ok()) return captured_->Settle();
  Enter(LoopCall::kIterations, -1, captured_->launched());
  const absl::StatusOr<bool> moved = captured_->Step(Allowed());
  completed_ = captured_->completed();
  progress_ = captured_->progress();
  if (moved.ok()) return *moved;
  Fail(moved.status());
  return true;
}

bool GraphRun::CompleteFront(Lane* lane) {
  std::deque<Outstanding>& queue = lane->outstanding;
  if (queue.empty()) return false;
  Enter(LoopCall::kComplete, queue.front().op, queue.front().execution);
  size_t done = 0;
  if (lane->in_order && queue.size() > 1) {
    // One question to the device instead of one for each op.
    for (size_t i = queue.size(); i > 1 && done == 0; --i) {
      if (queue[i - 1].event == nullptr) continue;
      if (!IsReady(queue[i - 1].event)) break;
      done = i;
    }
  }
  if (done == 0 && !IsReady(queue.front().event)) {
    // What the front waits for may be what the host has yet to do for one behind it.
    for (size_t i = 1; i < queue.size() && !lane->in_order; ++i) {
      if (queue[i].event != nullptr) queue[i].event->MoveOn();
    }
    return false;
  }
  if (failure_.ok()) {
    // On a broken device every event is ready, though nothing was done.
    const absl::Status health = device_->Health();
    if (!health.ok()) {
      Fail(health);
      return false;
    }
  }
  for (done = std::max<size_t>(done, 1); done > 0; --done) {
    const Outstanding o = std::move(queue.front());
    queue.pop_front();
    Complete(o, lane);
  }
  return true;
}

DeviceStatus* GraphRun::StatusOf(int i, int64_t k) const {
  const OpState& s = state_[i];
  const LocalOp& op = program_.ops[i];
  if (!status_words_ || s.buffers.empty()) return nullptr;
  char* const memory = static_cast<char*>(s.buffers[k % op.slots].get());
  const size_t bytes = op.edge != nullptr ? op.edge->bytes : op.group->output.MaxBytes();
  return memory == nullptr ? nullptr : reinterpret_cast<DeviceStatus*>(memory + StatusOffset(bytes));
}

EventRef GraphRun::EventOf(int i, int64_t k) const {
  const OpState& s = state_[i];
  return s.done > k || s.events.empty() ? nullptr : s.events[k - s.done];
}

bool GraphRun::WaitHolds(const LocalWait& w, int64_t k, Stream* stream) const {
  const int64_t needed = k - w.distance;  // executions 0..needed of w.op must be done
  const OpState& s = state_[w.op];
  if (s.done > needed) return true;
  if (w.same_lane && device_->Polls()) return s.issued > needed;
  if (s.issued <= needed || s.events.empty()) return false;
  const EventRef& e = s.events[needed - s.done];
  if (!device_->CanWaitFor(e)) return false;
  if (stream != nullptr) stream->WaitFor(e);
  return true;
}

GraphRun::Blocked GraphRun::WhyBlocked(const LocalOp& op, const OpState& state, int64_t k, int* which_wait) const {
  if (!failure_.ok()) return Blocked::kFailed;
  if (k > Allowed()) return Blocked::kAdmission;
  for (size_t i = 0; i < op.waits.size(); ++i) {
    if (!WaitHolds(op.waits[i], k, nullptr)) {
      *which_wait = static_cast<int>(i);
      return Blocked::kWait;
    }
  }
  if (state.sender != nullptr && state.sender->Poll(k) != PortState::kReady) return Blocked::kPort;
  if (state.receiver != nullptr && state.receiver->Poll(k) != PortState::kReady) return Blocked::kPort;
  if (state.loads && loaded_.owes && loaded_.owes()) return Blocked::kLoads;
  return Blocked::kNot;
}

bool GraphRun::IssueHead(Lane* lane, int lane_index) {
  if (static_cast<int>(lane->outstanding.size()) >= device_->QueueDepth()) return false;
  // This op's waits go on the stream now: an op of before that comes there later would stand behind them, and perhaps wait for ever.
  if (!lane->outstanding.empty() && lane->outstanding.back().event != nullptr && !lane->outstanding.back().event->Queued()) return false;
  const LocalLane& queue = program_.lanes[lane_index];
  const int i = queue.ops[lane->position];
  const LocalOp& op = program_.ops[i];
  const int64_t k = lane->execution;
  int which = 0;
  Enter(LoopCall::kPoll, i, k);
  const Blocked blocked = WhyBlocked(op, state_[i], k, &which);
  if (blocked == Blocked::kPort) {
    const absl::Status closed = state_[i].sender != nullptr ? state_[i].sender->closed() : state_[i].receiver->closed();
    if (!closed.ok()) {
      Fail(absl::Status(closed.code(), absl::StrCat(Describe(op), " on ", worker_, ", execution ", k, ": ", std::string(closed.message()))));
    }
  }
  if (blocked != Blocked::kNot) return false;
  for (const LocalWait& w : op.waits) WaitHolds(w, k, lane->stream.get());

  Outstanding out;
  out.op = i;
  out.execution = k;
  out.start = clock_->Now();
  AtTime(out.start);
  Enter(LoopCall::kIssue, i, k);
  if (trace_.enabled()) out.mark = device_->Mark(lane->stream.get());
  absl::Status s;
  if (loaded_.plan.options.poison_released() && device_->QueueDepth() > 1) s = PoisonAhead(i, k, lane);
  if (s.ok()) {
    const DeviceRange range(ranges_ ? device_ : nullptr, ranges_ ? absl::StrCat(name(), ": ", Describe(op)) : std::string());
    s = Issue(i, k, lane, &out);
  }
  if (!s.ok()) {
    Fail(absl::Status(s.code(), absl::StrCat(Describe(op), " on ", worker_, ", execution ", k, ": ", std::string(s.message()))));
    return false;
  }
  ++state_[i].issued;
  lane->since = out.start;
  if (device_->QueueDepth() > 1) state_[i].events.push_back(out.event);
  if (++lane->position == queue.ops.size()) {
    lane->position = 0;
    ++lane->execution;
  }
  lane->outstanding.push_back(std::move(out));
  return true;
}

void GraphRun::Complete(const Outstanding& o, Lane* lane) {
  const LocalOp& op = program_.ops[o.op];
  OpState& s = state_[o.op];
  Enter(LoopCall::kComplete, o.op, o.execution);
  if (op.plan->kind == v1::COMPUTE && o.ran && !o.finished) FinishCompute(o.op, o.execution);
  if (s.group != nullptr && failure_.ok()) {
    const absl::Status health = s.group->Health();
    if (!health.ok()) Fail(absl::Status(health.code(), absl::StrCat(Describe(op), " on ", worker_, ", execution ", o.execution, ": ",
                                                                    std::string(health.message()))));
  }
  if (s.receiver != nullptr && failure_.ok()) s.receiver->Arrived(o.execution);
  ++s.done;
  if (!s.events.empty()) s.events.erase(s.events.begin());
  ++progress_;
  const Nanos now = clock_->Now();
  AtTime(now);
  lane->since = now;
  bool error = false;
  if (!op.outputs.empty()) {
    error = ValuesOf(o.op, o.execution)[0].error != nullptr;
    Unhold(o.op, o.execution);
  }
  if (trace_.enabled()) {
    const Nanos began = std::max(o.event != nullptr ? o.event->StartedAt() : -1, o.mark != nullptr ? device_->TimeOf(o.mark) : -1);
    const Nanos ended = o.mark != nullptr && o.event != nullptr ? device_->TimeOf(o.event) : -1;
    const Nanos start = std::clamp(began, o.start, now);
    trace_.Add({op.plan->id, error, o.execution, start, ended < 0 ? now : std::clamp(ended, start, now)});
  }
  // This op reads its arguments no more.
  std::vector<int> released;
  const auto release = [&](int from) {
    if (std::find(released.begin(), released.end(), from) != released.end()) return;
    released.push_back(from);
    Unhold(from, o.execution);
  };
  for (const LocalArg& a : op.args) release(a.op);
  for (const LocalWait& w : op.waits) {
    const LocalOp& from = program_.ops[w.op];
    if (w.reason == v1::PlanWait::CONTROL && from.edge != nullptr && from.edge->control) release(w.op);
  }
}

void GraphRun::Unhold(int i, int64_t k) {
  OpState& s = state_[i];
  --s.made[k - s.first_made].holders;
  while (!s.made.empty() && s.made.front().holders == 0) {
    Release(i, s.first_made, &s.made.front());
    s.made.pop_front();
    ++s.first_made;
  }
}

void GraphRun::Release(int i, int64_t k, Made* made) {
  OpState& s = state_[i];
  if (loaded_.plan.options.poison_released() && device_->QueueDepth() == 1 && (s.receiver == nullptr || !s.receiver->ZeroCopy())) {
    for (Value& v : made->values) {
      if (v.tensor.defined() && v.tensor.bytes() > 0) std::memset(v.tensor.data(), kReleasedPattern, v.tensor.bytes());
    }
  }
  made->values.clear();
  if (s.receiver != nullptr && failure_.ok()) s.receiver->Release(k);
}

TaskErrorRef GraphRun::MakeError(int i, int64_t k, const absl::Status& s) const {
  auto e = std::make_shared<TaskError>();
  const LocalOp& op = program_.ops[i];
  e->worker = worker_;
  e->node = op.node != nullptr ? op.node->name : op.edge != nullptr ? op.edge->src : op.group->name;
  e->execution = k;
  e->code = s.code();
  e->message = std::string(s.message());
  return e;
}

void GraphRun::UpdateCompleted() {
  int64_t completed = INT64_MAX;
  for (size_t l = 0; l < lanes_.size(); ++l) {
    completed = std::min(completed, state_[program_.lanes[l].ops.back()].done);
  }
  if (lanes_.empty()) completed = Allowed() + 1;
  completed_ = completed;
}

void GraphRun::Pause(bool paused, bool admitted) {
  if (!paused) {
    most_ = INT64_MAX;
    return;
  }
  if (most_ == INT64_MAX) {
    most_ = captured_ != nullptr ? captured_->launched() - 1 : completed_ - 1;
    for (const Lane& lane : lanes_) {
      if (captured_ == nullptr) most_ = std::max(most_, lane.position > 0 ? lane.execution : lane.execution - 1);
    }
  }
  if (admitted) most_ = std::max(most_, admitted_);
}

Nanos GraphRun::NextTime() const {
  Nanos next = Event::kUnknown;
  for (const Lane& lane : lanes_) {
    if (!lane.outstanding.empty() && lane.outstanding.front().event != nullptr) {
      next = std::min(next, lane.outstanding.front().event->ReadyAt());
    }
  }
  return next;
}

bool GraphRun::InFlight() const {
  if (captured_ != nullptr && captured_->InFlight()) return true;
  for (const Lane& lane : lanes_) {
    if (!lane.outstanding.empty()) return true;
  }
  return completed_ <= Allowed() && failure_.ok();
}

bool GraphRun::MustPoll() const {
  if (!device_->Polls()) return false;
  if (captured_ != nullptr) return captured_->InFlight();
  for (const Lane& lane : lanes_) {
    if (!lane.outstanding.empty()) return true;
  }
  return false;
}

absl::Status GraphRun::DeviceHealth() const {
  // Nobody may have asked the device since it broke. Not while it rests: then it may be giving memory back, which holds up every call.
  if (const auto* const cuda = dynamic_cast<const CudaDevice*>(device_); cuda != nullptr && !lanes_.empty() && InFlight()) {
    (void)cuda->IsIdle(lanes_[0].stream->native());
  }
  return device_->Health();
}

void GraphRun::Fail(const absl::Status& cause) {
  if (!failure_.ok()) return;
  failure_ = cause.ok() ? absl::CancelledError("the graph was removed") : cause;
  // What a launch or NCCL says of a broken device is a consequence; peers are told of the device's error too.
  const absl::Status health = DeviceHealth();
  if (!health.ok() && !absl::StrContains(failure_.message(), health.message())) {
    failure_ = absl::Status(health.code(), absl::StrCat(std::string(failure_.message()), "; ", std::string(health.message())));
  }
  Enter(LoopCall::kFail);
  for (auto& [id, group] : loaded_.groups) group->Abort(failure_);
  if (loaded_.close_links) loaded_.close_links(failure_);
  if (captured_ != nullptr) captured_->Stop();
  Enter(LoopCall::kGraph);
}

bool GraphRun::Quiescent() {
  if (captured_ != nullptr) return captured_->Quiescent();
  // Every event comes: a call of an actor ends, and a closed link or aborted group makes its events ready. Until then some thread may
  // still fill a value or read a buffer.
  for (Lane& lane : lanes_) {
    for (const Outstanding& o : lane.outstanding) {
      if (!IsReady(o.event)) return false;
    }
  }
  return true;
}

}  // namespace weft
