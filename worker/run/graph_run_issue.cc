// How GraphRun issues an op, by its kind.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/run/graph_run.h"

namespace weft {

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

}  // namespace weft
