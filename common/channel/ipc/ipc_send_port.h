#pragma once

#include <memory>
#include <string>

#include "common/channel/ipc/announcement.h"
#include "common/channel/port.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// The producer's end of an ipc edge: the value stays where it is, in this process's allocation, until the consumer has copied it out.
// Send announces it on the host and lets the stream say when it is there (announcement.h); its event is ready when the consumer has given the
// slot back, or the edge is closed.
class IpcSendPort : public SendPort {
 public:
  // `header` is the sending port of AnnouncementEdge(edge), over memory that this device can write. Values lie in [memory, memory + bytes).
  IpcSendPort(std::unique_ptr<SendPort> header, const ShmEdgeSpec& edge, CudaDevice* device, std::shared_ptr<void> memory, uint64_t bytes)
      : header_(std::move(header)), edge_(edge), device_(device), memory_(std::move(memory)), bytes_(bytes) {}

  PortState Poll(int64_t execution) override { return header_->Poll(execution); }
  // Pre: `stream` waits for the value's event already.
  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) override;
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override { return header_->closed(); }
  absl::StatusOr<std::shared_ptr<CaptureSendPort>> ForCapture() override;

 private:
  const std::unique_ptr<SendPort> header_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const std::shared_ptr<void> memory_;
  const uint64_t bytes_;
};

}  // namespace weft
