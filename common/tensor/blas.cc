#include "common/tensor/blas.h"

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

void Call(const float* a, const float* b, float* c, int m, int n, int k, CBLAS_TRANSPOSE tb, float beta) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, tb, m, n, k, 1.0f, a, k, b, tb == CblasTrans ? k : n, beta, c, n);
}
void Call(const double* a, const double* b, double* c, int m, int n, int k, CBLAS_TRANSPOSE tb, double beta) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, tb, m, n, k, 1.0, a, k, b, tb == CblasTrans ? k : n, beta, c, n);
}

template <typename T>
absl::Status Run(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate) {
  if (std::max({m, n, k}) > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("a matrix product of [", m, ", ", k, "] and [", k, ", ", n,
                                                   "] has a dimension above 2^31 - 1; split it"));
  }
  SetUpBlas();
  if (m == 0 || n == 0) return absl::OkStatus();
  if (k == 0) {
    if (!accumulate) std::fill(c, c + m * n, T{0});
    return absl::OkStatus();
  }
  Call(a, b, c, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), b_transposed ? CblasTrans : CblasNoTrans,
       accumulate ? T{1} : T{0});
  return absl::OkStatus();
}

}  // namespace

void SetUpBlas() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

absl::Status Gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate) {
  return Run(a, b, c, m, n, k, b_transposed, accumulate);
}
absl::Status Gemm(const double* a, const double* b, double* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate) {
  return Run(a, b, c, m, n, k, b_transposed, accumulate);
}

}  // namespace weft
