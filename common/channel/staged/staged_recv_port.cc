#include "common/channel/staged/staged_recv_port.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/staged/capture_ports.h"

namespace weft {

// One receive.
struct StagedRecvPort::Item {
  int64_t execution = 0;
  Value host;           // what the inner port gave; filled when host_event is ready
  EventRef host_event;
  Tensor buffer;
  Value* out = nullptr;
  CudaStreamHandle stream = nullptr;
  bool started = false;
  bool cancelled = false;  // the port is gone, `out` may be too
  EventRef copied;         // nullptr: nothing was copied
  bool reachable = false;  // the host's value may be given as it is
  bool in_place = false;   // it was, and its slot is in use until it is released

  bool HostReady() const { return IsReady(host_event); }
  bool Done() const { return started && IsReady(copied); }
  bool SlotFree() const { return Done() && !in_place; }
};

// A receive whose value the host does not have yet.
class StagedRecvPort::StagedEvent : public Event {
 public:
  StagedEvent(std::shared_ptr<Item> item, ShmEdgeSpec edge, CudaDevice* device)
      : item_(std::move(item)), edge_(std::move(edge)), device_(device) {}

  bool Ready() const override {
    if (item_->cancelled) return true;
    if (!item_->started) {
      if (!item_->HostReady()) return false;
      Start(item_.get(), edge_, device_);
    }
    return item_->Done();
  }
  bool Queued() const override {
    (void)Ready();
    return item_->started || item_->cancelled;
  }
  void MoveOn() override { (void)Ready(); }
  Nanos ReadyAt() const override { return item_->started || item_->host_event == nullptr ? kUnknown : item_->host_event->ReadyAt(); }
  Nanos StartedAt() const override { return item_->host_event == nullptr ? -1 : item_->host_event->StartedAt(); }

 private:
  const std::shared_ptr<Item> item_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
};

absl::StatusOr<std::unique_ptr<StagedRecvPort>> StagedRecvPort::Create(std::unique_ptr<RecvPort> inner, const ShmEdgeSpec& edge,
                                                                       CudaDevice* device,
                                                                       bool reachable) {
  std::unique_ptr<StagedRecvPort> port(new StagedRecvPort(std::move(inner), edge, device, reachable));
  if (!port->inner_->ZeroCopy() && edge.bytes > 0) {
    for (int i = 0; i < edge.slots; ++i) {
      absl::StatusOr<std::shared_ptr<void>> memory = device->AllocateHost(edge.bytes);
      if (!memory.ok()) return absl::Status(memory.status().code(), absl::StrCat(EdgeLabel(edge), ": ", std::string(memory.status().message())));
      port->staging_.push_back(*std::move(memory));
    }
  }
  return port;
}

StagedRecvPort::StagedRecvPort(std::unique_ptr<RecvPort> inner, const ShmEdgeSpec& edge, CudaDevice* device, bool reachable)
    : inner_(std::move(inner)), edge_(edge), device_(device), reachable_(reachable) {}

StagedRecvPort::~StagedRecvPort() {
  for (const std::shared_ptr<Item>& item : items_) item->cancelled = true;
}

absl::StatusOr<std::shared_ptr<CaptureRecvPort>> StagedRecvPort::ForCapture() {
  return StagedCaptureRecvPort::Create(inner_.get(), edge_, device_, reachable_ ? kInPlaceBytes : 0);
}

void StagedRecvPort::Pump() {
  while (!items_.empty() && items_.front()->SlotFree()) {
    inner_->Release(items_.front()->execution);
    items_.pop_front();
  }
}

PortState StagedRecvPort::Poll(int64_t execution) {
  Pump();
  return inner_->Poll(execution);
}

void StagedRecvPort::Start(Item* item, const ShmEdgeSpec& edge, CudaDevice* device) {
  item->started = true;
  DeviceStatus* const status = item->out->status;
  item->out->tensor = Tensor();
  item->out->error = item->host.error;
  if (item->host.error != nullptr) return;
  const auto refuse = [&](const absl::Status& why) {
    item->out->tensor = Tensor();
    item->out->error = EdgeError(edge, item->execution, why);
  };
  const Tensor& from = item->host.tensor;
  if (item->reachable && status == nullptr && from.bytes() <= kInPlaceBytes && item->buffer.defined() && from.bytes() <= item->buffer.bytes()) {
    item->in_place = true;
    item->out->tensor = from;
    return;
  }
  Tensor to;
  if (item->buffer.defined()) {
    if (from.bytes() > item->buffer.bytes()) {
      return refuse(absl::OutOfRangeError(absl::StrCat("a value of ", from.bytes(), " bytes came, ", item->buffer.bytes(), " are reserved")));
    }
    to = Tensor(from.dtype(), from.dims(), item->buffer.data(), item->buffer.owner());
  } else {
    absl::StatusOr<std::shared_ptr<void>> memory = device->AllocateOn(item->stream, from.bytes());
    if (!memory.ok()) return refuse(memory.status());
    void* const data = memory->get();
    to = Tensor(from.dtype(), from.dims(), data, *std::move(memory));
  }
  absl::Status s;
  if (from.bytes() > 0) s = device->Check(device->api()->MemcpyAsync(to.data(), from.data(), from.bytes(), item->stream), "copying to the GPU");
  if (s.ok() && status != nullptr) {
    s = device->Check(device->api()->MemsetAsync(status, 0, sizeof *status, item->stream), "clearing a status word");
  }
  if (!s.ok()) return refuse(s);
  if (from.bytes() > 0 || status != nullptr) {
    absl::StatusOr<EventRef> copied = device->Record(item->stream);
    if (!copied.ok()) return refuse(copied.status());
    item->copied = *std::move(copied);
  }
  item->out->tensor = std::move(to);
}

absl::StatusOr<EventRef> StagedRecvPort::Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) {
  auto item = std::make_shared<Item>();
  item->execution = execution;
  item->buffer = buffer;
  item->out = out;
  item->stream = stream->native();
  item->reachable = reachable_;
  Tensor staging;
  if (!staging_.empty()) {
    const std::shared_ptr<void>& memory = staging_[received_ % staging_.size()];
    staging = Tensor(edge_.spec.dtype, edge_.spec.shape.MaxDims(), memory.get(), memory);
  }
  WEFT_ASSIGN_OR_RETURN(item->host_event, inner_->Recv(execution, staging, &item->host, nullptr));
  ++received_;
  items_.push_back(item);
  if (!item->HostReady()) return EventRef(std::make_shared<StagedEvent>(std::move(item), edge_, device_));
  Start(item.get(), edge_, device_);
  return item->copied;
}

void StagedRecvPort::Release(int64_t execution) {
  for (const std::shared_ptr<Item>& item : items_) {
    if (item->execution == execution) item->in_place = false;
  }
  Pump();
}

}  // namespace weft
