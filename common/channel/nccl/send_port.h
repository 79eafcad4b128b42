#pragma once

#include <deque>
#include <memory>
#include <string>

#include "common/channel/nccl/nccl_link.h"
#include "common/channel/nccl/transfer.h"
#include "common/channel/planned_places.h"

namespace weft {

// The sending end of one edge; made by NcclLink.
class NcclSendPort : public SendPort, public PlannedPlaces {
 public:
  NcclSendPort(std::shared_ptr<NcclLink> link, ShmEdgeSpec edge, std::unique_ptr<SendPort> header_port);
  ~NcclSendPort() override;

  // Waits while an announcement does: there is one at a time.
  PortState Poll(int64_t execution) override;
  // The value's tensor and status word are device memory. A value whose event is not ready and that the device cannot wait for is launched
  // once the host sees it ready.
  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) override;
  std::string WaitsFor() const override;
  absl::Status closed() const override;
  absl::Status Plan(const Tensor& place, DeviceStatus* status) override;
  absl::StatusOr<std::shared_ptr<CaptureSendPort>> ForCapture() override;

 private:
  class Announcing;
  class AnnouncedEvent;
  class Sending;

  const std::shared_ptr<NcclLink> link_;
  const ShmEdgeSpec edge_;
  const std::unique_ptr<SendPort> header_port_;
  uint64_t sequence_ = 0;
  NcclReplays replays_;
  std::shared_ptr<Announcing> announcing_;          // the last
  std::deque<std::weak_ptr<Sending>> outstanding_;  // oldest first
};

}  // namespace weft
