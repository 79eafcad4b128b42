#include "common/channel/ipc/ipc_recv_port.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/ipc/capture_ports.h"

namespace weft {

void IpcRecvPort::SetReady(const Value& announcement) {
  if (!announcement.tensor.defined()) return;
  std::atomic_ref<uint32_t>(announcement.tensor.as<IpcAnnouncement>()->ready).store(1, std::memory_order_release);
}

IpcRecvPort::~IpcRecvPort() { Releaser()(); }

std::function<void()> IpcRecvPort::Releaser() const {
  return [core = core_] {
    MutexLock lock(&core->mu);
    core->released = true;
    for (const auto& [execution, announcement] : core->waiting) SetReady(announcement);
  };
}

absl::StatusOr<EventRef> IpcRecvPort::Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) {
  Value header;
  WEFT_RETURN_IF_ERROR(header_->Recv(execution, Tensor(), &header, nullptr).status());
  DeviceStatus* const status = out->status;
  const auto refuse = [&](TaskErrorRef error) {
    out->tensor = Tensor();
    out->error = std::move(error);
    // Slots go back in order: this one not before those whose values are still being copied.
    bool first = false;
    {
      MutexLock lock(&core_->mu);
      first = core_->waiting.empty();
      if (!first) core_->waiting.push_back({execution, Value()});
    }
    if (first) header_->Release(execution);
    return EventRef();
  };
  if (header.error != nullptr) return refuse(header.error);
  IpcAnnouncement a;
  std::memcpy(&a, header.tensor.data(), sizeof a);
  Dims dims;
  absl::Status fits = CheckAnnouncement(a, edge_, memory_->bytes(), &dims);
  if (fits.ok() && a.bytes > buffer.bytes()) {
    fits = absl::OutOfRangeError(absl::StrCat("a value of ", a.bytes, " bytes came, ", buffer.bytes(), " are reserved"));
  }
  if (!fits.ok()) return refuse(EdgeError(edge_, execution, fits));

  auto* const shared = header.tensor.as<IpcAnnouncement>();
  {
    // Before the stream waits, so that Releaser finds it however they interleave.
    MutexLock lock(&core_->mu);
    core_->waiting.push_back({execution, header});
    if (core_->released) SetReady(header);
  }
  CudaApi* const api = device_->api();
  const auto doing = [&](const char* what) { return absl::StrCat(EdgeLabel(edge_), ": ", what); };
  CudaStreamHandle const s = stream->native();
  if (std::atomic_ref<uint32_t>(shared->ready).load(std::memory_order_acquire) != 1) {
    WEFT_RETURN_IF_ERROR(device_->Check(api->StreamWait32(s, &shared->ready, 1), doing("waiting for the value")));
  }
  // Status words lie right behind a value that fills its buffer: then one copy moves both.
  const bool together = status != nullptr && a.status_offset == a.offset + (a.bytes + 15) / 16 * 16 &&
                        reinterpret_cast<char*>(status) == buffer.as<char>() + (a.bytes + 15) / 16 * 16;
  const uint64_t bytes = together ? a.status_offset + sizeof(DeviceStatus) - a.offset : a.bytes;
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(device_->Check(api->MemcpyAsync(buffer.data(), memory_->data() + a.offset, bytes, s), doing("copying the value")));
  }
  if (status != nullptr && !together) {
    const absl::Status moved =
        a.status_offset == IpcAnnouncement::kNoStatus
            ? device_->Check(api->MemsetAsync(status, 0, sizeof *status, s), doing("clearing the status word"))
            : device_->Check(api->MemcpyAsync(status, memory_->data() + a.status_offset, sizeof *status, s), doing("copying the status word"));
    WEFT_RETURN_IF_ERROR(moved);
  }
  out->error = nullptr;
  out->tensor = Tensor(edge_.spec.dtype, dims, buffer.data(), buffer.owner());
  return device_->Record(s);
}

void IpcRecvPort::Arrived(int64_t execution) {
  {
    MutexLock lock(&core_->mu);
    // Not there: it came as an error, whose slot was given back at once.
    if (core_->waiting.empty() || core_->waiting.front().first != execution) return;
    core_->waiting.pop_front();
  }
  header_->Release(execution);
}

absl::StatusOr<std::shared_ptr<CaptureRecvPort>> IpcRecvPort::ForCapture() {
  return IpcCaptureRecvPort::Create(header_.get(), edge_, device_, memory_);
}

}  // namespace weft
