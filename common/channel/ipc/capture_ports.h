#pragma once

// The ends of an ipc edge within captured iterations (capture_port.h). Two flags for each variant, in shared memory that both GPUs reach,
// order the two iterations on the device alone:
//
//   producer:  wait free == 1, write free = 0 | the op that makes the value | write ready = 1
//   consumer:  wait ready == 1 | copy | write ready = 0, write free = 1
//
// so neither CPU stands between them. The hosts only tell each other that an execution is launched, on one edge of each pair of workers.

#include <memory>
#include <string>
#include <vector>

#include "common/channel/capture_port.h"
#include "common/channel/ipc/announcement.h"
#include "common/channel/ipc/ipc_mapping.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

class IpcCaptureSendPort : public CaptureSendPort {
 public:
  // `header` is the sending port of AnnouncementEdge(edge) and outlives it; its slots were preset (PresetAnnouncement). Values lie in
  // [memory, memory + bytes).
  static absl::StatusOr<std::shared_ptr<CaptureSendPort>> Create(SendPort* header, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                 std::shared_ptr<void> memory, uint64_t bytes);

  absl::Status CaptureReuse(int variant, Stream* stream) override;
  absl::Status Capture(int variant, const Value& value, Stream* stream) override;
  PortState Poll(int64_t execution) override { return header_->Poll(execution); }
  absl::Status Announce(int64_t execution) override;
  void Release() override;
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override { return header_->closed(); }

 private:
  IpcCaptureSendPort(SendPort* header, const ShmEdgeSpec& edge, CudaDevice* device, std::shared_ptr<void> memory, uint64_t bytes)
      : header_(header), edge_(edge), device_(device), memory_(std::move(memory)), bytes_(bytes) {}

  SendPort* const header_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const std::shared_ptr<void> memory_;
  const uint64_t bytes_;
  std::vector<IpcAnnouncement*> slots_;  // by variant
};

class IpcCaptureRecvPort : public CaptureRecvPort {
 public:
  // `header` is the receiving port of AnnouncementEdge(edge) and outlives it; `memory` is the producer's.
  static absl::StatusOr<std::shared_ptr<CaptureRecvPort>> Create(RecvPort* header, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                 std::shared_ptr<IpcMapping> memory);

  absl::Status Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) override;
  PortState Poll(int64_t execution) override { return header_->Poll(execution); }
  absl::Status Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>& word_of) override;
  void Release() override;
  std::string WaitsFor() const override { return header_->WaitsFor(); }
  absl::Status closed() const override { return header_->closed(); }
  bool MayWait(int variant) const override;

 private:
  IpcCaptureRecvPort(RecvPort* header, const ShmEdgeSpec& edge, CudaDevice* device, std::shared_ptr<IpcMapping> memory)
      : header_(header), edge_(edge), device_(device), memory_(std::move(memory)) {}

  RecvPort* const header_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const std::shared_ptr<IpcMapping> memory_;
  std::vector<IpcAnnouncement*> slots_;  // by variant
};

}  // namespace weft
