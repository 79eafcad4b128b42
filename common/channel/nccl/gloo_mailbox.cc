#include "common/channel/nccl/gloo_mailbox.h"

#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr uint64_t kSlot = 1;

// What crosses the wire for each message, always as a whole: small enough for one segment's worth of cost.
struct Frame {
  MessageHeader header;
  char payload[GlooMailbox::kMaxBytes] = {};
};

}  // namespace

class GlooMailbox::Engine {
 public:
  Engine(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, const std::vector<int32_t>& edges, Doorbell* doorbell)
      : mesh_(std::move(mesh)), plan_hash_(plan_hash), doorbell_(doorbell) {
    {
      MutexLock lock(&mu_);
      for (const int32_t e : edges) boxes_.emplace(e, Box());
    }
    thread_ = mesh_->rank() == 0 ? std::thread([this] { SendAll(); }) : std::thread([this] { ReceiveAll(); });
  }
  ~Engine() { Stop(); }

  void Stop() {
    mesh_->Abort(absl::CancelledError("closed"));
    {
      MutexLock lock(&mu_);
      stop_ = true;
      wake_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  GlooMesh& mesh() const { return *mesh_; }
  uint64_t plan_hash() const { return plan_hash_; }
  const std::string& peer() const { return mesh_->options().workers[1 - mesh_->rank()]; }

  // False: no such edge, or it has a port already.
  bool Open(int32_t edge) {
    MutexLock lock(&mu_);
    const auto box = boxes_.find(edge);
    if (box == boxes_.end() || box->second.open) return false;
    box->second.open = true;
    return true;
  }

  // Sender: messages of the edge that are not on their way yet.
  size_t Unsent(int32_t edge) {
    MutexLock lock(&mu_);
    return boxes_[edge].unsent;
  }
  void Send(int32_t edge, Frame frame) {
    MutexLock lock(&mu_);
    ++boxes_[edge].unsent;
    outgoing_.push_back(std::move(frame));
    wake_.NotifyOne();
  }

  // Receiver.
  bool Came(int32_t edge) {
    MutexLock lock(&mu_);
    return !boxes_[edge].came.empty();
  }
  bool Take(int32_t edge, Frame* out) {
    MutexLock lock(&mu_);
    std::deque<Frame>& came = boxes_[edge].came;
    if (came.empty()) return false;
    *out = came.front();
    came.pop_front();
    return true;
  }

 private:
  struct Box {
    bool open = false;  // has a port
    size_t unsent = 0;
    std::deque<Frame> came;
  };

  void SendAll() {
    for (;;) {
      Frame frame;
      {
        MutexLock lock(&mu_);
        while (outgoing_.empty() && !stop_) wake_.Wait(&mu_);
        if (stop_) return;
        frame = std::move(outgoing_.front());
        outgoing_.pop_front();
      }
      if (!mesh_->Exchange({{1, kSlot, &frame, sizeof frame}}, {}).ok()) return;  // the mesh keeps the cause
      {
        MutexLock lock(&mu_);
        --boxes_[frame.header.edge].unsent;
      }
      if (doorbell_ != nullptr) doorbell_->Ring();
    }
  }

  void ReceiveAll() {
    for (;;) {
      Frame frame;
      if (!mesh_->Exchange({}, {{0, kSlot, &frame, sizeof frame}}).ok()) return;
      {
        MutexLock lock(&mu_);
        const auto box = boxes_.find(frame.header.edge);
        if (box == boxes_.end() || box->second.came.size() >= kMaxWaiting) {
          mesh_->Abort(absl::DataLossError(absl::StrCat(
              mesh_->options().label, ": ", peer(), box == boxes_.end() ? " sends a message of an edge that is not here, " : " does not stop sending edge ",
              frame.header.edge, "; compile the graph again and restart that worker")));
          return;
        }
        box->second.came.push_back(std::move(frame));
      }
      if (doorbell_ != nullptr) doorbell_->Ring();
    }
  }

  const std::shared_ptr<GlooMesh> mesh_;
  const uint64_t plan_hash_;
  Doorbell* const doorbell_;

  Mutex mu_;
  CondVar wake_;
  std::map<int32_t, Box> boxes_ WEFT_GUARDED_BY(mu_);
  std::deque<Frame> outgoing_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class GlooMailbox::Sender : public SendPort {
 public:
  Sender(std::shared_ptr<Engine> engine, ShmEdgeSpec edge) : engine_(std::move(engine)), edge_(std::move(edge)) {}

  PortState Poll(int64_t) override {
    if (!closed().ok()) return PortState::kClosed;
    return engine_->Unsent(edge_.edge) < static_cast<size_t>(edge_.slots) ? PortState::kReady : PortState::kWaiting;
  }

  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream*) override {
    WEFT_RETURN_IF_ERROR(CheckSendable(edge_, value));
    const PortState state = Poll(execution);
    if (state == PortState::kClosed) return closed();
    if (state == PortState::kWaiting) {
      return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": send of execution ", execution, " without credit"));
    }
    if (!IsReady(value.event)) return absl::FailedPreconditionError(absl::StrCat(EdgeLabel(edge_), ": the value is not ready"));
    Frame frame;
    frame.header = MakeHeader(engine_->plan_hash(), edge_.edge, execution, sequence_++, value.tensor, value.error);
    if (frame.header.bytes > 0) std::memcpy(frame.payload, value.tensor.data(), frame.header.bytes);
    last_ = execution;
    engine_->Send(edge_.edge, std::move(frame));
    return EventRef();
  }

  std::string WaitsFor() const override { return absl::StrCat("the connection to ", engine_->peer(), " to take the message of execution ", last_); }
  absl::Status closed() const override { return engine_->mesh().Health(); }

 private:
  const std::shared_ptr<Engine> engine_;
  const ShmEdgeSpec edge_;
  uint64_t sequence_ = 0;
  int64_t last_ = 0;
};

class GlooMailbox::Receiver : public RecvPort {
 public:
  Receiver(std::shared_ptr<Engine> engine, ShmEdgeSpec edge) : engine_(std::move(engine)), edge_(std::move(edge)) {}

  PortState Poll(int64_t execution) override {
    polled_ = execution;
    // Asked before: a message that came before the end is seen.
    const bool closed = !engine_->mesh().Health().ok();
    if (engine_->Came(edge_.edge)) return PortState::kReady;
    return closed ? PortState::kClosed : PortState::kWaiting;
  }

  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor&, Value* out, Stream*) override {
    Frame frame;
    if (!engine_->Take(edge_.edge, &frame)) {
      WEFT_RETURN_IF_ERROR(closed());
      return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": receive of execution ", execution, " too early"));
    }
    *out = Value();
    const absl::Status s = Fill(execution, frame, out);
    if (!s.ok()) {
      out->tensor = Tensor();
      out->error = EdgeError(edge_, execution, s);
    }
    return EventRef();
  }

  void Release(int64_t) override {}
  bool ZeroCopy() const override { return true; }  // of memory of its own, which the value owns
  std::string WaitsFor() const override { return absl::StrCat(engine_->peer(), " to write execution ", polled_); }
  absl::Status closed() const override { return engine_->mesh().Health(); }

 private:
  absl::Status Fill(int64_t execution, const Frame& frame, Value* out) {
    const MessageHeader& h = frame.header;
    WEFT_RETURN_IF_ERROR(CheckHeader(h, engine_->plan_hash(), edge_.edge, execution, sequence_++, edge_.spec));
    out->error = ErrorOf(h);
    if (out->error != nullptr) return absl::OkStatus();
    if (h.bytes > kMaxBytes) return absl::DataLossError(absl::StrCat("a message of ", h.bytes, " bytes in a frame of ", kMaxBytes));
    WEFT_ASSIGN_OR_RETURN(out->tensor, Tensor::OnHost(static_cast<DType>(h.dtype), DimsOf(h)));
    if (h.bytes > 0) std::memcpy(out->tensor.data(), frame.payload, h.bytes);
    return absl::OkStatus();
  }

  const std::shared_ptr<Engine> engine_;
  const ShmEdgeSpec edge_;
  uint64_t sequence_ = 0;
  int64_t polled_ = 0;
};

GlooMailbox::GlooMailbox(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, const std::vector<int32_t>& edges, Doorbell* doorbell)
    : engine_(std::make_shared<Engine>(std::move(mesh), plan_hash, edges, doorbell)) {}

GlooMailbox::~GlooMailbox() { engine_->Stop(); }

void GlooMailbox::Close(const absl::Status& cause) { engine_->mesh().Abort(cause); }
absl::Status GlooMailbox::Health() const { return engine_->mesh().Health(); }

absl::Status GlooMailbox::CheckEdge(const ShmEdgeSpec& edge, int rank) const {
  WEFT_RETURN_IF_ERROR(CheckEdgeSpec(edge));
  const auto bad = [&](const std::string& why) { return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge), ": ", why)); };
  const GlooMesh& mesh = engine_->mesh();
  if (edge.edge < 0) return bad(absl::StrCat("edge number ", edge.edge));
  if (edge.rendezvous || edge.latency_s > 0 || edge.bandwidth > 0) return bad("links are emulated on shm edges only");
  if (edge.bytes == 0 || edge.bytes > kMaxBytes) return bad(absl::StrCat(edge.bytes, " bytes; a message here has 1 to ", kMaxBytes));
  if (mesh.size() != 2 || mesh.rank() != rank) {
    return bad(absl::StrCat("rank ", mesh.rank(), " of ", mesh.size(), " is not its ", rank == 0 ? "sending" : "receiving", " end"));
  }
  if (!engine_->Open(edge.edge)) return bad("the mailbox was not told of it, or it has a port already");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SendPort>> GlooMailbox::NewSendPort(const ShmEdgeSpec& edge) {
  WEFT_RETURN_IF_ERROR(CheckEdge(edge, 0));
  return std::unique_ptr<SendPort>(std::make_unique<Sender>(engine_, edge));
}

absl::StatusOr<std::unique_ptr<RecvPort>> GlooMailbox::NewRecvPort(const ShmEdgeSpec& edge) {
  WEFT_RETURN_IF_ERROR(CheckEdge(edge, 1));
  return std::unique_ptr<RecvPort>(std::make_unique<Receiver>(engine_, edge));
}

}  // namespace weft
