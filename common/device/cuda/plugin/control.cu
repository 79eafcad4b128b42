// Status words, delays, and small things.

#include "common/device/cuda/plugin/launch.cuh"

namespace weft::gpu {
namespace {

constexpr int kMaxFrom = 64;
constexpr int kDelayThreads = 128;

// Shared memory of a Delay block: all that a multiprocessor gives one, so that no two share one. Set by LoadControl.
int g_delay_shared = 0;

struct Statuses {
  const DeviceStatus* p[kMaxFrom];
};

__device__ void Raise(DeviceStatus* to, uint64_t code_and_node, int64_t execution) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMax(reinterpret_cast<unsigned long long*>(&to->word), code_and_node | static_cast<uint32_t>(execution));
}

// Each multiplication and addition waits for the one before.
__global__ void __launch_bounds__(kDelayThreads) DelayKernel(int64_t iterations, float factor, float summand, float* never) {
  float x = static_cast<float>(threadIdx.x);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < 16; ++j) x = __fmaf_rn(x, factor, summand);
  }
  // With factor and summand positive x is not negative; the compiler does not know that, and so keeps the loop.
  if (x < 0) *never = x;
}

// One warp.
__global__ void CombineKernel(Statuses from, int count, DeviceStatus* to) {
  unsigned long long word = 0;
  for (int i = threadIdx.x; i < count; i += 32) {
    const unsigned long long w = from.p[i]->word;
    word = w > word ? w : word;
  }
  for (int half = 16; half > 0; half /= 2) {
    const unsigned long long other = __shfl_down_sync(0xffffffff, word, half);
    word = other > word ? other : word;
  }
  if (threadIdx.x == 0) {
    to->word = word;
    to->unused = 0;
  }
}

// Not finite: all bits of the exponent are set.
template <typename U>
__global__ void __launch_bounds__(kThreads)
    FiniteKernel(const U* x, int64_t n, int64_t packs, U exponent, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to) {
  bool bad = false;
  for (int64_t p = ThreadIndex(); p < packs; p += ThreadCount()) {
    const Pack<U> k = Pack<U>::Load(x + p * Pack<U>::kSize);
#pragma unroll
    for (int j = 0; j < Pack<U>::kSize; ++j) bad |= (k.v[j] & exponent) == exponent;
  }
  for (int64_t i = packs * Pack<U>::kSize + ThreadIndex(); i < n; i += ThreadCount()) bad |= (x[i] & exponent) == exponent;
  if (__syncthreads_or(bad) && threadIdx.x == 0) Raise(to, code_and_node, Execution(execution));
}

// One warp.
__global__ void FailOnKernel(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to) {
  const int64_t k = Execution(execution);
  bool hit = count == 0 && threadIdx.x == 0;
  for (int i = threadIdx.x; i < count; i += 32) hit |= on[i] == k;
  if (hit) Raise(to, code_and_node, k);
}

__global__ void AdvanceKernel(int64_t* counter) { ++*counter; }
__global__ void NothingKernel() {}
__global__ void StoreKernel(int* to) { *to = 1; }

}  // namespace

cudaError_t LoadControl() {
  const cudaError_t loaded = LoadKernels(DelayKernel, CombineKernel, FiniteKernel<uint16_t>, FiniteKernel<uint32_t>, FiniteKernel<uint64_t>,
                                         FailOnKernel, AdvanceKernel, NothingKernel, StoreKernel);
  if (loaded != cudaSuccess) return loaded;
  int device = 0, shared = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (e == cudaSuccess) e = cudaFuncSetAttribute(DelayKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  g_delay_shared = shared;
  return e;
}

cudaError_t LaunchDelay(int64_t iterations, int blocks, cudaStream_t stream) {
  return Launch(DelayKernel, blocks, dim3(kDelayThreads), g_delay_shared, stream, iterations, 0.5f, 0.25f, static_cast<float*>(nullptr));
}

cudaError_t LaunchCombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, cudaStream_t stream) {
  Statuses all = {};
  for (int i = 0; i < count; ++i) all.p[i] = from[i];
  return Launch(CombineKernel, 1, dim3(32), 0, stream, all, count, to);
}

cudaError_t LaunchCheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to,
                              cudaStream_t stream) {
  const auto launch = [&](auto exponent) {
    using U = decltype(exponent);
    const int64_t packs = IsAligned(x) ? n / Pack<U>::kSize : 0;
    return Launch(FiniteKernel<U>, GridFor(std::max(packs, n - packs * Pack<U>::kSize), kThreads), dim3(kThreads), 0, stream,
                  static_cast<const U*>(x), n, packs, exponent, code_and_node, execution, to);
  };
  switch (dtype) {
    case kDeviceF16: return launch(uint16_t{0x7c00});
    case kDeviceBF16: return launch(uint16_t{0x7f80});
    case kDeviceF32: return launch(uint32_t{0x7f800000});
    case kDeviceF64: return launch(uint64_t{0x7ff0000000000000});
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchFailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, cudaStream_t stream) {
  return Launch(FailOnKernel, 1, dim3(32), 0, stream, on, count, code_and_node, execution, to);
}

cudaError_t LaunchAdvance(int64_t* counter, cudaStream_t stream) { return Launch(AdvanceKernel, 1, dim3(1), 0, stream, counter); }
cudaError_t LaunchNothing(cudaStream_t stream) { return Launch(NothingKernel, 1, dim3(1), 0, stream); }
cudaError_t LaunchIllegalAddress(cudaStream_t stream) { return Launch(StoreKernel, 1, dim3(1), 0, stream, static_cast<int*>(nullptr)); }

}  // namespace weft::gpu
