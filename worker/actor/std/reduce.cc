#include <type_traits>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/arith.h"
#include "worker/actor/std/checks.h"
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
  WEFT_ASSIGN_OR_RETURN(const ReduceCall call, CheckReduce(ctx.config(), x));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), call.dims));
  return ForElementType(x.dtype(), [&](auto e) {
    using E = decltype(e);
    using C = typename E::Compute;
    using Sum = std::conditional_t<std::is_integral_v<C>, C, double>;
    const auto* from = x.as<typename E::Storage>();
    auto* to = outs->at(0).as<typename E::Storage>();
    if (call.how == ReduceCall::kMax) {
      Run<E, C>(call.view, from, to, C{1}, Larger<C>);
    } else if (call.how == ReduceCall::kMin) {
      Run<E, C>(call.view, from, to, C{1}, Smaller<C>);
    } else {
      Run<E, Sum>(call.view, from, to, call.how == ReduceCall::kMean ? static_cast<Sum>(call.view.size) : Sum{1}, Plus<Sum>);
    }
    return absl::OkStatus();
  });
}

}  // namespace

StdMethod ReduceMethod() { return {"reduce", 1, 1, 1, kInlineBytes, Reduce}; }

}  // namespace weft::cpu
