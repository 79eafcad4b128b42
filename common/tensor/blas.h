#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// Limits OpenBLAS to the calling thread, once per process: a worker has one compute thread, and one thread sums in one order.
void SetUpBlas();

// c[m, n] = a[m, k] · b[k, n], or a · bᵀ of b[n, k] when `b_transposed`, plus what c holds when `accumulate`. Row-major, without
// gaps. The result depends on the operands alone. InvalidArgument for a dimension above 2^31 - 1.
absl::Status Gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate);
absl::Status Gemm(const double* a, const double* b, double* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate);
// The same with either factor transposed in memory: a as [k, m], b as [n, k].
absl::Status Gemm(const float* a, bool a_transposed, const float* b, bool b_transposed, float* c, int64_t m, int64_t n, int64_t k,
                  bool accumulate);
absl::Status Gemm(const double* a, bool a_transposed, const double* b, bool b_transposed, double* c, int64_t m, int64_t n, int64_t k,
                  bool accumulate);

}  // namespace weft
