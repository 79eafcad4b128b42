#include "common/tensor/blas.h"

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

void Call(const float* a, CBLAS_TRANSPOSE ta, const float* b, CBLAS_TRANSPOSE tb, float* c, int m, int n, int k, float beta) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1.0f, a, ta == CblasTrans ? m : k, b, tb == CblasTrans ? k : n, beta, c, n);
}
void Call(const double* a, CBLAS_TRANSPOSE ta, const double* b, CBLAS_TRANSPOSE tb, double* c, int m, int n, int k, double beta) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1.0, a, ta == CblasTrans ? m : k, b, tb == CblasTrans ? k : n, beta, c, n);
}

template <typename T>
absl::Status Run(const T* a, bool a_transposed, const T* b, bool b_transposed, T* c, int64_t m, int64_t n, int64_t k, bool accumulate) {
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
  Call(a, a_transposed ? CblasTrans : CblasNoTrans, b, b_transposed ? CblasTrans : CblasNoTrans, c, static_cast<int>(m), static_cast<int>(n),
       static_cast<int>(k), accumulate ? T{1} : T{0});
  return absl::OkStatus();
}

}  // namespace

void SetUpBlas() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

absl::Status Gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate) {
  return Run(a, false, b, b_transposed, c, m, n, k, accumulate);
}
absl::Status Gemm(const double* a, const double* b, double* c, int64_t m, int64_t n, int64_t k, bool b_transposed, bool accumulate) {
  return Run(a, false, b, b_transposed, c, m, n, k, accumulate);
}
absl::Status Gemm(const float* a, bool a_transposed, const float* b, bool b_transposed, float* c, int64_t m, int64_t n, int64_t k,
                  bool accumulate) {
  return Run(a, a_transposed, b, b_transposed, c, m, n, k, accumulate);
}
absl::Status Gemm(const double* a, bool a_transposed, const double* b, bool b_transposed, double* c, int64_t m, int64_t n, int64_t k,
                  bool accumulate) {
  return Run(a, a_transposed, b, b_transposed, c, m, n, k, accumulate);
}

}  // namespace weft
