#pragma once

// The stateless methods on CUDA, each as a row of a method table. In a namespace of their own, as the CPU's are.

#include "worker/actor/cuda/cuda_call.h"

namespace weft::gpu_methods {

CudaMethod IdentityMethod();
CudaMethod AddMethod();  // F16 and BF16: at most 64 arguments
CudaMethod ScaleMethod();
CudaMethod ReduceMethod();
CudaMethod PeekMethod();
CudaMethod SplitMethod();
CudaMethod ConcatMethod();
CudaMethod MatmulMethod();  // F16 and BF16 too, summed in F32
CudaMethod SquareMethod();

}  // namespace weft::gpu_methods
