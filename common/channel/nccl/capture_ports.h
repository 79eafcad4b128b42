#pragma once

// The ends of an edge over NCCL within captured iterations (capture_port.h). Each variant always moves the same bytes: the value and the
// status word behind it, or of a control edge a word that nobody reads. On one edge of each pair of workers the hosts tell each other that
// an execution is launched, so that no kernel waits for a peer that has nothing to send.

#include <memory>
#include <string>
#include <vector>

#include "common/channel/capture_port.h"
#include "common/channel/nccl/nccl_link.h"

namespace weft {

// What both ends have in common. Internal to this directory.
class NcclCapture {
 public:
  // `memory` is held until the communicator has ended: the kernels of a failed graph may touch it until then.
  NcclCapture(std::shared_ptr<NcclLink> link, const ShmEdgeSpec& edge) : link_(std::move(link)), edge_(edge) {}
  ~NcclCapture();

  const ShmEdgeSpec& edge() const { return edge_; }
  NcclComm* comm() const { return link_->options_.comm.get(); }
  NcclScratch* scratch() const { return link_->options_.scratch.get(); }
  // Where the bytes of the edge lie that start with `value`'s, and how many. InvalidArgument when its status word does not lie behind it.
  absl::StatusOr<size_t> BytesOf(const Tensor& value, const DeviceStatus* status) const;
  void Hold(std::shared_ptr<void> memory) { held_.push_back(std::move(memory)); }
  absl::Status Named(const absl::Status& s) const;

 private:
  const std::shared_ptr<NcclLink> link_;
  const ShmEdgeSpec edge_;
  std::vector<std::shared_ptr<void>> held_;
};

class NcclCaptureSendPort : public CaptureSendPort {
 public:
  // `header` outlives it.
  NcclCaptureSendPort(std::shared_ptr<NcclLink> link, const ShmEdgeSpec& edge, SendPort* header)
      : capture_(std::move(link), edge), header_(header) {}

  absl::Status Capture(int variant, const Value& value, Stream* stream) override;
  PortState Poll(int64_t execution) override { return capture_.comm()->cause().ok() ? header_->Poll(execution) : PortState::kClosed; }
  absl::Status Announce(int64_t execution) override;
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override;

 private:
  NcclCapture capture_;
  SendPort* const header_;
};

class NcclCaptureRecvPort : public CaptureRecvPort {
 public:
  NcclCaptureRecvPort(std::shared_ptr<NcclLink> link, const ShmEdgeSpec& edge, RecvPort* header)
      : capture_(std::move(link), edge), header_(header) {}

  absl::Status Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) override;
  PortState Poll(int64_t execution) override { return capture_.comm()->cause().ok() ? header_->Poll(execution) : PortState::kClosed; }
  absl::Status Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>& word_of) override;
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override;
  bool MayWait(int) const override { return true; }

 private:
  NcclCapture capture_;
  RecvPort* const header_;
};

}  // namespace weft
