#include "common/channel/remote/remote_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// What the receiver gets in a value's place when the value does not fit the edge.
TaskErrorRef EdgeError(const std::string& edge, const std::string& worker, int64_t execution, const absl::Status& why) {
  auto error = std::make_shared<TaskError>();
  error->worker = worker;
  error->node = edge;
  error->execution = execution;
  error->code = why.code();
  error->message = absl::StrCat(edge, ": ", std::string(why.message()));
  return error;
}

}  // namespace

class RemoteLink::Sender : public SendPort {
 public:
  Sender(std::shared_ptr<RemoteLink> link, int32_t edge) : link_(std::move(link)), edge_(edge) {}

  PortState Poll(int64_t) override {
    MutexLock lock(&link_->mu_);
    if (!link_->closed_.ok()) return PortState::kClosed;
    const OutEdge& out = link_->out_.at(edge_);
    return out.sent - out.released < static_cast<uint64_t>(out.edge->slots) ? PortState::kReady : PortState::kWaiting;
  }

  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream*) override {
    MessageHeader header;
    {
      MutexLock lock(&link_->mu_);
      WEFT_RETURN_IF_ERROR(link_->closed_);
      OutEdge& out = link_->out_.at(edge_);
      const std::string name = link_->NameOf(*out.edge);
      if (out.sent - out.released >= static_cast<uint64_t>(out.edge->slots)) {
        return absl::InternalError(absl::StrCat(name, ": send of execution ", execution, " without credit"));
      }
      header = MakeHeader(link_->plan_hash_, edge_, execution, out.sent, value.tensor, value.error);
      if (value.error == nullptr) {
        // What the other end would refuse is refused here, where it arose.
        const absl::Status fits = CheckHeader(header, link_->plan_hash_, edge_, execution, out.sent, out.edge->spec);
        if (!fits.ok()) return absl::OutOfRangeError(absl::StrCat(name, ": ", std::string(fits.message())));
        if (out.edge->spec.shape.HasDynamic() && header.bytes > kMaxDynamicBytes) {
          return absl::OutOfRangeError(absl::StrCat(name, ": a value of ", header.bytes, " bytes, more than 4 GiB of a dynamic edge"));
        }
      }
      ++out.sent;
      out.unreleased.push_back(execution);
    }
    const char* const data = static_cast<const char*>(value.tensor.data());
    uint64_t at = 0;
    do {
      v1::DataMessage message;
      v1::DataPiece* piece = message.mutable_piece();
      piece->set_edge(edge_);
      piece->set_execution(execution);
      if (at == 0) piece->set_header(&header, sizeof header);
      piece->set_offset(at);
      const uint64_t n = std::min<uint64_t>(kPieceBytes, header.bytes - at);
      if (n > 0) piece->set_data(data + at, n);
      at += n;
      piece->set_last(at == header.bytes);
      link_->pipe_->Send(std::move(message));
    } while (at < header.bytes);
    return EventRef();  // copied
  }

  std::string WaitsFor() const override {
    MutexLock lock(&link_->mu_);
    const OutEdge& out = link_->out_.at(edge_);
    if (out.unreleased.empty()) return absl::StrCat("nothing: ", out.edge->slots, " slots are free");
    return absl::StrCat(link_->PeerName(), " to release execution ", out.unreleased.front(), " (", out.sent - out.released, " of ",
                        out.edge->slots, " slots taken)");
  }

  absl::Status closed() const override { return link_->closed(); }

 private:
  const std::shared_ptr<RemoteLink> link_;
  const int32_t edge_;
};

class RemoteLink::Receiver : public RecvPort {
 public:
  Receiver(std::shared_ptr<RemoteLink> link, int32_t edge) : link_(std::move(link)), edge_(edge) {}

  PortState Poll(int64_t execution) override {
    MutexLock lock(&link_->mu_);
    polled_ = execution;
    if (!link_->in_.at(edge_).ready.empty()) return PortState::kReady;
    return link_->closed_.ok() ? PortState::kWaiting : PortState::kClosed;
  }

  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor&, Value* out, Stream*) override {
    MutexLock lock(&link_->mu_);
    InEdge& in = link_->in_.at(edge_);
    if (in.ready.empty()) {
      WEFT_RETURN_IF_ERROR(link_->closed_);
      return absl::InternalError(absl::StrCat(link_->NameOf(*in.edge), ": receive of execution ", execution, " before it came"));
    }
    const Message message = std::move(in.ready.front());
    in.ready.pop_front();
    const absl::Status fits = CheckHeader(message.header, link_->plan_hash_, edge_, execution, in.received, in.edge->spec);
    ++in.received;
    in.taken.push_back(execution);
    if (!fits.ok()) {
      out->error = EdgeError(link_->NameOf(*in.edge), WorkerName(*link_->options_.plan, link_->options_.me), execution, fits);
    } else {
      out->error = ErrorOf(message.header);
      if (out->error == nullptr) out->tensor = message.tensor;
    }
    return EventRef();
  }

  void Release(int64_t execution) override {
    v1::DataMessage message;
    message.mutable_release()->set_edge(edge_);
    message.mutable_release()->set_execution(execution);
    {
      MutexLock lock(&link_->mu_);
      InEdge& in = link_->in_.at(edge_);
      // Only what was received gives a credit back.
      if (in.taken.empty() || in.taken.front() != execution) return;
      in.taken.pop_front();
      --in.unreleased;
    }
    link_->pipe_->Send(std::move(message));
  }

  bool ZeroCopy() const override { return true; }

  std::string WaitsFor() const override {
    MutexLock lock(&link_->mu_);
    return absl::StrCat(link_->PeerName(), " to write execution ", polled_);
  }

  absl::Status closed() const override { return link_->closed(); }

 private:
  const std::shared_ptr<RemoteLink> link_;
  const int32_t edge_;
  int64_t polled_ = 0;
};

std::shared_ptr<RemoteLink> RemoteLink::Create(Options options, std::shared_ptr<MessagePipe> pipe) {
  return std::shared_ptr<RemoteLink>(new RemoteLink(std::move(options), std::move(pipe)));
}

RemoteLink::RemoteLink(Options options, std::shared_ptr<MessagePipe> pipe)
    : options_(std::move(options)), plan_hash_(HashAsNumber(options_.plan->hash)), pipe_(std::move(pipe)) {
  MutexLock lock(&mu_);
  for (const PlanEdge& e : options_.plan->edges) {
    if (e.transport != v1::REMOTE) continue;
    if (e.src_worker == options_.me && e.dst_worker == options_.peer) out_[e.id].edge = &e;
    if (e.dst_worker == options_.me && e.src_worker == options_.peer) in_[e.id].edge = &e;
  }
}

absl::StatusOr<std::unique_ptr<SendPort>> RemoteLink::TakeSendPort(int32_t edge) {
  MutexLock lock(&mu_);
  const auto it = out_.find(edge);
  if (it == out_.end() || std::exchange(it->second.taken, true)) {
    return absl::NotFoundError(absl::StrCat("the stream to ", PeerName(), " carries no edge ", edge, " that is still to be taken"));
  }
  return std::make_unique<Sender>(shared_from_this(), edge);
}

absl::StatusOr<std::unique_ptr<RecvPort>> RemoteLink::TakeRecvPort(int32_t edge) {
  MutexLock lock(&mu_);
  const auto it = in_.find(edge);
  if (it == in_.end() || std::exchange(it->second.port_taken, true)) {
    return absl::NotFoundError(absl::StrCat("the stream from ", PeerName(), " carries no edge ", edge, " that is still to be taken"));
  }
  return std::make_unique<Receiver>(shared_from_this(), edge);
}

void RemoteLink::PublishAdmitted(int64_t execution) {
  v1::DataMessage message;
  message.set_admitted(execution);
  pipe_->Send(std::move(message));
}

void RemoteLink::OnMessage(const v1::DataMessage& message) {
  absl::Status status;
  {
    MutexLock lock(&mu_);
    if (!closed_.ok()) return;  // late
    switch (message.what_case()) {
      case v1::DataMessage::kPiece:
        status = OnPiece(message.piece());
        break;
      case v1::DataMessage::kRelease:
        status = OnRelease(message.release());
        break;
      case v1::DataMessage::kAdmitted:
        // Only the client admits, and never takes back.
        if (options_.peer == kClient && message.admitted() > admitted_.load()) {
          admitted_.store(message.admitted(), std::memory_order_release);
        }
        break;
      case v1::DataMessage::kOpen:
        status = absl::InvalidArgumentError("DataOpen came a second time");
        break;
      case v1::DataMessage::WHAT_NOT_SET:
        break;  // of a newer peer
    }
  }
  if (!status.ok()) {
    Close(absl::DataLossError(absl::StrCat("the data stream of ", PeerName(), ": ", std::string(status.message()))));
    return;
  }
  if (options_.doorbell != nullptr) options_.doorbell->Ring();
}

absl::Status RemoteLink::OnPiece(const v1::DataPiece& piece) {
  const auto it = in_.find(piece.edge());
  if (it == in_.end()) return absl::InvalidArgumentError(absl::StrCat("a piece of edge ", piece.edge(), ", which it does not carry"));
  InEdge& in = it->second;
  const std::string name = NameOf(*in.edge);
  if (piece.data().size() > kPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a piece of ", piece.data().size(), " bytes, at most 1 MiB"));
  }
  if (!in.assembling) WEFT_RETURN_IF_ERROR(BeginMessage(piece, &in));
  const uint64_t bytes = in.current.header.bytes;
  if (piece.execution() != in.current.execution || piece.offset() != in.current_bytes || piece.data().size() > bytes - in.current_bytes ||
      (piece.data().empty() && bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a piece of execution ", piece.execution(), " for bytes ", piece.offset(),
                                                   "..", piece.offset() + piece.data().size(), " came where byte ", in.current_bytes,
                                                   " of ", bytes, " of execution ", in.current.execution, " was due"));
  }
  if (in.current.tensor.defined() && !piece.data().empty()) {
    std::memcpy(static_cast<char*>(in.current.tensor.data()) + in.current_bytes, piece.data().data(), piece.data().size());
  }
  in.current_bytes += piece.data().size();
  if (piece.last() != (in.current_bytes == bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the last piece came after ", in.current_bytes, " of ", bytes, " bytes"));
  }
  if (piece.last()) {
    in.assembling = false;
    in.ready.push_back(std::move(in.current));
    in.current = Message();
  }
  return absl::OkStatus();
}

absl::Status RemoteLink::BeginMessage(const v1::DataPiece& piece, InEdge* in) {
  const std::string name = NameOf(*in->edge);
  if (piece.header().size() != sizeof(MessageHeader)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a message whose header has ", piece.header().size(), " bytes"));
  }
  if (in->unreleased >= in->edge->slots) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a message without credit: ", in->unreleased, " of ", in->edge->slots,
                                                   " slots are taken"));
  }
  in->current = Message();
  std::memcpy(&in->current.header, piece.header().data(), sizeof(MessageHeader));
  in->current.execution = piece.execution();
  in->current_bytes = 0;
  const MessageHeader& h = in->current.header;
  const uint64_t most = in->edge->spec.shape.HasDynamic() ? kMaxDynamicBytes : in->edge->bytes;
  if (h.bytes > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a message of ", h.bytes, " bytes, at most ", most));
  }
  // A header that does not fit the edge is told to the port; its bytes are skipped.
  const Dims dims = DimsOf(h);
  const absl::StatusOr<int64_t> elements = NumElements(dims);
  const DType dtype = static_cast<DType>(h.dtype);
  if (h.error_code == 0 && elements.ok() && SizeOf(dtype) > 0 && static_cast<uint64_t>(*elements) * SizeOf(dtype) == h.bytes) {
    WEFT_ASSIGN_OR_RETURN(in->current.tensor, Tensor::OnHost(dtype, dims));
  }
  ++in->unreleased;
  in->assembling = true;
  return absl::OkStatus();
}

absl::Status RemoteLink::OnRelease(const v1::DataRelease& release) {
  const auto it = out_.find(release.edge());
  if (it == out_.end()) return absl::InvalidArgumentError(absl::StrCat("a release of edge ", release.edge(), ", which it does not carry"));
  OutEdge& out = it->second;
  if (out.unreleased.empty() || out.unreleased.front() != release.execution()) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(*out.edge), ": a release of execution ", release.execution(), " where ",
                                                   out.unreleased.empty() ? std::string("none") : absl::StrCat(out.unreleased.front()),
                                                   " was due"));
  }
  out.unreleased.pop_front();
  ++out.released;
  return absl::OkStatus();
}

void RemoteLink::OnClosed(const absl::Status& why) { Close(why); }

void RemoteLink::Close(const absl::Status& cause) {
  {
    MutexLock lock(&mu_);
    if (!closed_.ok() || cause.ok()) return;
    closed_ = cause;
  }
  pipe_->Close(cause);
  if (options_.doorbell != nullptr) options_.doorbell->Ring();
}

absl::Status RemoteLink::closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

}  // namespace weft
