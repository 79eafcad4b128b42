#pragma once

#include "common/device/cuda/api/cuda_api.h"

namespace weft::gpu {

// CudaApi over the CUDA runtime, which is linked statically. Never destroyed. Thread-safe.
CudaApi* RuntimeApi();

}  // namespace weft::gpu
