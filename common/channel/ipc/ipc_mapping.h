#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// What one process says of an allocation that another is to open: plain data for the store of the driver.
struct IpcOffer {
  CudaIpcHandle handle{};
  uint64_t bytes = 0;  // of the allocation, the probe included

  // InvalidArgument when the text is none.
  std::string ToString() const;
  static absl::StatusOr<IpcOffer> FromString(const std::string& text);
};

// The last bytes of every offered allocation are a known pattern, so that whoever opens it sees at bootstrap that it reads the right memory.
constexpr size_t kIpcProbeBytes = 256;

// An allocation of another process of this host, opened on this device. Its copies are the copy engine's work; between two GPUs they go peer to peer.
class IpcMapping {
 public:
  // `memory` is the whole allocation, `bytes` long, its last kIpcProbeBytes free for the pattern.
  static absl::StatusOr<IpcOffer> Offer(CudaDevice* device, void* memory, uint64_t bytes);
  // Opens and reads the pattern; blocks for a while. `who` is the other worker, for messages. Unavailable says what CUDA says and what to do.
  static absl::StatusOr<std::shared_ptr<IpcMapping>> Open(CudaDevice* device, const IpcOffer& offer, const std::string& who);
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;

  // `closed` is called when CUDA has closed it, which is put aside when this object goes (CudaDevice::PutAside).
  void OnClosed(std::function<void()> closed) { on_closed_ = std::move(closed); }

  char* data() const { return static_cast<char*>(data_); }
  // Without the probe.
  uint64_t bytes() const { return bytes_; }

 private:
  IpcMapping(CudaDevice* device, void* data, uint64_t bytes, std::string who) : device_(device), data_(data), bytes_(bytes), who_(std::move(who)) {}

  CudaDevice* const device_;
  void* const data_;
  const uint64_t bytes_;
  const std::string who_;
  std::function<void()> on_closed_;
};

}  // namespace weft
