// matmul, square.

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/blas.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/methods.h"

namespace weft::cpu {
namespace {

// Unsigned 32 bits hold every product of two 16-bit numbers; unsigned arithmetic wraps around.
template <typename T>
void IntegerProduct(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  std::vector<U> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    std::fill(row.begin(), row.end(), U{0});
    for (int64_t p = 0; p < k; ++p) {
      const U x = static_cast<U>(a[i * k + p]);
      for (int64_t j = 0; j < n; ++j) row[j] += x * static_cast<U>(b[p * n + j]);
    }
    for (int64_t j = 0; j < n; ++j) c[i * n + j] = static_cast<T>(row[j]);
  }
}

absl::Status Product(CallContext& ctx, const Tensor& a, const Tensor& b, std::vector<Tensor>* outs) {
  WEFT_RETURN_IF_ERROR(CheckProduct(a, b));
  if (a.dtype() == v1::F16 || a.dtype() == v1::BF16) {
    return absl::UnimplementedError(absl::StrCat("matrix products of ", DTypeName(a.dtype()),
                                                 " are not made on the CPU; use a worker with --device cuda, or F32"));
  }
  const int64_t m = a.dims()[0], k = a.dims()[1], n = b.dims()[1];
  WEFT_ASSIGN_OR_RETURN(const Tensor c, ctx.AllocateOutput(0, a.dtype(), {m, n}));
  outs->at(0) = c;
  switch (a.dtype()) {
    case v1::F32: return Gemm(a.as<float>(), b.as<float>(), c.as<float>(), m, n, k, false, false);
    case v1::F64: return Gemm(a.as<double>(), b.as<double>(), c.as<double>(), m, n, k, false, false);
    case v1::I8: IntegerProduct(a.as<int8_t>(), b.as<int8_t>(), c.as<int8_t>(), m, n, k); break;
    case v1::U8: IntegerProduct(a.as<uint8_t>(), b.as<uint8_t>(), c.as<uint8_t>(), m, n, k); break;
    case v1::I16: IntegerProduct(a.as<int16_t>(), b.as<int16_t>(), c.as<int16_t>(), m, n, k); break;
    case v1::I32: IntegerProduct(a.as<int32_t>(), b.as<int32_t>(), c.as<int32_t>(), m, n, k); break;
    default: IntegerProduct(a.as<int64_t>(), b.as<int64_t>(), c.as<int64_t>(), m, n, k); break;
  }
  return absl::OkStatus();
}

absl::Status Matmul(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  return Product(ctx, args[0], args[1], outs);
}

absl::Status Square(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& a = args[0];
  WEFT_RETURN_IF_ERROR(CheckSquare(a));
  return Product(ctx, a, a, outs);
}

}  // namespace

StdMethod MatmulMethod() { return {"matmul", 2, 2, 1, kInlineMatrixBytes, Matmul}; }
StdMethod SquareMethod() { return {"square", 1, 1, 1, kInlineMatrixBytes, Square}; }

}  // namespace weft::cpu
