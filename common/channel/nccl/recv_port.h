#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "common/channel/nccl/announcement.h"
#include "common/channel/nccl/nccl_link.h"
#include "common/channel/nccl/transfer.h"
#include "common/channel/planned_places.h"

namespace weft {

// The receiving end of one edge; made by NcclLink.
class NcclRecvPort : public RecvPort, public PlannedPlaces {
 public:
  NcclRecvPort(std::shared_ptr<NcclLink> link, ShmEdgeSpec edge, std::unique_ptr<RecvPort> header_port, bool tell_ahead);
  ~NcclRecvPort() override;

  // Ready once the announcement has come.
  PortState Poll(int64_t execution) override;
  // `*out` is filled at once, but for an error that comes later; out->status, where set, is filled on the device.
  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) override;
  // The plan's buffers are the credits: nothing to give back. The announcement's slot went back when it was read.
  void Release(int64_t) override {}
  bool ZeroCopy() const override { return false; }
  std::string WaitsFor() const override;
  absl::Status closed() const override;
  absl::Status Plan(const Tensor& place, DeviceStatus* status) override;
  absl::StatusOr<std::shared_ptr<CaptureRecvPort>> ForCapture() override;

 private:
  class Receiving;

  // What is announced, or why the link cannot go on. The sender is told that it is taken unless `*late`, which is set for what is to be received
  // later.
  absl::StatusOr<NcclAnnouncement> Take(int64_t execution, const Tensor& buffer, bool* late);
  // The sender may be told that `execution` is taken; it is once those before it are, since the host channel's slots go back in order.
  void Tell(int64_t execution);

  const std::shared_ptr<NcclLink> link_;
  const ShmEdgeSpec edge_;
  const std::unique_ptr<RecvPort> header_port_;
  const bool tell_ahead_;
  std::deque<std::pair<int64_t, bool>> untold_;  // executions that the sender is not told of, and whether it may be; oldest first
  uint64_t sequence_ = 0;
  NcclReplays replays_;
  std::deque<std::weak_ptr<Receiving>> outstanding_;  // oldest first
};

}  // namespace weft
