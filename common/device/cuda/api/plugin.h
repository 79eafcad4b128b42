#pragma once

// libweft_cuda.so, found beside the worker: the three interfaces over the real libraries. Built where a CUDA toolkit is; NCCL and cuBLAS
// are opened by it when it is loaded, from the machine.

#include "common/device/cuda/api/cuda_api.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/device/cuda/api/nccl_api.h"

namespace weft {

// Changes whenever an interface does: worker and library of different builds refuse each other.
constexpr int kCudaPluginVersion = 3;

// All valid until the process ends.
struct CudaPlugin {
  int version = kCudaPluginVersion;
  CudaApi* cuda = nullptr;
  KernelsApi* kernels = nullptr;
  NcclApi* nccl = nullptr;            // nullptr: nccl_problem says why
  const char* nccl_problem = nullptr;
};

// The library's only symbol: extern "C" const CudaPlugin* weft_cuda_plugin(int version); nullptr when the version is another.
using CudaPluginEntry = const CudaPlugin* (*)(int version);
constexpr char kCudaPluginSymbol[] = "weft_cuda_plugin";

}  // namespace weft
