// A weft CUDA library over a fake, for tests of the whole command: two GPUs that the CPU plays. Without the fakes of kernels and of NCCL:
// they bring protobuf messages, which the program that loads this has too.

#include "common/device/cuda/api/plugin.h"
#include "common/device/cuda/fake/fake_cuda.h"

namespace weft {
namespace {

class LoadOnly : public KernelsApi {
 public:
  int Load(const char**) override { return kCudaSuccess; }
  int Fill(DeviceFill, double, uint64_t, ExecutionNumber, int, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Add(int, const void* const*, int, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Scale(int, const void*, double, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Reduce(DeviceReduce, int, const void*, int64_t, int64_t, int64_t, void*, void*) override { return kCudaInvalidValue; }
  int Matmul(int, DevicePrecision, const void*, const void*, void*, int64_t, int64_t, int64_t, void*) override { return kCudaInvalidValue; }
  int Linear(int, DevicePrecision, DeviceActivation, const void*, const void*, const void*, void*, int64_t, int64_t, int64_t,
             void*) override {
    return kCudaInvalidValue;
  }
  int Gemm(int, DevicePrecision, const void*, bool, const void*, bool, void*, int64_t, int64_t, int64_t, bool, void*) override { return kCudaInvalidValue; }
  int ActivationGradient(int, DeviceActivation, const void*, const void*, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Delay(int64_t, int, void*) override { return kCudaInvalidValue; }
  int Calibrate() override { return kCudaInvalidValue; }
  int CombineStatus(const DeviceStatus* const*, int, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int CheckFinite(int, const void*, int64_t, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int FailOn(const int64_t*, int, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int Advance(int64_t*, void*) override { return kCudaInvalidValue; }
  int Nothing(void*) override { return kCudaInvalidValue; }
  int IllegalAddress(void*) override { return kCudaInvalidValue; }
};

}  // namespace
}  // namespace weft

extern "C" const weft::CudaPlugin* weft_cuda_plugin(int version) {
  if (version != weft::kCudaPluginVersion) return nullptr;
  // Never destroyed: streams may still run when the process ends.
  static const weft::CudaPlugin* const plugin = [] {
    weft::FakeCuda::Options options;
    options.device_count = 2;
    auto* const p = new weft::CudaPlugin;
    p->cuda = new weft::FakeCuda(options);
    p->kernels = new weft::LoadOnly;
    p->nccl_problem = "the fake has no NCCL";
    return p;
  }();
  return plugin;
}
