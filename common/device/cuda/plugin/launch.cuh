#pragma once

// What the .cu files share: launching, loading, and moving 16 bytes at a time.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/device/cuda/plugin/driver_entry.h"
#include "common/device/cuda/plugin/launch.h"

namespace weft::gpu {

constexpr int kThreads = 256;
// Enough blocks to fill every multiprocessor several times; beyond that kernels go round in strides.
constexpr int kBlocksPerSm = 16;

// Unlike <<<>>>, whose error must be asked for and may be an older one.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), int64_t blocks, dim3 threads, size_t shared, cudaStream_t stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::max<int64_t>(1, blocks)));
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

// Blocks of `per_block` items each for `items`, for a kernel that goes round in strides.
inline int64_t GridFor(int64_t items, int64_t per_block) {
  return std::min<int64_t>((items + per_block - 1) / per_block, static_cast<int64_t>(g_sm_count) * kBlocksPerSm);
}

// Makes the driver load a kernel now. It would otherwise do so at the first launch, where it may wait for work under way.
template <typename F>
cudaError_t LoadKernel(F* kernel) {
  cudaFuncAttributes attributes;
  cudaError_t e = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  if (e == cudaSuccess && Driver().func_load != nullptr) {
    cudaFunction_t f = nullptr;
    e = cudaGetFuncBySymbol(&f, reinterpret_cast<const void*>(kernel));
    if (e == cudaSuccess) e = static_cast<cudaError_t>(Driver().func_load(f));
  }
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

template <typename F, typename... More>
cudaError_t LoadKernels(F* first, More*... more) {
  const cudaError_t e = LoadKernel(first);
  if constexpr (sizeof...(more) == 0) {
    return e;
  } else {
    return e != cudaSuccess ? e : LoadKernels(more...);
  }
}

// 16 bytes of elements, read and written at once.
template <typename S>
struct Pack {
  static constexpr int kSize = 16 / sizeof(S);
  S v[kSize];

  static __device__ Pack Load(const S* aligned) {
    const uint4 raw = *reinterpret_cast<const uint4*>(aligned);
    Pack p;
    memcpy(&p, &raw, 16);
    return p;
  }
  __device__ void Store(S* aligned) const {
    uint4 raw;
    memcpy(&raw, this, 16);
    *reinterpret_cast<uint4*>(aligned) = raw;
  }
};

inline bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

__device__ inline int64_t ThreadIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t ThreadCount() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
__device__ inline int64_t Execution(ExecutionNumber e) { return e.counter != nullptr ? *e.counter : e.value; }

}  // namespace weft::gpu
