#include "worker/run/captured_run.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr char kRemedy[] = "or set options.launch STREAM";

// Peers load at about the same time.
constexpr Nanos kWarmUpLimit = 60 * kNanosPerSecond;

CollectiveCall CallOf(const PlanGroup& group) {
  CollectiveCall call;
  call.op = group.op;
  call.reduce = group.reduce;
  call.root_rank = group.root_rank;
  return call;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CapturedRun>> CapturedRun::Create(Options options) {
  std::unique_ptr<CapturedRun> run(new CapturedRun(std::move(options)));
  WEFT_RETURN_IF_ERROR(run->Prepare());
  for (int v = 0; v < run->slots_; ++v) WEFT_RETURN_IF_ERROR(run->Capture(v));
  return run;
}

CapturedRun::CapturedRun(Options options)
    : options_(std::move(options)), errors_(*options_.plan), api_(options_.device->api()), since_(options_.clock->Now()) {}

CapturedRun::~CapturedRun() {
  for (Sender& s : senders_) s.port->Release();
  for (Receiver& r : receivers_) r.port->Release();
  DropGraphs();
}

void CapturedRun::DropGraphs() {
  for (CudaGraphExecHandle g : graphs_) (void)options_.device->Check(api_->GraphExecDestroy(g), "freeing a CUDA graph");
  graphs_.clear();
}

absl::Status CapturedRun::At(int op, int64_t execution, const absl::Status& s) const {
  if (s.ok()) return s;
  return absl::Status(
      s.code(), absl::StrCat(Describe(op), " on ", options_.worker, execution < 0 ? std::string() : absl::StrCat(", execution ", execution),
                             ": ", std::string(s.message())));
}

absl::Status CapturedRun::CheckOp(int i) {
  const LocalOp& op = options_.program->ops[i];
  const auto bad = [&](const std::string& why) {
    return At(i, -1,
              absl::InvalidArgumentError(absl::StrCat(why, ", which no captured iteration can have: compile the graph again, ", kRemedy)));
  };
  const int slots = op.edge != nullptr ? op.edge->slots : op.slots;
  if (slots_ == 0) slots_ = slots;
  if (slots != slots_ || (!op.outputs.empty() && op.slots != slots_)) {
    return bad(absl::StrCat("it has ", slots, " slots, and others have ", slots_));
  }
  for (const Spec& spec : op.outputs) {
    if (!spec.shape.IsStatic()) return bad(absl::StrCat("its value is ", spec.ToString()));
  }
  if (op.edge != nullptr && !op.edge->spec.shape.IsStatic()) return bad(absl::StrCat("its value is ", op.edge->spec.ToString()));
  for (const LocalWait& w : op.waits) {
    if (w.distance == 0 && w.op >= i) return bad(absl::StrCat("it waits for ", Describe(w.op), ", which comes later in the plan"));
  }
  return absl::OkStatus();
}

absl::Status CapturedRun::Prepare() {
  const Program& program = *options_.program;
  const size_t ops = program.ops.size();
  sender_of_.assign(ops, -1);
  receiver_of_.assign(ops, -1);
  reuse_.resize(ops);
  // One edge from each worker to each other, the first of them at both ends, tells of launches.
  std::map<std::pair<int32_t, int32_t>, int32_t> driving;
  for (const PlanEdge& e : options_.plan->edges) {
    if (e.transport != v1::SHM) driving.emplace(std::make_pair(e.src_worker, e.dst_worker), e.id);
  }
  const auto drives = [&](const PlanEdge& e) { return e.transport == v1::SHM || driving.at({e.src_worker, e.dst_worker}) == e.id; };
  for (size_t i = 0; i < ops; ++i) {
    const int op = static_cast<int>(i);
    WEFT_RETURN_IF_ERROR(CheckOp(op));
    const auto with_remedy = [&](const absl::Status& s) {
      return At(op, -1, absl::Status(s.code(), absl::StrCat(std::string(s.message()), ": use transport SHM, IPC or NCCL, ", kRemedy)));
    };
    if (options_.ops[i].sender != nullptr) {
      absl::StatusOr<std::shared_ptr<CaptureSendPort>> port = options_.ops[i].sender->ForCapture();
      if (!port.ok()) return with_remedy(port.status());
      sender_of_[i] = static_cast<int>(senders_.size());
      senders_.push_back({op, *std::move(port), drives(*program.ops[i].edge), false});
      for (const LocalArg& a : program.ops[i].args) reuse_[a.op].push_back(senders_.back().port.get());
    }
    if (options_.ops[i].receiver != nullptr) {
      absl::StatusOr<std::shared_ptr<CaptureRecvPort>> port = options_.ops[i].receiver->ForCapture();
      if (!port.ok()) return with_remedy(port.status());
      receiver_of_[i] = static_cast<int>(receivers_.size());
      receivers_.push_back({op, *std::move(port), drives(*program.ops[i].edge), false});
    }
  }
  if (program.lanes.empty()) return absl::OkStatus();
  size_t origin = 0;
  for (size_t l = program.lanes.size(); l-- > 0;) {
    if (program.lanes[l].kind == v1::LANE_COMPUTE) origin = l;
  }
  origin_ = options_.lanes[origin];
  // Not one for computing, which takes a workspace of 32 MiB that no word needs.
  WEFT_ASSIGN_OR_RETURN(beside_, options_.device->NewStream(v1::LANE_SEND));
  WEFT_ASSIGN_OR_RETURN(counter_, options_.device->Allocate(sizeof(int64_t)));
  // -1: each launch begins with counting it up.
  WEFT_RETURN_IF_ERROR(options_.device->Check(api_->MemsetAsync(counter_.get(), 0xFF, sizeof(int64_t), origin_->native()),
                                              "setting the execution's number"));
  for (size_t i = 0; i < ops; ++i) {
    if (options_.ops[i].group != nullptr) WEFT_RETURN_IF_ERROR(At(static_cast<int>(i), -1, WarmUp(static_cast<int>(i))));
  }
  return absl::OkStatus();
}

// A collective of this size may connect its ranks in ways that the group's trial did not, which no capture could: once, on what is in the
// buffers.
absl::Status CapturedRun::WarmUp(int i) {
  const LocalOp& op = options_.program->ops[i];
  const LocalArg& arg = op.args[0];
  const LocalOp& from = options_.program->ops[arg.op];
  const Op& parts = options_.ops[arg.op];
  const std::shared_ptr<void> memory = parts.call != nullptr ? parts.call->buffers().At(0, arg.output) : (*parts.buffers)[0];
  const Spec& spec = from.outputs[arg.output];
  Value in;
  in.tensor = Tensor(spec.dtype, spec.shape.MaxDims(), memory.get(), memory);
  in.status = parts.call != nullptr ? parts.call->buffers().StatusAt(0, arg.output) : StatusOf(arg.op, 0);
  const std::shared_ptr<void>& mine = (*options_.ops[i].buffers)[0];
  const Tensor buffer(op.group->output.dtype, op.group->output.shape.MaxDims(), mine.get(), mine);
  Value out;
  out.status = StatusOf(i, 0);
  Communicator* const group = options_.ops[i].group;
  Stream* const stream = options_.lanes[op.lane];
  WEFT_RETURN_IF_ERROR(group->Capture(CallOf(*op.group), in, buffer, &out, stream));
  WEFT_ASSIGN_OR_RETURN(const EventRef done, options_.device->Record(stream->native()));
  const Nanos until = options_.clock->Now() + kWarmUpLimit;
  while (!IsReady(done) && group->Health().ok()) {
    if (options_.clock->Now() > until) {
      group->Abort(absl::DeadlineExceededError(
          absl::StrCat("its other members did not come to a first collective within ", ToSeconds(kWarmUpLimit), " s")));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return group->Health();
}

absl::Status CapturedRun::Capture(int variant) {
  CudaDevice* const device = options_.device;
  const std::string what =
      absl::StrCat("capturing iteration ", variant + 1, " of ", slots_, " of graph ", options_.plan->graph, " on ", options_.worker);
  std::vector<EventRef> events;  // none goes back to the pool within the capture
  WEFT_RETURN_IF_ERROR(device->Check(api_->BeginCapture(origin_->native()), what));
  const absl::Status walked = Walk(variant, what, &events);
  CudaGraphHandle graph = nullptr;
  const int ended = api_->EndCapture(origin_->native(), &graph);
  // A call that may not be captured is only told of here.
  absl::Status s = walked.ok() ? device->Check(ended, what) : walked;
  CudaGraphExecHandle exec = nullptr;
  if (s.ok()) s = device->Check(api_->GraphInstantiate(graph, &exec), absl::StrCat(what, ": making it ready"));
  if (graph != nullptr) (void)api_->GraphDestroy(graph);
  if (!s.ok()) {
    return absl::Status(s.code(), absl::StrCat(std::string(s.message()), walked.ok() ? absl::StrCat("; mend the actors, ", kRemedy) : ""));
  }
  graphs_.push_back(exec);
  return device->Check(api_->GraphUpload(exec, origin_->native()), absl::StrCat(what, ": bringing it to the GPU"));
}

absl::Status CapturedRun::Walk(int variant, const std::string& what, std::vector<EventRef>* events) {
  const Program& program = *options_.program;
  CudaDevice* const device = options_.device;
  const int advanced = device->kernels()->Advance(static_cast<int64_t*>(counter_.get()), origin_->native());
  WEFT_RETURN_IF_ERROR(device->Check(advanced, absl::StrCat(what, ": counting executions")));
  absl::StatusOr<EventRef> began = device->Record(origin_->native());
  if (!began.ok()) return absl::Status(began.status().code(), absl::StrCat(what, ": ", std::string(began.status().message())));
  const EventRef begun = *std::move(began);
  events->push_back(begun);
  std::vector<char> forked(program.lanes.size(), 0);
  std::vector<EventRef> done(program.ops.size());
  std::vector<std::vector<Value>> values(program.ops.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const LocalOp& op = program.ops[i];
    Stream* const stream = options_.lanes[op.lane];
    if (!forked[op.lane]) {
      stream->WaitFor(begun);
      forked[op.lane] = 1;
    }
    for (const LocalWait& w : op.waits) {
      if (w.distance == 0) stream->WaitFor(done[w.op]);
    }
    WEFT_RETURN_IF_ERROR(CaptureOp(static_cast<int>(i), variant, stream, &values, events));
    absl::StatusOr<EventRef> event = device->Record(stream->native());
    if (!event.ok()) return At(static_cast<int>(i), -1, event.status());
    done[i] = *std::move(event);
    events->push_back(done[i]);
  }
  for (size_t l = 0; l < program.lanes.size(); ++l) {
    if (!program.lanes[l].ops.empty()) origin_->WaitFor(done[program.lanes[l].ops.back()]);
  }
  return absl::OkStatus();
}

absl::Status CapturedRun::CaptureOp(int i, int variant, Stream* stream, std::vector<std::vector<Value>>* values, std::vector<EventRef>* events) {
  const LocalOp& op = options_.program->ops[i];
  (*values)[i].resize(op.outputs.size());
  for (CaptureSendPort* port : reuse_[i]) WEFT_RETURN_IF_ERROR(At(i, -1, port->CaptureReuse(variant, stream)));
  if (options_.plan->options.poison_released()) WEFT_RETURN_IF_ERROR(At(i, -1, Poison(i, variant, stream)));
  absl::Status s;
  switch (op.plan->kind) {
    case v1::COMPUTE:
      s = CaptureCompute(i, variant, stream, values, events);
      break;
    case v1::READ:
    case v1::RECV:
      s = CaptureReceive(i, variant, stream, &(*values)[i][0]);
      break;
    case v1::SEND:
    case v1::WRITE:
      s = CaptureSend(i, variant, stream, *values);
      break;
    default:
      s = CaptureCollective(i, variant, stream, values);
  }
  return At(i, -1, s);
}

absl::Status CapturedRun::Poison(int i, int variant, Stream* stream) {
  const LocalOp& op = options_.program->ops[i];
  const Op& parts = options_.ops[i];
  if (parts.call != nullptr) {
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const OutputBuffers& b = parts.call->buffers();
      const int output = static_cast<int>(o);
      WEFT_RETURN_IF_ERROR(options_.device->Fill(b.At(variant, output).get(), kReleasedPattern, b.SizeAt(variant, output), stream));
    }
  }
  if (parts.buffers != nullptr && !parts.buffers->empty()) {
    const size_t bytes = op.edge != nullptr ? op.edge->bytes : op.group->output.MaxBytes();
    WEFT_RETURN_IF_ERROR(options_.device->Fill((*parts.buffers)[variant].get(), kReleasedPattern, bytes, stream));
  }
  return absl::OkStatus();
}

DeviceStatus* CapturedRun::StatusOf(int i, int variant) const {
  const LocalOp& op = options_.program->ops[i];
  const size_t bytes = op.edge != nullptr ? op.edge->bytes : op.group->output.MaxBytes();
  return reinterpret_cast<DeviceStatus*>(static_cast<char*>((*options_.ops[i].buffers)[variant].get()) + StatusOffset(bytes));
}

bool CapturedRun::GoesToGpus(int i) const {
  const std::vector<int>& readers = options_.program->ops[i].readers;
  return std::any_of(readers.begin(), readers.end(), [&](int r) {
    const LocalOp& reader = options_.program->ops[r];
    return reader.group != nullptr || (reader.edge != nullptr && reader.edge->transport != v1::SHM);
  });
}

absl::Status CapturedRun::CaptureCompute(int i, int variant, Stream* stream, std::vector<std::vector<Value>>* values, std::vector<EventRef>* events) {
  const LocalOp& op = options_.program->ops[i];
  ComputeCall* const call = options_.ops[i].call;
  std::vector<Tensor> args;
  std::vector<const DeviceStatus*> from;
  for (const LocalArg& a : op.args) {
    const Value& v = (*values)[a.op][a.output];
    args.push_back(v.tensor);
    if (v.status != nullptr) from.push_back(v.status);
  }
  call->Begin(variant, std::move(args), stream, static_cast<const int64_t*>(counter_.get()));
  const size_t outputs = op.outputs.size();
  // What its arguments carry it carries on; its own method may add to that. Where neither can be, there is nothing to combine, unless
  // another GPU takes the value, which always takes a word with it.
  const bool status = outputs > 0 && (!from.empty() || op.may_fail_on_device || GoesToGpus(i));
  // Words that the method adds nothing to are combined beside its kernels: small ones take no longer than that.
  const bool beside = status && !op.may_fail_on_device;
  Stream* const words = beside ? beside_.get() : stream;
  if (beside) {
    WEFT_ASSIGN_OR_RETURN(const EventRef before, options_.device->Record(stream->native()));
    events->push_back(before);
    words->WaitFor(before);
  }
  if (status) WEFT_RETURN_IF_ERROR(options_.device->CombineStatus(from, call->StatusOf(0), words));
  absl::Status s = call->Run(options_.ops[i].actor, options_.ops[i].method);
  if (s.ok() && call->host_number_read()) {
    s = absl::FailedPreconditionError(
        "its method asked for the execution's number on the host, where there is none that holds for every launch: let its "
        "kernels take CallContext::execution_number()");
  }
  if (!s.ok()) {
    return absl::Status(s.code(), absl::StrCat("it cannot be captured: ", std::string(s.message()), "; mend that, ", kRemedy));
  }
  for (size_t o = 1; o < outputs && status; ++o) {
    WEFT_RETURN_IF_ERROR(options_.device->CombineStatus({call->StatusOf(0)}, call->StatusOf(static_cast<int>(o)), words));
  }
  if (beside) {
    WEFT_ASSIGN_OR_RETURN(const EventRef combined, options_.device->Record(words->native()));
    events->push_back(combined);
    stream->WaitFor(combined);
  }
  for (size_t o = 0; o < outputs; ++o) {
    Value& v = (*values)[i][o];
    v.tensor = std::move(call->outputs()[o]);
    v.status = status ? call->StatusOf(static_cast<int>(o)) : nullptr;
  }
  return absl::OkStatus();
}

absl::Status CapturedRun::CaptureReceive(int i, int variant, Stream* stream, Value* out) {
  const PlanEdge& edge = *options_.program->ops[i].edge;
  const std::shared_ptr<void>& memory = (*options_.ops[i].buffers)[variant];
  const Tensor buffer(edge.spec.dtype, edge.spec.shape.MaxDims(), memory.get(), memory);
  // Control edges order, they do not poison.
  out->status = edge.control ? nullptr : StatusOf(i, variant);
  return receivers_[receiver_of_[i]].port->Capture(variant, buffer, out, stream);
}

absl::Status CapturedRun::CaptureSend(int i, int variant, Stream* stream, const std::vector<std::vector<Value>>& values) {
  const LocalOp& op = options_.program->ops[i];
  Value v;
  if (op.edge->control) {
    WEFT_ASSIGN_OR_RETURN(v.tensor, Tensor::OnHost(v1::U8, {0}));
  } else if (!op.args.empty()) {
    v = values[op.args[0].op][op.args[0].output];
  } else {
    return absl::InvalidArgumentError("it has no value to send");
  }
  return senders_[sender_of_[i]].port->Capture(variant, v, stream);
}

absl::Status CapturedRun::CaptureCollective(int i, int variant, Stream* stream, std::vector<std::vector<Value>>* values) {
  const LocalOp& op = options_.program->ops[i];
  const Value& in = (*values)[op.args[0].op][op.args[0].output];
  const std::shared_ptr<void>& memory = (*options_.ops[i].buffers)[variant];
  const Tensor buffer(op.group->output.dtype, op.group->output.shape.MaxDims(), memory.get(), memory);
  Value& out = (*values)[i][0];
  out.status = StatusOf(i, variant);
  return options_.ops[i].group->Capture(CallOf(*op.group), in, buffer, &out, stream);
}

// --- launches

absl::StatusOr<bool> CapturedRun::Step(int64_t admitted) {
  bool any = false;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool finished, FinishFront());
    WEFT_ASSIGN_OR_RETURN(const bool launched, LaunchNext(admitted));
    if (!finished && !launched) return any;
    any = true;
  }
}

absl::StatusOr<bool> CapturedRun::FinishFront() {
  if (stopped_ || flights_.empty() || !IsReady(flights_.front().done)) return false;
  // On a broken device every event is ready.
  WEFT_RETURN_IF_ERROR(options_.device->Health());
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const int64_t k = flight.execution;
  const auto error_of = [&](uint64_t word) {
    for (const auto& [known, error] : flight.errors) {
      if (known == word) return error;
    }
    TaskErrorRef error = errors_.ErrorOf(word);
    if (error != nullptr) return error;
    return TaskErrorRef(std::make_shared<TaskError>(
        TaskError{options_.worker, "(no node)", k, absl::StatusCode::kInternal,
                  absl::StrCat("the device reports an error that this worker knows no name for (", word, ")")}));
  };
  bool error = false;
  for (Sender& s : senders_) {
    if (!s.drives) continue;
    absl::StatusOr<bool> was_error = s.port->Finish(k, error_of);
    if (!was_error.ok()) return At(s.op, k, was_error.status());
    error |= *was_error;
  }
  for (Receiver& r : receivers_) {
    if (r.drives) r.port->Finish(k);
  }
  completed_ = k + 1;
  const Nanos now = options_.clock->Now();
  since_ = now;
  if (options_.trace->enabled()) {
    const Nanos began = flight.mark != nullptr ? options_.device->TimeOf(flight.mark) : -1;
    const Nanos ended = flight.mark != nullptr ? options_.device->TimeOf(flight.done) : -1;
    const Nanos start = std::clamp(began, flight.start, now);
    options_.trace->Add({TraceRecord::kIteration, error, k, start, ended < 0 ? now : std::clamp(ended, start, now)});
  }
  return true;
}

absl::StatusOr<bool> CapturedRun::LaunchNext(int64_t admitted) {
  const int64_t k = launched_;
  if (stopped_ || k > admitted) return false;
  if (options_.ops.empty()) {  // nothing of the graph is on this worker
    launched_ = completed_ = k + 1;
    return true;
  }
  if (static_cast<int>(flights_.size()) >= slots_) return false;
  bool moved = false, all = true;
  // Peers are told before anything is waited for: two workers that take values of each other would otherwise both wait.
  for (Sender& s : senders_) {
    if (!s.drives || s.told) continue;
    const PortState state = s.port->Poll(k);
    if (state == PortState::kClosed) return At(s.op, k, s.port->closed());
    if (state == PortState::kWaiting) {
      all = false;
      continue;
    }
    WEFT_RETURN_IF_ERROR(At(s.op, k, s.port->Announce(k)));
    s.told = moved = true;
  }
  const auto word_of = [this](const TaskErrorRef& error) {
    next_errors_.emplace_back(errors_.WordOf(*error), error);
    return next_errors_.back().first;
  };
  for (Receiver& r : receivers_) {
    if (!r.drives || r.taken) continue;
    const PortState state = r.port->Poll(k);
    if (state == PortState::kClosed) return At(r.op, k, r.port->closed());
    if (state == PortState::kWaiting) {
      all = false;
      continue;
    }
    WEFT_RETURN_IF_ERROR(At(r.op, k, r.port->Take(k, word_of)));
    r.taken = moved = true;
  }
  if (!all) return moved;
  WEFT_RETURN_IF_ERROR(Launch());
  return true;
}

absl::Status CapturedRun::Launch() {
  CudaDevice* const device = options_.device;
  Flight flight;
  flight.execution = launched_;
  flight.start = options_.clock->Now();
  flight.errors = std::move(next_errors_);
  next_errors_.clear();
  if (options_.trace->enabled()) flight.mark = device->Mark(origin_);
  const bool ranges = options_.trace->enabled() && device->HasRanges();
  const DeviceRange range(ranges ? device : nullptr, ranges ? absl::StrCat(options_.plan->graph, ": iteration") : std::string());
  if (const int code = api_->GraphLaunch(graphs_[launched_ % slots_], origin_->native()); code != kCudaSuccess) {
    return device->Check(code,
                         absl::StrCat("launching execution ", launched_, " of graph ", options_.plan->graph, " on ", options_.worker));
  }
  absl::StatusOr<EventRef> done = device->Record(origin_->native());
  if (!done.ok()) return done.status();
  flight.done = *std::move(done);
  flights_.push_back(std::move(flight));
  ++launched_;
  since_ = flights_.back().start;
  for (Sender& s : senders_) s.told = false;
  for (Receiver& r : receivers_) r.taken = false;
  return absl::OkStatus();
}

void CapturedRun::Stop() {
  stopped_ = true;
  for (Sender& s : senders_) s.port->Release();
  for (Receiver& r : receivers_) r.port->Release();
}

bool CapturedRun::Settle() {
  bool any = false;
  for (; !flights_.empty() && IsReady(flights_.front().done); any = true) flights_.pop_front();
  return any;
}

bool CapturedRun::Quiescent() {
  for (const Flight& f : flights_) {
    if (!IsReady(f.done)) return false;
  }
  if (stopped_) DropGraphs();
  return true;
}

}  // namespace weft
