#include "common/channel/ipc/ipc_mapping.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

unsigned char PatternAt(size_t i) { return static_cast<unsigned char>(i * 37 + 11); }

// Copies on a stream of its own and waits for it.
absl::Status CopyNow(CudaDevice* device, void* to, const void* from, size_t bytes) {
  CudaStreamHandle stream = nullptr;
  WEFT_RETURN_IF_ERROR(device->Check(device->api()->StreamCreate(0, &stream), "making a CUDA stream"));
  absl::Status s = device->Check(device->api()->MemcpyAsync(to, from, bytes, stream), "copying");
  const absl::Status done = device->Check(device->api()->StreamSynchronize(stream), "waiting for a copy");
  device->api()->StreamDestroy(stream);
  s.Update(done);
  return s;
}

}  // namespace

std::string IpcOffer::ToString() const {
  std::string text(sizeof(IpcOffer), '\0');
  std::memcpy(text.data(), this, sizeof(IpcOffer));
  return text;
}

absl::StatusOr<IpcOffer> IpcOffer::FromString(const std::string& text) {
  if (text.size() != sizeof(IpcOffer)) return absl::InvalidArgumentError(absl::StrCat("an offer of GPU memory has ", text.size(), " bytes"));
  IpcOffer offer;
  std::memcpy(&offer, text.data(), sizeof offer);
  if (offer.bytes < kIpcProbeBytes) return absl::InvalidArgumentError(absl::StrCat("an offer of ", offer.bytes, " bytes of GPU memory"));
  return offer;
}

absl::StatusOr<IpcOffer> IpcMapping::Offer(CudaDevice* device, void* memory, uint64_t bytes) {
  IpcOffer offer;
  offer.bytes = bytes;
  const absl::Status s = device->Check(device->api()->IpcGetHandle(memory, &offer.handle), "making a CUDA IPC handle");
  if (!s.ok()) return absl::UnavailableError(absl::StrCat(std::string(s.message()), ": run `weft doctor`, or set transport NCCL or SHM"));
  unsigned char pattern[kIpcProbeBytes];
  for (size_t i = 0; i < sizeof pattern; ++i) pattern[i] = PatternAt(i);
  WEFT_RETURN_IF_ERROR(CopyNow(device, static_cast<char*>(memory) + bytes - kIpcProbeBytes, pattern, sizeof pattern));
  return offer;
}

absl::StatusOr<std::shared_ptr<IpcMapping>> IpcMapping::Open(CudaDevice* device, const IpcOffer& offer, const std::string& who) {
  void* data = nullptr;
  const absl::Status opened = device->Check(device->api()->IpcOpen(offer.handle, &data), absl::StrCat("opening GPU memory of ", who));
  if (!opened.ok()) {
    return absl::UnavailableError(absl::StrCat(std::string(opened.message()), ": both workers must run on one host, in containers with shared "
                                               "/dev and IPC namespace, and their GPUs must reach each other (weft doctor); or set "
                                               "transport NCCL"));
  }
  std::shared_ptr<IpcMapping> mapping(new IpcMapping(device, data, offer.bytes - kIpcProbeBytes, who));
  unsigned char pattern[kIpcProbeBytes] = {};
  WEFT_RETURN_IF_ERROR(CopyNow(device, pattern, mapping->data() + mapping->bytes(), sizeof pattern));
  for (size_t i = 0; i < sizeof pattern; ++i) {
    if (pattern[i] == PatternAt(i)) continue;
    return absl::DataLossError(absl::StrCat("GPU memory of ", who, ", opened through CUDA IPC, does not hold what was put there: run `weft "
                                            "doctor`, or set transport NCCL"));
  }
  return mapping;
}

IpcMapping::~IpcMapping() {
  const std::string what = absl::StrCat("GPU memory of ", who_);
  device_->PutAside(what, [device = device_, data = data_, what, closed = std::move(on_closed_)] {
    (void)device->Check(device->api()->IpcClose(data), absl::StrCat("closing ", what));
    if (closed) closed();
  });
}

}  // namespace weft
