#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/channel/staged/device_error.h"
#include "common/channel/staged/staged_order.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// Takes device memory out over a host channel: the copy engine writes the value on the op's stream, straight into the channel's slot where it
// lends one (shm), otherwise into page-locked memory; when the copy is done, within some Ready() or Poll() on the loop's thread, the inner port
// sends it. Here a value reaches a host, so its status word is read: an error that only the device knew travels in the value's place.
class StagedSendPort : public SendPort {
 public:
  // `device` outlives the port and its events. `error_of` may be empty where no value has a status word. `order` is shared by the ports of one link
  // whose ends must agree on an order across edges (gloo); nullptr elsewhere.
  static absl::StatusOr<std::unique_ptr<StagedSendPort>> Create(std::unique_ptr<SendPort> inner, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                DeviceErrorFn error_of, std::shared_ptr<StagedOrder> order = nullptr);
  ~StagedSendPort() override;

  PortState Poll(int64_t execution) override;
  // Pre: `stream` waits for the value's event already. Values in host memory (those of control edges, and errors) are sent in their turn.
  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) override;
  std::string WaitsFor() const override;
  absl::Status closed() const override;
  absl::StatusOr<std::shared_ptr<CaptureSendPort>> ForCapture() override;

 private:
  class Core;
  class StagedEvent;
  explicit StagedSendPort(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  const std::shared_ptr<Core> core_;  // shared with events, which may outlive the port
};

}  // namespace weft
