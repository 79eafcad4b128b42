#pragma once

// The staged ports within captured iterations (capture_port.h): copies to and from the slots of a host channel whose slots never move
// (shm). Status words cross between host and device in page-locked memory.

#include <memory>
#include <string>
#include <vector>

#include "common/channel/capture_port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

class StagedCaptureSendPort : public CaptureSendPort {
 public:
  // `inner` is shared with the port that this one is made of. ResourceExhausted names the edge.
  static absl::StatusOr<std::shared_ptr<CaptureSendPort>> Create(std::shared_ptr<SendPort> inner, const ShmEdgeSpec& edge,
                                                                 CudaDevice* device);

  absl::Status Capture(int variant, const Value& value, Stream* stream) override;
  PortState Poll(int64_t execution) override;
  // Nothing: the host sends when the device is done.
  absl::Status Announce(int64_t execution) override { return absl::OkStatus(); }
  absl::StatusOr<bool> Finish(int64_t execution, const std::function<TaskErrorRef(uint64_t)>& error_of) override;
  std::string WaitsFor() const override { return inner_->WaitsFor(); }
  absl::Status closed() const override { return inner_->closed(); }

 private:
  StagedCaptureSendPort(std::shared_ptr<SendPort> inner, const ShmEdgeSpec& edge, CudaDevice* device)
      : inner_(std::move(inner)), edge_(edge), device_(device), values_(edge.slots), with_status_(edge.slots) {}

  const std::shared_ptr<SendPort> inner_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  std::shared_ptr<void> words_;    // page-locked: a DeviceStatus for each variant
  std::vector<Tensor> values_;     // of each variant, where the channel has it
  std::vector<char> with_status_;  // by variant
  int64_t finished_ = 0;
};

class StagedCaptureRecvPort : public CaptureRecvPort {
 public:
  // `inner` outlives it.
  // `in_place`: up to so many bytes are read by kernels where they lie, and their status words with them; the memory is page-locked for the
  // device.
  static absl::StatusOr<std::shared_ptr<CaptureRecvPort>> Create(RecvPort* inner, const ShmEdgeSpec& edge, CudaDevice* device,
                                                                 size_t in_place);

  absl::Status Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) override;
  PortState Poll(int64_t execution) override { return inner_->Poll(execution); }
  absl::Status Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>& word_of) override;
  void Finish(int64_t execution) override { inner_->Release(execution); }
  std::string WaitsFor() const override { return inner_->WaitsFor(); }
  absl::Status closed() const override { return inner_->closed(); }

 private:
  StagedCaptureRecvPort(RecvPort* inner, const ShmEdgeSpec& edge, CudaDevice* device, size_t in_place)
      : inner_(inner), edge_(edge), device_(device), in_place_(in_place), places_(edge.slots) {}

  RecvPort* const inner_;
  const ShmEdgeSpec edge_;
  CudaDevice* const device_;
  const size_t in_place_;
  std::shared_ptr<void> words_;        // page-locked: a DeviceStatus for each variant
  std::vector<const void*> places_;    // of each variant's payload
};

}  // namespace weft
