#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/device/cuda/api/kernels_api.h"

namespace weft::gpu {

// Matrix products by this machine's cuBLAS, opened at run time. Its one handle is used by one thread at a time, the loop's; each product is told its
// stream and that stream's workspace. With the workspace given, cuBLAS allocates nothing and its result depends on operands, sizes, GPU and
// library alone.
class Cublas {
 public:
  // Opens the library and makes the handle for the calling thread's device. On failure *problem says what is missing. Blocks.
  cudaError_t Open(const char** problem);

  // Column-major, as cuBLAS has it: c[m, n] = op(a)[m, k] * op(b)[k, n] + (accumulate ? c : 0), with leading dimensions lda, ldb and m; op
  // transposes when asked to. F32, F64, F16, BF16. Pre: Open, all sizes above 0.
  cudaError_t Gemm(int dtype, DevicePrecision precision, bool transpose_a, int64_t m, int64_t n, int64_t k, const void* a, int64_t lda,
                   bool transpose_b, const void* b, int64_t ldb, void* c, bool accumulate, void* workspace, size_t workspace_bytes, cudaStream_t stream);

 private:
  struct Functions;
  const Functions* f_ = nullptr;
  void* handle_ = nullptr;
  char problem_[512] = "";
};

}  // namespace weft::gpu
