#include "client/cpp/grpc_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// Waits on `cv`, with `mu` held, until `ready()`; false when `timeout_s` seconds passed first.
template <typename F>
bool WaitUntil(CondVar* cv, Mutex* mu, double timeout_s, const F& ready) WEFT_REQUIRES(mu) {
  const Nanos now = Clock::Real()->Now();
  const bool bounded = timeout_s < 1e9;
  const Nanos until = bounded ? now + FromSeconds(std::max(timeout_s, 0.0)) : 0;
  while (!ready()) {
    if (!bounded) {
      cv->Wait(mu);
      continue;
    }
    const Nanos left = until - Clock::Real()->Now();
    if (left <= 0) return false;
    cv->WaitFor(mu, std::chrono::nanoseconds(left));
  }
  return true;
}

absl::Status NotFound(ClientSession::Handle handle) {
  return absl::NotFoundError(absl::StrCat("no execution with handle ", handle, " is open in this session (taken or cancelled?)"));
}

}  // namespace

GrpcSession::GrpcSession(CallSet* calls, const std::string& address)
    : address_(address), call_(calls, std::numeric_limits<double>::infinity()) {}

GrpcSession::~GrpcSession() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
    outgoing_.clear();
    changed_.NotifyAll();
  }
  call_.context()->TryCancel();
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
}

absl::StatusOr<std::unique_ptr<ClientSession>> GrpcSession::Open(v1::ClientService::Stub* stub, CallSet* calls,
                                                                 const std::string& address, const SessionOptions& options) {
  std::unique_ptr<GrpcSession> session(new GrpcSession(calls, address));
  WEFT_RETURN_IF_ERROR(session->Start(stub, options));
  return std::unique_ptr<ClientSession>(std::move(session));
}

absl::Status GrpcSession::Start(v1::ClientService::Stub* stub, const SessionOptions& options) {
  stream_ = stub->Execute(call_.context());
  v1::ExecuteRequest request;
  v1::OpenSession* open = request.mutable_open();
  open->set_graph(options.graph);
  open->set_submit(options.submit);
  open->set_deadline_s(options.deadline_s);
  open->set_discard_outputs(options.discard_outputs);
  stream_->Write(request);  // a failure shows in the reader
  reader_ = std::thread([this] { ReadLoop(); });

  absl::Status status;
  {
    MutexLock lock(&mu_);
    const bool answered =
        WaitUntil(&changed_, &mu_, options.open_timeout_s, [this]() WEFT_NO_THREAD_SAFETY_ANALYSIS { return ended_ || max_in_flight_ > 0; });
    if (!answered) {
      status = absl::DeadlineExceededError(absl::StrCat("driver at ", address_, " did not open a session of graph \"", options.graph,
                                                        "\" within ", FormatSeconds(options.open_timeout_s)));
    } else if (max_in_flight_ == 0) {
      status = end_status_.ok() ? absl::InternalError(absl::StrCat("driver at ", address_, " closed the session of graph \"",
                                                                   options.graph, "\" without a word"))
                                : end_status_;
    }
  }
  if (!status.ok()) return status;
  writer_ = std::thread([this] { WriteLoop(); });
  return absl::OkStatus();
}

absl::Status GrpcSession::CheckInputs(const std::map<std::string, Tensor>& inputs) const {
  std::vector<std::string> problems;
  std::vector<std::string> names;
  for (const v1::Input& input : inputs_) {
    names.push_back(input.name());
    const auto it = inputs.find(input.name());
    v1::TensorSpec proto;
    proto.set_dtype(input.dtype());
    proto.set_shape(input.shape());
    auto spec = SpecFromProto(proto);
    const std::string wanted = spec.ok() ? spec->ToString() : absl::StrCat(DTypeName(input.dtype()), input.shape());
    if (it == inputs.end()) {
      problems.push_back(absl::StrCat("input \"", input.name(), "\" (", wanted, ") is not given"));
    } else if (spec.ok() && (it->second.dtype() != spec->dtype || !spec->shape.Admits(it->second.dims()))) {
      problems.push_back(absl::StrCat("input \"", input.name(), "\" is ", it->second.ToString(), ", the graph takes ", wanted));
    }
  }
  for (const auto& [name, tensor] : inputs) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      problems.push_back(absl::StrCat("the graph has no input \"", name, "\"; it has ",
                                      names.empty() ? std::string("none") : absl::StrJoin(names, ", ")));
    }
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

absl::Status GrpcSession::EndedStatus() const {
  return end_status_.ok() ? absl::UnavailableError(absl::StrCat("driver at ", address_, " ended the session before this was answered"))
                          : end_status_;
}

absl::StatusOr<ClientSession::Handle> GrpcSession::Submit(const std::map<std::string, Tensor>& inputs) {
  WEFT_RETURN_IF_ERROR(CheckInputs(inputs));
  MutexLock lock(&mu_);
  if (ended_) return EndedStatus();
  if (closing_) return absl::FailedPreconditionError("the session is closed: open another to submit more");
  const Handle handle = next_++;
  pending_[handle];
  outgoing_.push_back({handle, false, inputs});
  changed_.NotifyAll();
  return handle;
}

bool GrpcSession::Ready(Handle handle) const {
  MutexLock lock(&mu_);
  const auto it = pending_.find(handle);
  return it == pending_.end() || it->second.done || ended_;
}

absl::StatusOr<ExecutionResult> GrpcSession::Wait(Handle handle, double timeout_s) {
  MutexLock lock(&mu_);
  auto it = pending_.find(handle);
  const bool ready = WaitUntil(&changed_, &mu_, timeout_s, [&]() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    it = pending_.find(handle);
    return it == pending_.end() || it->second.done || ended_;
  });
  if (!ready) {
    return absl::DeadlineExceededError(absl::StrCat("execution with handle ", handle, " is not done after ", FormatSeconds(timeout_s)));
  }
  if (it == pending_.end()) return NotFound(handle);
  Pending pending = std::move(it->second);
  pending_.erase(it);
  if (!pending.done) return EndedStatus();
  WEFT_RETURN_IF_ERROR(pending.status);
  return std::move(pending.result);
}

absl::StatusOr<ClientSession::Handle> GrpcSession::WaitAny(const std::vector<Handle>& handles, double timeout_s) {
  if (handles.empty()) return absl::InvalidArgumentError("no handle to wait for");
  MutexLock lock(&mu_);
  Handle found = -1;
  const bool ready = WaitUntil(&changed_, &mu_, timeout_s, [&]() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    for (const Handle handle : handles) {
      const auto it = pending_.find(handle);
      if (it == pending_.end() || it->second.done || ended_) {
        found = handle;
        return true;
      }
    }
    return false;
  });
  if (!ready) {
    return absl::DeadlineExceededError(
        absl::StrCat("none of ", handles.size(), " executions is done after ", FormatSeconds(timeout_s)));
  }
  return found;
}

void GrpcSession::Cancel(Handle handle) {
  MutexLock lock(&mu_);
  const auto it = pending_.find(handle);
  if (it == pending_.end()) return;
  const bool tell = !it->second.done && !ended_;
  pending_.erase(it);
  if (tell) outgoing_.push_back({handle, true, {}});
  changed_.NotifyAll();
}

absl::Status GrpcSession::Close(double timeout_s) {
  MutexLock lock(&mu_);
  closing_ = true;
  changed_.NotifyAll();
  const bool ended = WaitUntil(&changed_, &mu_, timeout_s, [this]() WEFT_NO_THREAD_SAFETY_ANALYSIS { return ended_; });
  if (!ended) {
    call_.context()->TryCancel();
    return absl::DeadlineExceededError(absl::StrCat("driver at ", address_, " did not end the session within ", FormatSeconds(timeout_s)));
  }
  return end_status_;
}

void GrpcSession::WriteLoop() {
  for (;;) {
    Outgoing out;
    {
      MutexLock lock(&mu_);
      while (outgoing_.empty() && !closing_ && !ended_) changed_.Wait(&mu_);
      if (ended_) return;
      if (outgoing_.empty()) break;
      out = std::move(outgoing_.front());
      outgoing_.pop_front();
    }
    if (!WriteOne(out)) return;  // the reader learns why
  }
  stream_->WritesDone();
}

bool GrpcSession::WriteOne(const Outgoing& out) {
  v1::ExecuteRequest request;
  if (out.drop) {
    request.mutable_drop()->set_sequence(out.handle);
    return stream_->Write(request);
  }
  for (const auto& [name, tensor] : out.inputs) {
    TensorSplitter splitter(name, tensor);
    v1::InputPiece* piece = request.mutable_piece();
    piece->set_sequence(out.handle);
    while (splitter.Next(piece->mutable_chunk())) {
      if (!stream_->Write(request)) return false;
    }
  }
  request.mutable_submit()->set_sequence(out.handle);
  return stream_->Write(request);
}

void GrpcSession::ReadLoop() {
  v1::ExecuteReply reply;
  while (stream_->Read(&reply)) {
    MutexLock lock(&mu_);
    Dispatch(reply);
  }
  const absl::Status status = FromGrpc(stream_->Finish(), address_);
  MutexLock lock(&mu_);
  end_status_ = status;
  ended_ = true;
  changed_.NotifyAll();
}

void GrpcSession::Dispatch(const v1::ExecuteReply& reply) {
  const auto find = [this](Handle sequence) WEFT_NO_THREAD_SAFETY_ANALYSIS -> Pending* {
    const auto it = pending_.find(sequence);
    return it == pending_.end() || it->second.done ? nullptr : &it->second;  // cancelled ones are nobody's
  };
  switch (reply.what_case()) {
    case v1::ExecuteReply::kOpened:
      if (max_in_flight_ > 0) return;  // these are read without the lock from now on
      inputs_.assign(reply.opened().inputs().begin(), reply.opened().inputs().end());
      outputs_.assign(reply.opened().outputs().begin(), reply.opened().outputs().end());
      max_in_flight_ = std::max(1, reply.opened().max_in_flight());
      break;
    case v1::ExecuteReply::kPiece: {
      Pending* pending = find(reply.piece().sequence());
      if (pending == nullptr || !pending->status.ok()) return;
      const v1::TensorChunk& chunk = reply.piece().chunk();
      pending->status = pending->assembling[chunk.name()].Add(chunk);
      return;
    }
    case v1::ExecuteReply::kDone:
      if (Pending* pending = find(reply.done().sequence())) Finish(pending, reply.done());
      break;
    case v1::ExecuteReply::kRefused:
      if (Pending* pending = find(reply.refused().sequence())) {
        const int code = reply.refused().code();
        pending->done = true;
        pending->status = absl::Status(code > 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                                       reply.refused().message());
      }
      break;
    default:
      return;  // a newer driver's message that this client does not know
  }
  changed_.NotifyAll();
}

void GrpcSession::Finish(Pending* pending, const v1::ExecutionDone& done) {
  pending->done = true;
  pending->result.execution = done.execution();
  pending->result.admitted_ns = done.admitted_ns();
  pending->result.done_ns = done.done_ns();
  for (const auto& [name, error] : done.error()) pending->result.errors[name] = error;
  for (auto& [name, assembler] : pending->assembling) {
    if (assembler.complete()) {
      pending->result.outputs[name] = assembler.tensor();
    } else if (pending->status.ok() && pending->result.errors.count(name) == 0) {
      pending->status = absl::DataLossError(
          absl::StrCat("output \"", name, "\" of execution ", done.execution(), " came only in part from the driver at ", address_));
    }
  }
  pending->assembling.clear();
}

}  // namespace weft
