// std.Mlp on CUDA: products by cuBLAS, the rest by weft's kernels.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/linear.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/cuda_call.h"
#include "worker/actor/std/mlp_actor.h"

namespace weft {
namespace {

class CudaMath : public MlpMath {
 public:
  CudaMath(CudaDevice* device, DType dtype, Activation activation, DevicePrecision precision)
      : device_(device), dtype_(dtype), activation_(static_cast<DeviceActivation>(activation)), precision_(precision) {
    static_assert(static_cast<int>(DeviceActivation::kRelu) == static_cast<int>(Activation::kRelu));
    static_assert(static_cast<int>(DeviceActivation::kSigmoid) == static_cast<int>(Activation::kSigmoid));
  }

  absl::StatusOr<Tensor> Allocate(int64_t elements) override {
    const size_t bytes = static_cast<size_t>(elements) * SizeOf(dtype_);
    absl::StatusOr<std::shared_ptr<void>> memory = device_->Allocate(bytes);
    if (!memory.ok()) {
      return absl::Status(memory.status().code(),
                          absl::StrCat("gradients and activations of ", elements, " elements: ", std::string(memory.status().message())));
    }
    void* const data = memory->get();
    return Tensor(dtype_, {elements}, data, *std::move(memory));
  }
  absl::StatusOr<Tensor> Upload(const Tensor& host) override { return UploadWeights(*device_, host); }

  absl::Status Linear(const void* x, const void* w, const void* bias, bool activate, void* y, int64_t rows, int64_t in, int64_t out,
                      Stream* stream) override {
    return Check(kernels().Linear(dtype_, precision_, activate ? activation_ : DeviceActivation::kNone, x, w, bias, y, rows, in, out,
                                  stream->native()),
                 "launching a layer");
  }
  absl::Status Gemm(const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n, int64_t k,
                    bool accumulate, Stream* stream) override {
    return Check(kernels().Gemm(dtype_, precision_, a, a_transposed, b, b_transposed, c, m, n, k, accumulate, stream->native()),
                 "launching a matrix product");
  }
  absl::Status ActivationGradient(const void* y, const void* dy, void* dx, int64_t n, Stream* stream) override {
    return Check(kernels().ActivationGradient(dtype_, activation_, y, dy, dx, n, stream->native()), "launching an activation's gradient");
  }
  absl::Status ColumnSums(const void* x, int64_t rows, int64_t columns, void* out, Stream* stream) override {
    return Check(kernels().Reduce(DeviceReduce::kSum, dtype_, x, 1, rows, columns, out, stream->native()), "launching a sum");
  }
  absl::Status AddTo(const void* x, void* to, int64_t n, Stream* stream) override {
    const void* const both[] = {to, x};
    return Check(kernels().Add(dtype_, both, 2, to, n, stream->native()), "launching an addition");
  }
  absl::Status Scale(const void* x, double factor, void* out, int64_t n, Stream* stream) override {
    return Check(kernels().Scale(dtype_, x, factor, out, n, stream->native()), "launching a scaling");
  }
  absl::Status Copy(const void* from, void* to, int64_t n, Stream* stream) override {
    return Check(device_->api()->MemcpyAsync(to, from, static_cast<size_t>(n) * SizeOf(dtype_), stream->native()), "copying on the device");
  }
  absl::Status Put(double number, void* to, Stream* stream) override {
    return Check(kernels().Fill(DeviceFill::kNumber, number, 0, {nullptr, 0}, dtype_, to, 1, stream->native()), "launching fill");
  }

 private:
  KernelsApi& kernels() const { return *device_->kernels(); }
  absl::Status Check(int code, const char* what) const { return device_->Check(code, what); }

  CudaDevice* const device_;
  const DType dtype_;
  const DeviceActivation activation_;
  const DevicePrecision precision_;
};

}  // namespace

void RegisterCudaMlpActor(ActorRegistry* registry) {
  registry->Register("std.Mlp", [](const v1::Config& config, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    WEFT_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(config.activation()));
    WEFT_ASSIGN_OR_RETURN(const DevicePrecision precision, PrecisionOf(config));
    const DType dtype = config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
    cuda->BindThread();
    return MakeMlpActor(config, std::make_unique<CudaMath>(cuda, dtype, activation, precision));
  });
}

}  // namespace weft
