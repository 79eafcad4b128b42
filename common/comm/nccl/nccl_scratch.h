#pragma once

#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/event.h"

namespace weft {

// A few hundred bytes on the device and the host that all links and collectives of a graph share on one worker, since an allocation of its own
// for each would take pages. Used by one thread.
class NcclScratch {
 public:
  static constexpr size_t kTrialBytes = 1 << 10;

  // ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<NcclScratch>> Create(CudaDevice* device) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> there, device->Allocate(kTrialBytes + 2 * sizeof(DeviceStatus)));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> here, device->AllocateHost(kTrialBytes));
    std::shared_ptr<NcclScratch> s(new NcclScratch);
    s->device_ = std::move(there);
    s->host_ = std::move(here);
    return s;
  }

  // For one trial transfer at a time: on the device, and page-locked.
  void* trial() const { return device_.get(); }
  void* pattern() const { return host_.get(); }
  // Device memory: where a status word goes that nobody wants, and a word to be cleared where one is missing.
  DeviceStatus* unwanted() const { return words(); }
  DeviceStatus* missing() const { return words() + 1; }

  // The last trial transfer.
  std::weak_ptr<Event> last_trial;

 private:
  NcclScratch() = default;
  DeviceStatus* words() const { return reinterpret_cast<DeviceStatus*>(static_cast<char*>(device_.get()) + kTrialBytes); }

  std::shared_ptr<void> device_, host_;
};

}  // namespace weft
