#include "common/channel/ipc/capture_ports.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

absl::Status NoSharedMemory(const ShmEdgeSpec& edge) {
  return absl::InternalError(absl::StrCat(EdgeLabel(edge), ": its announcements lie in no shared memory"));
}

void SetFlag(uint32_t* flag) { std::atomic_ref<uint32_t>(*flag).store(1, std::memory_order_release); }

}  // namespace

absl::StatusOr<std::shared_ptr<CaptureSendPort>> IpcCaptureSendPort::Create(SendPort* header, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                            std::shared_ptr<void> memory, uint64_t bytes) {
  std::shared_ptr<IpcCaptureSendPort> port(new IpcCaptureSendPort(header, edge, device, std::move(memory), bytes));
  for (int v = 0; v < edge.slots; ++v) {
    WEFT_ASSIGN_OR_RETURN(void* const slot, header->Reserve(v, sizeof(IpcAnnouncement)));
    if (slot == nullptr) return NoSharedMemory(edge);
    port->slots_.push_back(static_cast<IpcAnnouncement*>(slot));
  }
  return std::shared_ptr<CaptureSendPort>(std::move(port));
}

absl::Status IpcCaptureSendPort::CaptureReuse(int variant, Stream* stream) {
  IpcAnnouncement* const a = slots_[variant];
  CudaApi* const api = device_->api();
  WEFT_RETURN_IF_ERROR(device_->Check(api->StreamWait32(stream->native(), &a->free, 1),
                                      absl::StrCat(EdgeLabel(edge_), ": waiting for the value's buffer")));
  return device_->Check(api->StreamWrite32(stream->native(), &a->free, 0), absl::StrCat(EdgeLabel(edge_), ": taking the value's buffer"));
}

absl::Status IpcCaptureSendPort::Capture(int variant, const Value& value, Stream* stream) {
  IpcAnnouncement* const a = slots_[variant];
  const char* const base = static_cast<const char*>(memory_.get());
  const bool fits = value.tensor.bytes() == edge_.bytes && a->bytes == edge_.bytes;
  if (!fits || (edge_.bytes > 0 && (edge_.bytes > bytes_ || value.tensor.data() != base + a->offset))) {
    return absl::InternalError(absl::StrCat(EdgeLabel(edge_), ": the value does not lie where ", edge_.dst_worker,
                                            " was told at bootstrap: the actor made it elsewhere than AllocateOutput says"));
  }
  const bool status_fits = value.status == nullptr ? a->status_offset == IpcAnnouncement::kNoStatus
                                                   : reinterpret_cast<const char*>(value.status) == base + a->status_offset;
  if (!status_fits) {
    return absl::InternalError(
        absl::StrCat(EdgeLabel(edge_), ": the value's status word does not lie where ", edge_.dst_worker, " was told at bootstrap"));
  }
  return device_->Check(device_->api()->StreamWrite32(stream->native(), &a->ready, 1),
                        absl::StrCat(EdgeLabel(edge_), ": telling that the value is there"));
}

absl::Status IpcCaptureSendPort::Announce(int64_t execution) {
  WEFT_ASSIGN_OR_RETURN(void* const slot, header_->Reserve(0, sizeof(IpcAnnouncement)));
  Value header;  // it lies in the slot already, and nothing is copied
  header.tensor = Tensor(v1::U8, {static_cast<int64_t>(sizeof(IpcAnnouncement))}, slot, nullptr);
  return header_->Send(execution, header, nullptr).status();
}

void IpcCaptureSendPort::Release() {
  for (IpcAnnouncement* a : slots_) SetFlag(&a->free);
}

absl::StatusOr<std::shared_ptr<CaptureRecvPort>> IpcCaptureRecvPort::Create(RecvPort* header, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                            std::shared_ptr<IpcMapping> memory) {
  std::shared_ptr<IpcCaptureRecvPort> port(new IpcCaptureRecvPort(header, edge, device, std::move(memory)));
  for (int v = 0; v < edge.slots; ++v) {
    WEFT_ASSIGN_OR_RETURN(const void* const slot, header->Place(v, sizeof(IpcAnnouncement)));
    if (slot == nullptr) return NoSharedMemory(edge);
    port->slots_.push_back(static_cast<IpcAnnouncement*>(const_cast<void*>(slot)));
  }
  return std::shared_ptr<CaptureRecvPort>(std::move(port));
}

absl::Status IpcCaptureRecvPort::Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) {
  IpcAnnouncement* const shared = slots_[variant];
  IpcAnnouncement a;
  std::memcpy(&a, shared, sizeof a);
  Dims dims;
  absl::Status fits = CheckAnnouncement(a, edge_, memory_->bytes(), &dims);
  if (fits.ok() && (a.bytes != buffer.bytes() || dims != buffer.dims())) {
    fits = absl::FailedPreconditionError(absl::StrCat("the producer has ", a.bytes, " bytes ", DimsToString(dims), " for it, here are ",
                                                      buffer.ToString(), ": compile the graph again"));
  }
  if (!fits.ok()) return absl::Status(fits.code(), absl::StrCat(EdgeLabel(edge_), ": ", std::string(fits.message())));
  CudaApi* const api = device_->api();
  CudaStreamHandle const s = stream->native();
  const auto doing = [&](const char* what) { return absl::StrCat(EdgeLabel(edge_), ": ", what); };
  WEFT_RETURN_IF_ERROR(device_->Check(api->StreamWait32(s, &shared->ready, 1), doing("waiting for the value")));
  DeviceStatus* const status = out->status;
  // Status words lie right behind a value that fills its buffer: then one copy moves both.
  const uint64_t behind = (a.bytes + 15) / 16 * 16;
  const bool together =
      status != nullptr && a.status_offset == a.offset + behind && reinterpret_cast<char*>(status) == buffer.as<char>() + behind;
  const uint64_t bytes = together ? behind + sizeof(DeviceStatus) : a.bytes;
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(device_->Check(api->MemcpyAsync(buffer.data(), memory_->data() + a.offset, bytes, s), doing("copying the value")));
  }
  if (status != nullptr && !together) {
    const int code = a.status_offset == IpcAnnouncement::kNoStatus
                         ? api->MemsetAsync(status, 0, sizeof *status, s)
                         : api->MemcpyAsync(status, memory_->data() + a.status_offset, sizeof *status, s);
    WEFT_RETURN_IF_ERROR(device_->Check(code, doing("copying the status word")));
  }
  WEFT_RETURN_IF_ERROR(device_->Check(api->StreamWrite32(s, &shared->ready, 0), doing("taking the value")));
  WEFT_RETURN_IF_ERROR(device_->Check(api->StreamWrite32(s, &shared->free, 1), doing("giving the value's buffer back")));
  out->tensor = buffer;
  return absl::OkStatus();
}

absl::Status IpcCaptureRecvPort::Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>&) {
  Value header;
  WEFT_RETURN_IF_ERROR(header_->Recv(execution, Tensor(), &header, nullptr).status());
  // What the device waits for is in the flags: the message has done its work, and the producer may be as far ahead as they allow.
  header_->Release(execution);
  // Errors of tasks travel as status words.
  if (header.error != nullptr) return absl::Status(header.error->code, header.error->message);
  return absl::OkStatus();
}

void IpcCaptureRecvPort::Release() {
  for (IpcAnnouncement* a : slots_) SetFlag(&a->ready);
}

bool IpcCaptureRecvPort::MayWait(int variant) const {
  return std::atomic_ref<uint32_t>(slots_[variant]->ready).load(std::memory_order_relaxed) == 0;
}

}  // namespace weft
