#include "common/channel/staged/staged_send_port.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/staged/capture_ports.h"

namespace weft {

class StagedSendPort::Core : public std::enable_shared_from_this<StagedSendPort::Core> {
 public:
  struct Item {
    int64_t execution = 0;
    Value host;            // what is to be sent
    Tensor source;         // keeps the device's memory until the copy is done
    EventRef copied;       // nullptr: there was nothing to copy
    const DeviceStatus* status = nullptr;  // page-locked copy of the value's word
    bool sent = false;
    EventRef inner;        // of the inner port
  };

  Core(std::unique_ptr<SendPort> inner, const ShmEdgeSpec& edge, CudaDevice* device, DeviceErrorFn error_of,
       std::shared_ptr<StagedOrder> order)
      : inner_(std::move(inner)), edge_(edge), device_(device), error_of_(std::move(error_of)), order_(std::move(order)) {}

  absl::Status TakeMemory() {
    WEFT_ASSIGN_OR_RETURN(words_, device_->AllocateHost(sizeof(DeviceStatus) * Slots()));
    return absl::OkStatus();
  }

  PortState Poll(int64_t execution) {
    Pump();
    if (!closed().ok()) return PortState::kClosed;
    return inner_->PollAhead(execution, static_cast<int>(pending_.size()));
  }

  absl::StatusOr<std::shared_ptr<Item>> Add(int64_t execution, const Value& value, CudaStreamHandle stream) {
    WEFT_RETURN_IF_ERROR(CheckSendable(edge_, value));
    auto item = std::make_shared<Item>();
    item->execution = execution;
    item->host.error = value.error;
    const size_t bytes = value.error != nullptr ? 0 : value.tensor.bytes();
    if (value.error == nullptr) item->host.tensor = Tensor(value.tensor.dtype(), value.tensor.dims(), nullptr, nullptr);
    if (bytes > 0 && value.on_host) {
      // Nothing to copy: the inner port takes it from where it is, when it is there.
      item->host.tensor = value.tensor;
      item->copied = value.event;
    } else if (bytes > 0) {
      WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<void> to, PlaceFor(bytes));
      item->source = value.tensor;
      WEFT_RETURN_IF_ERROR(device_->Check(device_->api()->MemcpyAsync(to.get(), value.tensor.data(), bytes, stream), "copying from the GPU"));
      item->host.tensor = Tensor(value.tensor.dtype(), value.tensor.dims(), to.get(), to);
    }
    if (value.error == nullptr && value.status != nullptr) {
      DeviceStatus* const word = static_cast<DeviceStatus*>(words_.get()) + number_ % Slots();
      WEFT_RETURN_IF_ERROR(device_->Check(device_->api()->MemcpyAsync(word, value.status, sizeof *word, stream), "copying a status word"));
      item->status = word;
    }
    if ((bytes > 0 && !value.on_host) || item->status != nullptr) {
      WEFT_ASSIGN_OR_RETURN(item->copied, device_->Record(stream));
    }
    ++number_;
    pending_.push_back(item);
    if (order_ != nullptr) {
      order_->Add(item.get(), [weak = weak_from_this()] {
        if (const auto core = weak.lock()) core->Pump();
      });
    }
    Pump();
    return item;
  }

  // Sends what has come from the device, in order.
  void Pump() {
    while (!pending_.empty() && failure_.ok() && IsReady(pending_.front()->copied)) {
      const std::shared_ptr<Item> item = pending_.front();
      if (order_ != nullptr && !order_->IsFirst(item.get())) return;
      // On a broken device every event is ready, and what lies in host memory is no value.
      failure_ = device_->Health();
      if (!failure_.ok()) return;
      item->source = Tensor();
      if (item->status != nullptr && item->status->word != 0) {
        item->host = Value();
        item->host.error = error_of_ ? error_of_(item->status->word) : nullptr;
        if (item->host.error == nullptr) {
          item->host.error = EdgeError(edge_, item->execution, absl::InternalError(absl::StrCat(
                                       "the device reports an error that this worker knows no name for (", item->status->word, ")")));
        }
      }
      absl::StatusOr<EventRef> sent = inner_->Send(item->execution, item->host, nullptr);
      if (!sent.ok()) {
        failure_ = sent.status();
        return;
      }
      item->inner = *std::move(sent);
      item->host = Value();
      item->sent = true;
      pending_.pop_front();
      if (order_ != nullptr) order_->Pop();
    }
  }

  bool Done(const Item& item) {
    if (!item.sent) Pump();
    if (item.sent) return IsReady(item.inner);
    // Once nothing is sent any more, what matters is that the device has left the memory alone.
    return (!failure_.ok() || abandoned_ || !inner_->closed().ok()) && IsReady(item.copied);
  }

  absl::StatusOr<std::shared_ptr<CaptureSendPort>> ForCapture() { return StagedCaptureSendPort::Create(inner_, edge_, device_); }

  void Abandon() {
    abandoned_ = true;
    for (const auto& item : pending_) {
      if (order_ != nullptr) order_->Drop(item.get());
    }
  }
  absl::Status closed() const { return failure_.ok() ? inner_->closed() : failure_; }
  std::string WaitsFor() const {
    if (!pending_.empty()) return absl::StrCat("the copy of execution ", pending_.front()->execution, " from the GPU");
    return inner_->WaitsFor();
  }

 private:
  size_t Slots() const { return static_cast<size_t>(edge_.slots); }

  // Where the value is written: the channel's slot, else page-locked memory.
  absl::StatusOr<std::shared_ptr<void>> PlaceFor(size_t bytes) {
    WEFT_ASSIGN_OR_RETURN(void* const slot, inner_->Reserve(static_cast<int>(pending_.size()), bytes));
    if (slot != nullptr) return std::shared_ptr<void>(inner_, slot);
    // One that nobody holds: neither a transfer under way nor the inner port. None is given back before the port goes, since that waits for the device.
    for (Staging& place : staging_) {
      if (place.memory.use_count() == 1 && place.bytes >= bytes) return place.memory;
    }
    const size_t reserved = std::max<size_t>(bytes, edge_.bytes);
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, device_->AllocateHost(reserved));
    staging_.push_back({memory, reserved});
    return memory;
  }

  const std::shared_ptr<SendPort> inner_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const DeviceErrorFn error_of_;
  const std::shared_ptr<StagedOrder> order_;
  std::shared_ptr<void> words_;
  struct Staging {
    std::shared_ptr<void> memory;
    size_t bytes = 0;
  };
  std::vector<Staging> staging_;
  uint64_t number_ = 0;
  std::deque<std::shared_ptr<Item>> pending_;  // not sent, oldest first
  absl::Status failure_;
  bool abandoned_ = false;
};

class StagedSendPort::StagedEvent : public Event {
 public:
  StagedEvent(std::shared_ptr<Core> core, std::shared_ptr<Core::Item> item) : core_(std::move(core)), item_(std::move(item)) {}
  bool Ready() const override { return core_->Done(*item_); }
  void MoveOn() override {
    if (!item_->sent) core_->Pump();
  }
  Nanos ReadyAt() const override { return item_->sent && item_->inner != nullptr ? item_->inner->ReadyAt() : kUnknown; }
  Nanos StartedAt() const override { return item_->sent && item_->inner != nullptr ? item_->inner->StartedAt() : -1; }

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Core::Item> item_;
};

absl::StatusOr<std::unique_ptr<StagedSendPort>> StagedSendPort::Create(std::unique_ptr<SendPort> inner, const ShmEdgeSpec& edge,
                                                                       CudaDevice* device, DeviceErrorFn error_of, std::shared_ptr<StagedOrder> order) {
  auto core = std::make_shared<Core>(std::move(inner), edge, device, std::move(error_of), std::move(order));
  WEFT_RETURN_IF_ERROR(core->TakeMemory());
  return std::unique_ptr<StagedSendPort>(new StagedSendPort(std::move(core)));
}

StagedSendPort::~StagedSendPort() { core_->Abandon(); }

PortState StagedSendPort::Poll(int64_t execution) { return core_->Poll(execution); }

absl::StatusOr<EventRef> StagedSendPort::Send(int64_t execution, const Value& value, Stream* stream) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Core::Item> item, core_->Add(execution, value, stream == nullptr ? nullptr : stream->native()));
  if (item->sent) return item->inner;
  return EventRef(std::make_shared<StagedEvent>(core_, std::move(item)));
}

std::string StagedSendPort::WaitsFor() const { return core_->WaitsFor(); }
absl::Status StagedSendPort::closed() const { return core_->closed(); }
absl::StatusOr<std::shared_ptr<CaptureSendPort>> StagedSendPort::ForCapture() { return core_->ForCapture(); }

}  // namespace weft
