#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/channel/doorbell.h"
#include "common/device/device.h"

namespace weft {

// Streams and events with CUDA's semantics on the host's processor, so that the same plan runs on any machine.
//
// Streams are no threads. kInline work runs on the caller's thread. kThread work runs on one thread for all compute lanes, one for all
// send, receive and copy lanes (so that a transfer's copy goes on beside a long computation), and one for all collective lanes (whose
// calls may block for a peer); each starts with its first work and takes work in the order of launches. A hold is a time, not a thread.
//
// Destruction waits for work that runs, and drops what is queued: its status becomes Cancelled and its event is set, so what they
// point to must live until then. Streams may outlive the device; they then refuse work.
class CpuDevice : public Device {
 public:
  // `doorbell` (may be nullptr) is rung whenever work on a thread is done. Both outlive the device.
  CpuDevice(Clock* clock, Doorbell* doorbell);
  ~CpuDevice() override;

  std::string kind() const override { return "cpu"; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(v1::LaneKind lane) override;
  absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  int QueueDepth() const override { return 1; }
  bool CanWaitFor(const EventRef&) const override { return false; }

 private:
  class Core;
  class CpuStream;
  const std::shared_ptr<Core> core_;
};

}  // namespace weft
