#pragma once

#include <memory>
#include <string>

#include "common/device/device.h"

namespace weft {

// One GPU. Streams are CUDA streams, those of transfers at the highest priority; events carry no timing and come from a pool, so that an
// op in steady state allocates nothing on the device. Used by the loop's thread, which alone launches.
//
// The device waits for its own events, so ops are issued ahead of their inputs' completion, up to QueueDepth a lane.
class CudaDevice : public Device {
 public:
  static constexpr int kQueueDepth = 64;

  // Takes GPU `ordinal` for this process. Unavailable when there is no driver or no GPU, or the driver is too old for the runtime; InvalidArgument when
  // there are fewer GPUs. The message says which and what to do.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(int ordinal);
  ~CudaDevice() override;

  std::string kind() const override { return "cuda"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(v1::LaneKind lane) override;
  // cudaMalloc, not a stream-ordered pool: the memory can be opened by other processes through CUDA IPC.
  absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  int QueueDepth() const override { return kQueueDepth; }
  bool CanWaitFor(const EventRef& event) const override;
  absl::Status Health() const override;

  int ordinal() const { return ordinal_; }

 private:
  class EventPool;
  class CudaStream;
  CudaDevice(int ordinal, int high_priority);

  const int ordinal_;
  const int high_priority_;
  const std::shared_ptr<EventPool> events_;
};

}  // namespace weft
