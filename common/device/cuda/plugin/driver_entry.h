#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace weft::gpu {

// The driver's functions that the runtime has no twin of. Asked from the runtime, so that nothing links to libcuda, which is not there on
// machines without a GPU. Entries that the driver does not have are nullptr.
struct DriverEntries {
  CUresult (*stream_write_32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = nullptr;
  CUresult (*stream_wait_32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = nullptr;
  CUresult (*func_load)(CUfunction) = nullptr;
  // Why the first two are missing; cudaSuccess when they are there.
  cudaError_t problem = cudaSuccess;
};

// Looked up once, at the first call. Thread-safe.
const DriverEntries& Driver();

}  // namespace weft::gpu
