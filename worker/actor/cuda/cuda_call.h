#pragma once

// What the CUDA actors' calls share.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_device.h"
#include "worker/actor/actor.h"
#include "worker/actor/std/method_table.h"

namespace weft {

// The device as what it must be for these actors; Internal otherwise.
absl::StatusOr<CudaDevice*> AsCuda(Device* device);

// One method whose result depends on its call alone.
struct CudaMethod {
  StdMethod shape;  // names and counts; its own `run` is not used
  absl::Status (*run)(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs);
  bool loads_by_shape = false;
};

// An actor without state.
class CudaTableActor : public Actor {
 public:
  CudaTableActor(CudaDevice* device, std::string cls, const std::vector<CudaMethod>& methods);

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod(cls_, shapes_, name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  bool LoadsByShape(int method) const override { return methods_[method].loads_by_shape; }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override;

 private:
  CudaDevice* const device_;
  const std::string cls_;
  std::vector<StdMethod> shapes_;
  std::vector<CudaMethod> methods_;
};

// Copies on the call's stream.
absl::Status CopyOnDevice(CudaDevice& device, CallContext& ctx, void* to, const void* from, size_t bytes);
absl::Status CopyOnDevice(CudaDevice& device, CallContext& ctx, const Tensor& from, const Tensor& to);

// Weights in the device's memory. Blocks until they are there.
absl::StatusOr<Tensor> UploadWeights(CudaDevice& device, const Tensor& host);

// From config.precision; InvalidArgument lists what there is.
absl::StatusOr<DevicePrecision> PrecisionOf(const v1::Config& config);

// Where the device is to put the errors that it finds in this call; FailedPrecondition where the plan has no place for them. After output 0
// was allocated.
absl::StatusOr<DeviceStatus*> StatusOf(CallContext& ctx);
// The word's upper half: `code` and the call's node.
uint64_t CodeAndNode(const CallContext& ctx, absl::StatusCode code);

}  // namespace weft
