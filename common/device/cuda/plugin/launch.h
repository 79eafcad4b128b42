#pragma once

// The host side of weft's device code, one group of functions per .cu file. Each Launch... puts work on `stream` and returns the launch's error;
// each Load... loads the file's kernels. Arguments are checked by RealKernels.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/api/kernels_api.h"

namespace weft::gpu {

// Multiprocessors of the device; set by Load before any launch.
inline int g_sm_count = 1;

// elementwise.cu
cudaError_t LoadElementwise();
cudaError_t LaunchFill(DeviceFill kind, double number, uint64_t seed, ExecutionNumber execution, int dtype, void* out, int64_t n,
                       cudaStream_t stream);
cudaError_t LaunchAdd(int dtype, const void* const* args, int count, void* out, int64_t n, cudaStream_t stream);
cudaError_t LaunchScale(int dtype, const void* x, double factor, void* out, int64_t n, cudaStream_t stream);

// reduce.cu. `partials` has room for kReduceMaxPartials words of 8 bytes, this stream's own.
cudaError_t LoadReduce();
cudaError_t LaunchReduce(DeviceReduce how, int dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out, void* partials,
                         cudaStream_t stream);

// matmul.cu
cudaError_t LoadMatmul();
// Integers of `bytes` each, of either sign: a product modulo 2^bits is the same.
cudaError_t LaunchIntegerMatmul(int bytes, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream);
// y[row] = bias for each of `rows`; elements of `bytes` each.
cudaError_t LaunchRows(int bytes, const void* bias, void* y, int64_t rows, int64_t columns, cudaStream_t stream);
// In place; F32, F64, F16, BF16.
cudaError_t LaunchActivation(int dtype, DeviceActivation activation, void* y, int64_t n, cudaStream_t stream);
// dx = dy * f'(x) by y = f(x), not kGelu; dx may be either of them.
cudaError_t LaunchActivationGradient(int dtype, DeviceActivation activation, const void* y, const void* dy, void* dx, int64_t n,
                                     cudaStream_t stream);

// control.cu
cudaError_t LoadControl();
cudaError_t LaunchDelay(int64_t iterations, int blocks, cudaStream_t stream);
cudaError_t LaunchCombineStatus(const DeviceStatus* const* from, int count, DeviceStatus* to, cudaStream_t stream);
cudaError_t LaunchCheckFinite(int dtype, const void* x, int64_t n, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to,
                              cudaStream_t stream);
cudaError_t LaunchFailOn(const int64_t* on, int count, uint64_t code_and_node, ExecutionNumber execution, DeviceStatus* to, cudaStream_t stream);
cudaError_t LaunchAdvance(int64_t* counter, cudaStream_t stream);
cudaError_t LaunchNothing(cudaStream_t stream);
cudaError_t LaunchIllegalAddress(cudaStream_t stream);

}  // namespace weft::gpu
