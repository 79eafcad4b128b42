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
  WEFT_RETURN_IF_ERROR(run->Prepare());
  return run;
}

GraphRun::GraphRun(LoadedGraph loaded, const Options& options)
    : loaded_(std::move(loaded)),
      clock_(options.clock),
      device_(options.device),
      trace_(options.trace_capacity) {}

GraphRun::~GraphRun() {
  captured_ = nullptr;
  // Ports and groups may still hold pointers into slots: they go first.
  loaded_.senders.clear();
  loaded_.receivers.clear();
  loaded_.groups.clear();
}

absl::Status GraphRun::Prepare() {
  worker_ = WorkerName(loaded_.plan, loaded_.plan.part_of);
  status_words_ = UsesStatusWords(loaded_.plan) && device_->kind() == "cuda";
  ranges_ = trace_.enabled() && device_->HasRanges();
  state_.resize(program_.ops.size());
  for (size_t i = 0; i < program_.ops.size(); ++i) WEFT_RETURN_IF_ERROR(PrepareOp(static_cast<int>(i)));
  const Nanos now = clock_->Now();
  for (const LocalLane& l : program_.lanes) {
    Lane lane;
    WEFT_ASSIGN_OR_RETURN(lane.stream, device_->NewStream(l.kind));
    lane.in_order = device_->Polls() && l.kind == v1::LANE_COMPUTE;
    lane.since = now;
    lanes_.push_back(std::move(lane));
  }
  return IsCaptured(loaded_.plan, loaded_.plan.part_of) ? PrepareCaptured() : absl::OkStatus();
}

absl::Status GraphRun::PrepareCaptured() {
  CapturedRun::Options o;
  o.clock = clock_;
  o.device = dynamic_cast<CudaDevice*>(device_);
  if (o.device == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("graph ", name(), " on ", worker_,
                                                      ": the plan is for a GPU worker with options.launch GRAPH, and this one "
                                                      "runs on ",
                                                      device_->kind(), ": compile the graph again"));
  }
  o.plan = &loaded_.plan;
  o.program = &program_;
  for (const OpState& s : state_) o.ops.push_back({s.call.get(), s.actor, s.method, s.sender, s.receiver, s.group, &s.buffers});
  for (const Lane& l : lanes_) o.lanes.push_back(l.stream.get());
  o.trace = &trace_;
  o.worker = worker_;
  WEFT_ASSIGN_OR_RETURN(captured_, CapturedRun::Create(std::move(o)));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> GraphRun::Allocate(size_t bytes) {
  return loaded_.arena != nullptr ? loaded_.arena->Take(bytes) : device_->Allocate(bytes);
}

bool GraphRun::BelongsOnHost(const LocalOp& op) const {
  // A copy out of a GPU takes as long as writing so much over the bus would.
  constexpr uint64_t kMostBytes = 4096;
  if (!device_->Polls() || status_words_ || op.outputs.empty() || op.readers.empty()) return false;
  for (const Spec& spec : op.outputs) {
    if (spec.shape.HasDynamic() || spec.MaxBytes() > kMostBytes) return false;
  }
  return std::all_of(op.readers.begin(), op.readers.end(), [&](int r) {
    const PlanEdge* const edge = program_.ops[r].edge;
    return edge != nullptr && (edge->transport == v1::SHM || edge->transport == v1::GLOO || edge->transport == v1::REMOTE);
  });
}

absl::Status GraphRun::PrepareOp(int i) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  const auto missing = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("graph ", name(), " on ", worker_, ": ", Describe(op), " has no ", what,
                                                   ": bootstrap did not make it"));
  };
  switch (op.plan->kind) {
    case v1::COMPUTE: {
      const auto it = loaded_.actors.find(op.node->actor);
      if (it == loaded_.actors.end()) return missing("actor");
      s.actor = it->second.get();
      WEFT_ASSIGN_OR_RETURN(s.method, s.actor->Method(op.node->method));
      s.on_host = BelongsOnHost(op);
      WEFT_ASSIGN_OR_RETURN(OutputBuffers buffers, OutputBuffers::Create(op, Describe(op), device_, loaded_.arena.get(), status_words_, s.on_host));
      s.call = std::make_unique<ComputeCall>(&op, std::move(buffers));
      // A captured iteration is made once and must hold all that every launch does.
      s.call->set_outputs_persist(!loaded_.plan.options.poison_released() && !IsCaptured(loaded_.plan, loaded_.plan.part_of) &&
                                  std::none_of(op.outputs.begin(), op.outputs.end(), [](const Spec& o) { return o.shape.HasDynamic(); }));
      return absl::OkStatus();
    }
    case v1::READ:
    case v1::RECV: {
      const auto it = loaded_.receivers.find(op.edge->id);
      if (it == loaded_.receivers.end()) return missing("receiving port");
      s.receiver = it->second.get();
      s.buffers.resize(op.slots);
      if (s.receiver->ZeroCopy() || op.edge->spec.shape.HasDynamic()) return absl::OkStatus();
      for (std::shared_ptr<void>& b : s.buffers) {
        WEFT_ASSIGN_OR_RETURN(b, Allocate(BufferSize(op.edge->bytes, status_words_)));
      }
      return absl::OkStatus();
    }
    case v1::SEND:
    case v1::WRITE: {
      const auto it = loaded_.senders.find(op.edge->id);
      if (it == loaded_.senders.end()) return missing("sending port");
      s.sender = it->second.get();
      return absl::OkStatus();
    }
    case v1::COLLECTIVE: {
      const auto it = loaded_.groups.find(op.group->id);
      if (it == loaded_.groups.end()) return missing("communicator");
      s.group = it->second.get();
      s.buffers.resize(op.slots);
      for (std::shared_ptr<void>& b : s.buffers) {
        WEFT_ASSIGN_OR_RETURN(b, Allocate(BufferSize(op.group->output.MaxBytes(), status_words_)));
      }
      return absl::OkStatus();
    }
    default:
      return missing("known kind");
  }
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
  if (any) UpdateCompleted();
  return any;
}

bool GraphRun::StepCaptured() {
  if (!failure_.ok()) return false;
  Enter(LoopCall::kIterations, -1, captured_->launched());
  const absl::StatusOr<bool> moved = captured_->Step(admitted_);
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
  if (k > admitted_) return Blocked::kAdmission;
  for (size_t i = 0; i < op.waits.size(); ++i) {
    if (!WaitHolds(op.waits[i], k, nullptr)) {
      *which_wait = static_cast<int>(i);
      return Blocked::kWait;
    }
  }
  if (state.sender != nullptr && state.sender->Poll(k) != PortState::kReady) return Blocked::kPort;
  if (state.receiver != nullptr && state.receiver->Poll(k) != PortState::kReady) return Blocked::kPort;
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

absl::Status GraphRun::PoisonAhead(int i, int64_t k, Lane* lane) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  if (s.call != nullptr) {
    const int slot = static_cast<int>(k % op.slots);
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const std::shared_ptr<void>& memory = s.call->buffers().At(slot, static_cast<int>(o));
      if (memory == nullptr) continue;
      WEFT_RETURN_IF_ERROR(device_->Fill(memory.get(), kReleasedPattern, s.call->buffers().SizeAt(slot, static_cast<int>(o)), lane->stream.get()));
    }
  }
  if (!s.buffers.empty() && s.buffers[k % op.slots] != nullptr) {
    const size_t bytes = op.edge != nullptr ? op.edge->bytes : op.group->output.MaxBytes();
    WEFT_RETURN_IF_ERROR(device_->Fill(s.buffers[k % op.slots].get(), kReleasedPattern, bytes, lane->stream.get()));
  }
  return absl::OkStatus();
}

absl::Status GraphRun::Issue(int op, int64_t k, Lane* lane, Outstanding* out) {
  if (!program_.ops[op].outputs.empty()) {
    Made made;
    made.values.resize(program_.ops[op].outputs.size());
    made.holders = static_cast<int>(program_.ops[op].readers.size()) + 1;
    state_[op].made.push_back(std::move(made));
  }
  switch (program_.ops[op].plan->kind) {
    case v1::COMPUTE:
      return IssueCompute(op, k, lane, out);
    case v1::READ:
    case v1::RECV:
      return IssueReceive(op, k, lane, out);
    case v1::SEND:
    case v1::WRITE:
      return IssueSend(op, k, lane, out);
    default:
      return IssueCollective(op, k, lane, out);
  }
}

const Value& GraphRun::ArgValue(const LocalArg& a, int64_t k) const {
  const OpState& s = state_[a.op];
  return s.made[k - s.first_made].values[a.output];
}

absl::Status GraphRun::IssueCompute(int i, int64_t k, Lane* lane, Outstanding* out) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  std::vector<Tensor> args;
  args.reserve(op.args.size());
  for (const LocalArg& a : op.args) {
    const Value& v = ArgValue(a, k);
    if (v.error != nullptr) {  // the first argument's error wins, so that every run reports the same one
      for (Value& o : ValuesOf(i, k)) o.error = v.error;
      out->finished = true;
      return absl::OkStatus();
    }
    args.push_back(v.tensor);
  }
  s.call->Begin(k, std::move(args), lane->stream.get());
  bool status = status_words_ && s.call->StatusOf(0) != nullptr;
  if (status) {
    // What its arguments carry it carries on; its own method may add to that. Where neither can be, there is nothing to combine.
    std::vector<const DeviceStatus*> from;
    for (const LocalArg& a : op.args) {
      if (const DeviceStatus* word = ArgValue(a, k).status; word != nullptr) from.push_back(word);
    }
    status = !from.empty() || op.may_fail_on_device;
    s.call->carries_status = status;
    if (status) WEFT_RETURN_IF_ERROR(device_->CombineStatus(from, s.call->StatusOf(0), lane->stream.get()));
  }
  Work work;
  ComputeCall* const call = s.call.get();
  Actor* const actor = s.actor;
  const int method = s.method;
  work.where = device_->QueueDepth() > 1 || actor->RunsInline(method, call->args()) ? Work::kInline : Work::kThread;
  work.run = [call, actor, method] { return call->Run(actor, method); };
  work.hold = &call->hold;
  work.status = &call->status;
  const bool is_inline = work.where == Work::kInline;
  out->ran = true;
  // Without an event of its own it is done at once: so only where all that its event would stand for is, and no times are wanted.
  const bool settled = s.done > k - op.slots && std::all_of(op.waits.begin(), op.waits.end(),
                                                            [&](const LocalWait& w) { return state_[w.op].done > k - w.distance; });
  if (settled && !status && !trace_.enabled()) work.nothing = &call->launched_nothing;
  if (status) {
    work.run = [this, run = std::move(work.run), call, lane, outputs = op.outputs.size()] {
      absl::Status ran = run();
      for (size_t o = 1; ran.ok() && o < outputs; ++o) {
        if (call->StatusOf(static_cast<int>(o)) == nullptr) continue;
        ran = device_->CombineStatus({call->StatusOf(0)}, call->StatusOf(static_cast<int>(o)), lane->stream.get());
      }
      return ran;
    };
  }
  WEFT_ASSIGN_OR_RETURN(out->event, lane->stream->Launch(std::move(work)));
  if (is_inline) {
    FinishCompute(i, k);
    out->finished = true;
  }
  return absl::OkStatus();
}

void GraphRun::FinishCompute(int i, int64_t k) {
  OpState& s = state_[i];
  std::vector<Value>& values = ValuesOf(i, k);
  TaskErrorRef error;
  if (!s.call->status.ok()) error = MakeError(i, k, s.call->status);
  for (size_t o = 0; o < values.size(); ++o) {
    values[o].error = error;
    if (error != nullptr) continue;
    values[o].tensor = std::move(s.call->outputs()[o]);
    if (s.call->carries_status) values[o].status = s.call->StatusOf(static_cast<int>(o));
    values[o].on_host = s.on_host;
  }
}

absl::Status GraphRun::IssueReceive(int i, int64_t k, Lane* lane, Outstanding* out) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  Tensor buffer;
  const std::shared_ptr<void>& memory = s.buffers[k % op.slots];
  if (memory != nullptr) buffer = Tensor(op.edge->spec.dtype, op.edge->spec.shape.MaxDims(), memory.get(), memory);
  ValuesOf(i, k)[0].status = StatusOf(i, k);
  WEFT_ASSIGN_OR_RETURN(out->event, s.receiver->Recv(k, buffer, &ValuesOf(i, k)[0], lane->stream.get()));
  return absl::OkStatus();
}

absl::Status GraphRun::IssueSend(int i, int64_t k, Lane* lane, Outstanding* out) {
  const LocalOp& op = program_.ops[i];
  Value v;
  if (!op.args.empty()) {
    v = ArgValue(op.args[0], k);
    v.event = EventOf(op.args[0].op, k);
  } else {  // a control edge: its only content is that the producer is done
    WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(v1::U8, {0}));
  }
  if (op.edge->control) {
    v.error = nullptr;  // control edges order, they do not poison
    v.status = nullptr;
    if (v.tensor.dtype() != v1::U8 || v.tensor.bytes() != 0) {
      WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(v1::U8, {0}));
    }
  }
  absl::StatusOr<EventRef> event = state_[i].sender->Send(k, v, lane->stream.get());
  if (!event.ok() && event.status().code() == absl::StatusCode::kOutOfRange) {
    // The value does not fit what the edge reserves. The transfer still takes place, with the error in the value's place.
    v.error = MakeError(i, k, event.status());
    v.tensor = Tensor();
    event = state_[i].sender->Send(k, v, lane->stream.get());
  }
  if (!event.ok()) return event.status();
  out->event = *std::move(event);
  return absl::OkStatus();
}

absl::Status GraphRun::IssueCollective(int i, int64_t k, Lane* lane, Outstanding* out) {
  const LocalOp& op = program_.ops[i];
  OpState& s = state_[i];
  CollectiveCall call;
  call.op = op.group->op;
  call.reduce = op.group->reduce;
  call.root_rank = op.group->root_rank;
  call.execution = k;
  const std::shared_ptr<void>& memory = s.buffers[k % op.slots];
  const Tensor buffer(op.group->output.dtype, op.group->output.shape.MaxDims(), memory.get(), memory);
  Value in = ArgValue(op.args[0], k);
  in.event = EventOf(op.args[0].op, k);
  ValuesOf(i, k)[0].status = StatusOf(i, k);
  WEFT_ASSIGN_OR_RETURN(out->event, s.group->Run(call, in, buffer, &ValuesOf(i, k)[0], lane->stream.get()));
  return absl::OkStatus();
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
  if (lanes_.empty()) completed = admitted_ + 1;
  completed_ = completed;
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
  return completed_ <= admitted_ && failure_.ok();
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
