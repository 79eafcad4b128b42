#include "common/device/cuda/plugin/kernels.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "common/device/cuda/api/reduce_order.h"
#include "common/device/cuda/plugin/cublas.h"
#include "common/device/cuda/plugin/launch.h"
#include "common/device/cuda/plugin/workspaces.h"

namespace weft::gpu {
namespace {

constexpr int kMaxArgs = 64;
// What cuBLAS asks for on Hopper and later; it manages with less before.
constexpr size_t kWorkspaceHopper = 32 << 20;
constexpr size_t kWorkspaceBefore = 8 << 20;
static_assert(kWorkspaceBefore >= kReduceMaxPartials * sizeof(double));

int Bytes(int dtype) {
  switch (dtype) {
    case kDeviceI8:
    case kDeviceU8:
    case kDeviceBool: return 1;
    case kDeviceF16:
    case kDeviceBF16:
    case kDeviceI16: return 2;
    case kDeviceF32:
    case kDeviceI32: return 4;
    case kDeviceF64:
    case kDeviceI64: return 8;
    default: return 0;
  }
}

bool IsFloat(int dtype) { return dtype >= kDeviceF16 && dtype <= kDeviceF64; }
bool IsNumber(int dtype) { return dtype >= kDeviceF16 && dtype <= kDeviceI64; }

cudaStream_t Stream(void* s) { return static_cast<cudaStream_t>(s); }

class RealKernels final : public KernelsApi {
 public:
  int Load(const char** problem) override;
  int OpenStream(void* stream) override { return workspaces_.Open(Stream(stream)); }
  void CloseStream(void* stream) override { workspaces_.Close(Stream(stream)); }

  int Fill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n, void* stream) override {
    if (Bytes(dtype) == 0 || n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    return LaunchFill(kind, number, seed, execution, dtype, out, n, Stream(stream));
  }
  int Add(int dtype, const void* const* args, int count, void* out, int64_t n, void* stream) override {
    if (!IsNumber(dtype) || count < 1 || count > kMaxArgs || n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    return LaunchAdd(dtype, args, count, out, n, Stream(stream));
  }
  int Scale(int dtype, const void* x, double factor, void* out, int64_t n, void* stream) override {
    if (!IsNumber(dtype) || n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    return LaunchScale(dtype, x, factor, out, n, Stream(stream));
  }
  int Reduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* stream) override {
    if (!IsNumber(dtype) || outer < 0 || size < 0 || inner < 0) return cudaErrorInvalidValue;
    if (how == DeviceReduce::kMean && !IsFloat(dtype)) return cudaErrorInvalidValue;
    if (outer == 0 || inner == 0) return cudaSuccess;
    return LaunchReduce(how, dtype, x, outer, size, inner, out, workspaces_.Of(Stream(stream)), Stream(stream));
  }
  int Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, void* stream) override;
  int Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
             int64_t batch, int64_t in, int64_t out, void* stream) override;
  int Gemm(int dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n,
           int64_t k, bool accumulate, void* stream) override {
    if (!IsFloat(dtype) || m < 0 || n < 0 || k < 1) return cudaErrorInvalidValue;
    if (m == 0 || n == 0) return cudaSuccess;
    // Row-major c is column-major c transposed, which is b transposed times a transposed; what lies in memory transposed already is taken so.
    return cublas_.Gemm(dtype, precision, b_transposed, n, m, k, b, b_transposed ? k : n, a_transposed, a, a_transposed ? m : k, c, accumulate,
                        workspaces_.Of(Stream(stream)), workspaces_.bytes(), Stream(stream));
  }
  int ActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n, void* stream) override {
    if (!IsFloat(dtype) || activation == DeviceActivation::kGelu || n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    return LaunchActivationGradient(dtype, activation, y, dy, dx, n, Stream(stream));
  }
  int Delay(int64_t ns, int blocks, void* stream) override {
    // Without Calibrate nobody knows how long a round takes.
    if (ns < 0 || blocks < 1 || rounds_per_ns_ <= 0) return cudaErrorInvalidValue;
    return LaunchDelay(static_cast<int64_t>(static_cast<double>(ns) * rounds_per_ns_), std::min(blocks, g_sm_count), Stream(stream));
  }
  int Calibrate() override;

  int CombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, void* stream) override {
    if (count < 0 || count > kMaxArgs) return cudaErrorInvalidValue;
    return LaunchCombineStatus(from, count, to, Stream(stream));
  }
  int CheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) override {
    if (!IsFloat(dtype) || n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    return LaunchCheckFinite(dtype, x, n, code_and_node, execution, to, Stream(stream));
  }
  int FailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, void* stream) override {
    if (count < 0) return cudaErrorInvalidValue;
    return LaunchFailOn(on, count, code_and_node, execution, to, Stream(stream));
  }
  int Advance(int64_t* counter, void* stream) override { return LaunchAdvance(counter, Stream(stream)); }
  int Nothing(void* stream) override { return LaunchNothing(Stream(stream)); }
  int IllegalAddress(void* stream) override { return LaunchIllegalAddress(Stream(stream)); }

 private:
  cudaError_t LoadCode();
  // One small product of each type: cuBLAS then has set up what it sets up once.
  cudaError_t WarmUp();

  int device_ = -1;  // that Load was done for
  Workspaces workspaces_;
  Cublas cublas_;
  std::mutex calibrate_mu_;
  std::atomic<double> rounds_per_ns_{0};
  char problem_[256] = "";
};

cudaError_t RealKernels::LoadCode() {
  for (const auto load : {LoadElementwise, LoadReduce, LoadMatmul, LoadControl}) {
    if (const cudaError_t e = load(); e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

int RealKernels::Load(const char** problem) {
  *problem = problem_;
  int device = 0;
  int major = 0, minor = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&g_sm_count, cudaDevAttrMultiProcessorCount, device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (e != cudaSuccess) {
    std::snprintf(problem_, sizeof(problem_), "the device does not answer");
    return e;
  }
  if (device_ == device) {
    *problem = nullptr;
    return cudaSuccess;
  }
  if (device_ >= 0) {
    std::snprintf(problem_, sizeof(problem_), "this process already computes on GPU %d; use one process for each", device_);
    return cudaErrorInvalidDevice;
  }
  if (e = LoadCode(); e != cudaSuccess) {
    std::snprintf(problem_, sizeof(problem_), "this build's device code does not load on compute capability %d.%d; it needs 8.0 or later and a driver as new as its CUDA",
                  major, minor);
    return e;
  }
  const size_t bytes = major >= 9 ? kWorkspaceHopper : kWorkspaceBefore;
  if (e = workspaces_.Load(bytes); e != cudaSuccess) {
    std::snprintf(problem_, sizeof(problem_), "no %zu MiB of device memory for a workspace", bytes >> 20);
    return e;
  }
  if (e = cublas_.Open(problem); e != cudaSuccess) return e;
  *problem = problem_;
  if (e = WarmUp(); e != cudaSuccess) {
    std::snprintf(problem_, sizeof(problem_), "a first small matrix product failed; does cuBLAS fit this GPU and driver?");
    return e;
  }
  device_ = device;
  *problem = nullptr;
  return cudaSuccess;
}

cudaError_t RealKernels::WarmUp() {
  constexpr int64_t n = 64;
  void* operands = nullptr;
  cudaStream_t stream = nullptr;
  cudaError_t e = cudaMalloc(&operands, 3 * n * n * sizeof(double));
  if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (e == cudaSuccess) e = cudaMemsetAsync(operands, 0, 3 * n * n * sizeof(double), stream);
  char* const p = static_cast<char*>(operands);
  for (const int dtype : {kDeviceF32, kDeviceF64, kDeviceF16, kDeviceBF16}) {
    if (e != cudaSuccess) break;
    const size_t matrix = n * n * sizeof(double);
    e = static_cast<cudaError_t>(Matmul(dtype, DevicePrecision::kFp32, p, p + matrix, p + 2 * matrix, n, n, n, stream));
    if (e == cudaSuccess && dtype == kDeviceF32) {
      e = static_cast<cudaError_t>(Matmul(dtype, DevicePrecision::kTf32, p, p + matrix, p + 2 * matrix, n, n, n, stream));
    }
  }
  if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
  if (stream != nullptr) (void)cudaStreamDestroy(stream);
  if (operands != nullptr) (void)cudaFree(operands);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

int RealKernels::Matmul(int dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k,
                        void* stream) {
  if (!IsNumber(dtype) || m < 0 || n < 0 || k < 0) return cudaErrorInvalidValue;
  if (m == 0 || n == 0) return cudaSuccess;
  // All dtypes' zero is of zero bits.
  if (k == 0) return cudaMemsetAsync(c, 0, static_cast<size_t>(m * n * Bytes(dtype)), Stream(stream));
  if (!IsFloat(dtype)) return LaunchIntegerMatmul(Bytes(dtype), a, b, c, m, n, k, Stream(stream));
  // Row-major c is column-major c transposed, which is b transposed times a transposed.
  return cublas_.Gemm(dtype, precision, false, n, m, k, b, n, false, a, k, c, false, workspaces_.Of(Stream(stream)), workspaces_.bytes(),
                      Stream(stream));
}

int RealKernels::Linear(int dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
                        int64_t batch, int64_t in, int64_t out, void* stream) {
  if (!IsFloat(dtype) || batch < 0 || in < 1 || out < 1) return cudaErrorInvalidValue;
  if (batch == 0) return cudaSuccess;
  // The bias first and the product on top of it, as on the CPU: one rounding.
  cudaError_t e = LaunchRows(Bytes(dtype), bias, y, batch, out, Stream(stream));
  if (e != cudaSuccess) return e;
  e = cublas_.Gemm(dtype, precision, true, out, batch, in, w, in, false, x, in, y, true, workspaces_.Of(Stream(stream)), workspaces_.bytes(),
                   Stream(stream));
  if (e != cudaSuccess || activation == DeviceActivation::kNone) return e;
  return LaunchActivation(dtype, activation, y, batch * out, Stream(stream));
}

int RealKernels::Calibrate() {
  std::lock_guard<std::mutex> lock(calibrate_mu_);
  if (rounds_per_ns_ > 0) return cudaSuccess;
  constexpr int64_t kWarmUpRounds = 500'000;  // some 20 ms, in which the clock comes up
  constexpr int64_t kShort = 2'000, kLong = 22'000;
  constexpr int kTimes = 11;
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, between = nullptr, end = nullptr;
  cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (cudaEvent_t* event : {&start, &between, &end}) {
    if (e == cudaSuccess) e = cudaEventCreate(event);
  }
  if (e == cudaSuccess) e = LaunchDelay(kWarmUpRounds, 1, stream);
  double rates[kTimes] = {};
  for (int i = 0; i < kTimes && e == cudaSuccess; ++i) {
    // Of two lengths, so that what a launch takes falls out.
    e = cudaEventRecord(start, stream);
    if (e == cudaSuccess) e = LaunchDelay(kShort, 1, stream);
    if (e == cudaSuccess) e = cudaEventRecord(between, stream);
    if (e == cudaSuccess) e = LaunchDelay(kLong, 1, stream);
    if (e == cudaSuccess) e = cudaEventRecord(end, stream);
    if (e == cudaSuccess) e = cudaEventSynchronize(end);
    float short_ms = 0, long_ms = 0;
    if (e == cudaSuccess) e = cudaEventElapsedTime(&short_ms, start, between);
    if (e == cudaSuccess) e = cudaEventElapsedTime(&long_ms, between, end);
    const double ms = static_cast<double>(long_ms) - short_ms;
    // Another process may have had the GPU in the short one; the median leaves such a measurement out.
    rates[i] = ms > 0 ? (kLong - kShort) / (ms * 1e6) : 0;
  }
  if (e == cudaSuccess) {
    std::sort(rates, rates + kTimes);
    if (rates[kTimes / 2] > 0) {
      rounds_per_ns_ = rates[kTimes / 2];
    } else {
      e = cudaErrorUnknown;
    }
  }
  for (const cudaEvent_t event : {start, between, end}) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  if (stream != nullptr) (void)cudaStreamDestroy(stream);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

}  // namespace

KernelsApi* Kernels() {
  static KernelsApi* const kernels = new RealKernels;
  return kernels;
}

}  // namespace weft::gpu
