#include "common/tensor/combine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/arith.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 1024;

// Block by block: all inputs of a block while it is in the cache, rounded once at its end.
template <typename E, typename Op>
void Run(E, const std::vector<const void*>& inputs, void* out, int64_t n, Op op) {
  using C = typename E::Compute;
  using S = typename E::Storage;
  C acc[kBlock];
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t k = std::min(kBlock, n - from);
    const S* first = static_cast<const S*>(inputs[0]) + from;
    for (int64_t i = 0; i < k; ++i) acc[i] = E::Load(first[i]);
    for (size_t a = 1; a < inputs.size(); ++a) {
      const S* x = static_cast<const S*>(inputs[a]) + from;
      for (int64_t i = 0; i < k; ++i) acc[i] = op(acc[i], E::Load(x[i]));
    }
    S* to = static_cast<S*>(out) + from;
    for (int64_t i = 0; i < k; ++i) to[i] = E::Store(acc[i]);
  }
}

}  // namespace

absl::Status CheckCombine(DType dtype, v1::ReduceOp op) {
  if (op < v1::SUM || op > v1::MAX) return absl::InvalidArgumentError("reduce is not one of SUM, PROD, MIN, MAX");
  if (SizeOf(dtype) == 0) return absl::InvalidArgumentError(absl::StrCat(DTypeName(dtype), " is no dtype"));
  if (dtype == v1::BOOL && op != v1::MIN && op != v1::MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("BOOL cannot be combined by ", v1::ReduceOp_Name(op), "; use MIN (all), MAX (any), or an integer dtype"));
  }
  return absl::OkStatus();
}

absl::Status Combine(DType dtype, v1::ReduceOp op, const std::vector<const void*>& inputs, void* out, int64_t n) {
  WEFT_RETURN_IF_ERROR(CheckCombine(dtype, op));
  return ForElementType(dtype, [&](auto e) {
    using C = typename decltype(e)::Compute;
    switch (op) {
      case v1::SUM: Run(e, inputs, out, n, Plus<C>); break;
      case v1::PROD: Run(e, inputs, out, n, Times<C>); break;
      case v1::MIN: Run(e, inputs, out, n, Smaller<C>); break;
      default: Run(e, inputs, out, n, Larger<C>); break;
    }
    return absl::OkStatus();
  });
}

}  // namespace weft
