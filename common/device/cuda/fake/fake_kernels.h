#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "common/base/mutex.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/device/cuda/fake/fake_cuda.h"

namespace weft {

// weft's device code without a GPU: the same arithmetic on FakeCuda's memory, in the streams' threads. Results are those of the real kernels bit
// for bit, but for products of floats (those of the CPU here), functions of activations in their last bits, and which NaN an operation gives.
// Memory that a device could not reach is an illegal address, which breaks the device. The first product of floats of each shape loads device code, as
// cuBLAS does for many of them: it waits until nothing of the process is on the device.
class FakeKernels : public KernelsApi {
 public:
  explicit FakeKernels(FakeCuda* cuda) : cuda_(cuda) {}  // outlives this and what was queued

  // --- for tests
  // The next Load returns `code` and says `problem`.
  void FailLoad(int code, std::string problem);
  // Of the last Delay.
  int last_delay_blocks() const { return last_delay_blocks_.load(); }
  int64_t last_delay_ns() const { return last_delay_ns_.load(); }
  // Opened and not closed.
  int open_streams() const { return open_streams_.load(); }

  // --- KernelsApi. Before Load everything is refused, and Delay also before Calibrate.
  int Load(const char** problem) override;
  int OpenStream(void* stream) override;
  void CloseStream(void* stream) override;
  int Fill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n, void* stream) override;
  int Add(int dtype, const void* const* args, int count, void* out, int64_t n, void* stream) override;
  int Scale(int dtype, const void* x, double factor, void* out, int64_t n, void* stream) override;
  int Reduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* stream) override;
  // kTf32 rounds the factors to 11 bits, to nearest.
  int Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, void* stream) override;
  int Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
             int64_t batch, int64_t in, int64_t out, void* stream) override;
  int Gemm(int dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n,
           int64_t k, bool accumulate, void* stream) override;
  int ActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n, void* stream) override;
  // Holds the stream for `ns` of real time without using a core.
  int Delay(int64_t ns, int blocks, void* stream) override;
  int Calibrate() override;
  int CombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, void* stream) override;
  int CheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to,
                  void* stream) override;
  int FailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) override;
  int Advance(int64_t* counter, void* stream) override;
  int Nothing(void* stream) override;
  int IllegalAddress(void* stream) override;

 private:
  int LoadProduct(const std::string& key);

  FakeCuda* const cuda_;
  Mutex mu_;
  std::set<std::string> products_ WEFT_GUARDED_BY(mu_);  // whose code is loaded
  int fail_load_ = kCudaSuccess;
  std::string problem_;
  std::atomic<bool> loaded_{false}, calibrated_{false};
  std::atomic<int> last_delay_blocks_{0}, open_streams_{0};
  std::atomic<int64_t> last_delay_ns_{0};
};

}  // namespace weft
