#include "common/channel/ipc/ipc_send_port.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/ipc/capture_ports.h"

namespace weft {
namespace {

// Over when the consumer has copied and this device has written its flag.
class IpcSendEvent : public Event {
 public:
  IpcSendEvent(EventRef released, EventRef written, Tensor tensor)
      : released_(std::move(released)), written_(std::move(written)), tensor_(std::move(tensor)) {}
  bool Ready() const override { return IsReady(released_) && IsReady(written_); }

 private:
  const EventRef released_;
  const EventRef written_;
  const Tensor tensor_;  // keeps the memory
};

}  // namespace

absl::StatusOr<EventRef> IpcSendPort::Send(int64_t execution, const Value& value, Stream* stream) {
  WEFT_RETURN_IF_ERROR(CheckSendable(edge_, value));
  if (value.error != nullptr) return header_->Send(execution, value, nullptr);

  IpcAnnouncement a;
  const auto offset_of = [&](const void* p, uint64_t bytes, uint64_t* offset) {
    const char* const base = static_cast<const char*>(memory_.get());
    const char* const at = static_cast<const char*>(p);
    if (bytes > bytes_ || at < base || at > base + (bytes_ - bytes)) return false;
    *offset = static_cast<uint64_t>(at - base);
    return true;
  };
  a.bytes = value.tensor.bytes();
  if (a.bytes > 0 && !offset_of(value.tensor.data(), a.bytes, &a.offset)) {
    return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": the value does not lie in the memory that ", edge_.dst_worker,
                                            " has opened: the actor made it elsewhere than AllocateOutput says"));
  }
  if (value.status != nullptr && !offset_of(value.status, sizeof(DeviceStatus), &a.status_offset)) {
    return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": a status word lies outside of the plan's memory"));
  }
  a.dtype = value.tensor.dtype();
  a.rank = static_cast<int32_t>(value.tensor.dims().size());
  std::copy(value.tensor.dims().begin(), value.tensor.dims().end(), a.dims);

  WEFT_ASSIGN_OR_RETURN(void* const slot, header_->Reserve(0, sizeof a));
  if (slot == nullptr) return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": its announcements lie in no shared memory"));
  auto* const shared = static_cast<IpcAnnouncement*>(slot);
  a.opened_by = std::atomic_ref<uint32_t>(shared->opened_by).load(std::memory_order_relaxed);
  *shared = a;  // `ready` is 0: the consumer has done with the slot's last use, so nobody waits on it
  EventRef written;
  if (IsReady(value.event) && device_->IsIdle(stream->native())) {
    // The value is there, and so is all that the stream has waited for: the device need not be asked. Where workers take turns on a GPU, that saves a turn.
    std::atomic_ref<uint32_t>(shared->ready).store(1, std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    WEFT_RETURN_IF_ERROR(device_->Check(device_->api()->StreamWrite32(stream->native(), &shared->ready, 1),
                                        absl::StrCat(EdgeLabel(edge_), ": telling that the value is there")));
    WEFT_ASSIGN_OR_RETURN(written, device_->Record(stream->native()));
  }
  Value header;
  header.tensor = Tensor(v1::U8, {static_cast<int64_t>(sizeof a)}, slot, nullptr);
  WEFT_RETURN_IF_ERROR(header_->Send(execution, header, nullptr).status());
  return EventRef(std::make_shared<IpcSendEvent>(header_->Released(), std::move(written), value.tensor));
}

absl::StatusOr<std::shared_ptr<CaptureSendPort>> IpcSendPort::ForCapture() {
  return IpcCaptureSendPort::Create(header_.get(), edge_, device_, memory_, bytes_);
}

}  // namespace weft
