// std.Linear.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/linear.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/cuda_call.h"
#include "worker/actor/std/checks.h"

namespace weft {
namespace {

class CudaLinearActor : public Actor {
 public:
  CudaLinearActor(CudaDevice* device, LinearParameters on_device, Activation activation, DevicePrecision precision)
      : device_(device), parameters_(std::move(on_device)), activation_(activation), precision_(precision) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Linear", {kForward}, name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  bool LoadsByShape(int) const override { return true; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kForward, args.size(), outs->size()));
    const Tensor& x = args[0];
    const Tensor& w = parameters_.weights;
    WEFT_RETURN_IF_ERROR(CheckLinear(x, w.dtype(), w.dims()[1]));
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, w.dtype(), {x.dims()[0], w.dims()[0]}));
    static_assert(static_cast<int>(DeviceActivation::kRelu) == static_cast<int>(Activation::kRelu));
    static_assert(static_cast<int>(DeviceActivation::kSigmoid) == static_cast<int>(Activation::kSigmoid));
    return device_->Check(device_->kernels()->Linear(w.dtype(), precision_, static_cast<DeviceActivation>(activation_), x.data(), w.data(),
                                                     parameters_.bias.data(), outs->at(0).data(), x.dims()[0], w.dims()[1], w.dims()[0],
                                                     ctx.stream()->native()),
                          "launching a linear layer");
  }

 private:
  static constexpr StdMethod kForward = {"forward", 1, 1, 1, 0, nullptr};

  CudaDevice* const device_;
  const LinearParameters parameters_;
  const Activation activation_;
  const DevicePrecision precision_;
};

}  // namespace

void RegisterCudaLinearActor(ActorRegistry* registry) {
  registry->Register("std.Linear", [](const v1::Config& config, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    WEFT_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(config.activation()));
    WEFT_ASSIGN_OR_RETURN(const DevicePrecision precision, PrecisionOf(config));
    const DType dtype = config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
    WEFT_ASSIGN_OR_RETURN(const LinearParameters host, LinearWeights(config.in_features(), config.out_features(), config.seed(), dtype));
    cuda->BindThread();
    LinearParameters p;
    WEFT_ASSIGN_OR_RETURN(p.weights, UploadWeights(*cuda, host.weights));
    WEFT_ASSIGN_OR_RETURN(p.bias, UploadWeights(*cuda, host.bias));
    return std::make_unique<CudaLinearActor>(cuda, std::move(p), activation, precision);
  });
}

}  // namespace weft
