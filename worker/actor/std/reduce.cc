#include <cmath>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/arith.h"
#include "worker/actor/std/axis_view.h"
#include "worker/actor/std/methods.h"

namespace weft::cpu {
namespace {

// acc[i] = op over k of x[k, i], in the order of k, for each of `outer` blocks.
template <typename E, typename Acc, typename Op>
void Run(const AxisView& v, const typename E::Storage* x, typename E::Storage* out, Acc divisor, Op op) {
  std::vector<Acc> acc(static_cast<size_t>(v.inner));
  for (int64_t o = 0; o < v.outer; ++o) {
    for (int64_t i = 0; i < v.inner; ++i) acc[i] = v.size == 0 ? Acc{0} : static_cast<Acc>(E::Load(x[i]));
    for (int64_t k = 1; k < v.size; ++k) {
      for (int64_t i = 0; i < v.inner; ++i) acc[i] = op(acc[i], static_cast<Acc>(E::Load(x[k * v.inner + i])));
    }
    for (int64_t i = 0; i < v.inner; ++i) {
      out[i] = E::Store(static_cast<typename E::Compute>(divisor == Acc{1} ? acc[i] : acc[i] / divisor));
    }
    x += v.size * v.inner;
    out += v.inner;
  }
}

absl::Status Reduce(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  const v1::Config& config = ctx.config();
  const std::string how = config.reduce().empty() ? "sum" : config.reduce();
  if (how != "sum" && how != "mean" && how != "max" && how != "min") {
    return absl::InvalidArgumentError(absl::StrCat("config.reduce \"", how.substr(0, 40), "\" is not one of sum, mean, max, min"));
  }
  if (x.dtype() == v1::BOOL) return BadArgument(0, x, "reduce takes numbers, not BOOL");
  if (how == "mean" && !IsFloat(x.dtype())) {
    return BadArgument(0, x, "config.reduce \"mean\" takes F16, BF16, F32 or F64; use \"sum\", or another dtype");
  }
  AxisView view{1, x.elements(), 1};
  Dims dims = {1};
  if (config.has_axis()) {
    WEFT_ASSIGN_OR_RETURN(view, AxisView::Of(x, config.axis()));
    dims = x.dims();
    dims.erase(dims.begin() + config.axis());
  }
  if (view.size == 0 && how != "sum" && view.outer * view.inner > 0) {
    return BadArgument(0, x, absl::StrCat("config.reduce \"", how, "\" of no elements has no value; only \"sum\" has"));
  }
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), dims));
  return ForElementType(x.dtype(), [&](auto e) {
    using E = decltype(e);
    using C = typename E::Compute;
    using Sum = std::conditional_t<std::is_integral_v<C>, C, double>;
    const auto* from = x.as<typename E::Storage>();
    auto* to = outs->at(0).as<typename E::Storage>();
    if (how == "max") {
      Run<E, C>(view, from, to, C{1}, Larger<C>);
    } else if (how == "min") {
      Run<E, C>(view, from, to, C{1}, Smaller<C>);
    } else {
      Run<E, Sum>(view, from, to, how == "mean" ? static_cast<Sum>(view.size) : Sum{1}, Plus<Sum>);
    }
    return absl::OkStatus();
  });
}

}  // namespace

StdMethod ReduceMethod() { return {"reduce", 1, 1, 1, kInlineBytes, Reduce}; }

}  // namespace weft::cpu
