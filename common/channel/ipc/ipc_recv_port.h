#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/channel/ipc/announcement.h"
#include "common/channel/ipc/ipc_mapping.h"
#include "common/channel/port.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// The consumer's end of an ipc edge. Once a value is announced, Recv puts on the op's stream: wait for its flag, copy it out of the
// producer's allocation (the copy engine's work), and records the event; the slot goes back when the loop has seen that event.
class IpcRecvPort : public RecvPort {
 public:
  // `header` is the receiving port of AnnouncementEdge(edge), over memory that this device can read; `memory` is the producer's.
  IpcRecvPort(std::unique_ptr<RecvPort> header, const ShmEdgeSpec& edge, CudaDevice* device, std::shared_ptr<IpcMapping> memory)
      : header_(std::move(header)), edge_(edge), device_(device), memory_(std::move(memory)), core_(std::make_shared<Core>()) {}
  ~IpcRecvPort() override;

  PortState Poll(int64_t execution) override { return header_->Poll(execution); }
  absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) override;
  void Arrived(int64_t execution) override;
  void Release(int64_t execution) override {}  // given back by Arrived
  bool ZeroCopy() const override { return false; }
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override { return header_->closed(); }
  absl::StatusOr<std::shared_ptr<CaptureRecvPort>> ForCapture() override;

  // Ends every wait of a stream for a value that will not come, by setting its flag. To be called, from any thread, when the edge is
  // closed; afterwards nothing waits. Whatever is copied then is garbage, in buffers that a failed graph does not read.
  std::function<void()> Releaser() const;

 private:
  // Flags that a stream may be waiting for. Shared with Releaser.
  struct Core {
    Mutex mu;
    bool released WEFT_GUARDED_BY(mu) = false;
    std::deque<std::pair<int64_t, Value>> waiting WEFT_GUARDED_BY(mu);  // execution and its announcement; none: an error in its turn
  };
  static void SetReady(const Value& announcement);

  const std::unique_ptr<RecvPort> header_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const std::shared_ptr<IpcMapping> memory_;
  const std::shared_ptr<Core> core_;
};

}  // namespace weft
