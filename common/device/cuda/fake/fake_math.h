#pragma once

// The arithmetic of FakeKernels on plain host memory, where common/tensor does not have it already.

#include <cstdint>

#include "absl/status/status.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/tensor/dtype.h"

namespace weft {

// As KernelsApi::Reduce, in the order of reduce_order.h.
absl::Status FakeReduce(DeviceReduce how, DType dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out);

// As KernelsApi::Matmul.
absl::Status FakeMatmul(DType dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k);

// As KernelsApi::Gemm.
absl::Status FakeGemm(DType dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m,
                      int64_t n, int64_t k, bool accumulate);

// As KernelsApi::Linear.
absl::Status FakeLinear(DType dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
                        int64_t batch, int64_t in, int64_t out);

}  // namespace weft
