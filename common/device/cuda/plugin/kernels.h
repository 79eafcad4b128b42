#pragma once

#include "common/device/cuda/api/kernels_api.h"

namespace weft::gpu {

// KernelsApi over weft's device code and cuBLAS. Never destroyed.
KernelsApi* Kernels();

}  // namespace weft::gpu
