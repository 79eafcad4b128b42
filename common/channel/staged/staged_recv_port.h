#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// Brings what comes over a host channel into device memory: the inner port's value is copied by the copy engine on the op's stream, straight out of
// the channel's memory where that is page-locked (ShmSegment::memory registered by the loader), and the channel's slot is given back as soon as the copy is done.
//
// Of a value that is there when Recv is called the event is CUDA's, so readers are launched behind the copy at once; over a channel whose
// receives take time (gloo, emulated links) the copy begins when the host has the value, within some Ready() of the event.
class StagedRecvPort : public RecvPort {
 public:
  // Up to so many bytes of a value that the device can reach where it lies are not copied: kernels read them over the bus, which costs less than a copy
  // and its event. Such a value's slot is held until Release.
  static constexpr size_t kInPlaceBytes = 4096;

  // `device` outlives the port and its events. `reachable`: the inner port's values lie in memory that is page-locked for it. ResourceExhausted when there is no page-locked memory for the staging that a channel
  // without zero-copy reads needs.
  static absl::StatusOr<std::unique_ptr<StagedRecvPort>> Create(std::unique_ptr<RecvPort> inner, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                bool reachable);
  ~StagedRecvPort() override;

  PortState Poll(int64_t execution) override;
  // Without a buffer (a `?` dimension) memory comes from the device's pool.
  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) override;
  void Arrived(int64_t execution) override { Pump(); }
  void Release(int64_t execution) override;
  bool ZeroCopy() const override { return false; }
  std::string WaitsFor() const override { return inner_->WaitsFor(); }
  absl::Status closed() const override { return inner_->closed(); }
  absl::StatusOr<std::shared_ptr<CaptureRecvPort>> ForCapture() override;

 private:
  struct Item;
  class StagedEvent;
  StagedRecvPort(std::unique_ptr<RecvPort> inner, const ShmEdgeSpec& edge, CudaDevice* device, bool reachable);

  // Fills item->out from what the host has, and starts the copy.
  static void Start(Item* item, const ShmEdgeSpec& edge, CudaDevice* device);
  // Gives slots back whose copies are done.
  void Pump();

  const std::unique_ptr<RecvPort> inner_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const bool reachable_;
  std::vector<std::shared_ptr<void>> staging_;  // page-locked, one per slot; empty with zero-copy reads
  uint64_t received_ = 0;
  std::deque<std::shared_ptr<Item>> items_;  // whose slots are not given back, oldest first
};

}  // namespace weft
