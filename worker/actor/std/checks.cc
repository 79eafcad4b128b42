#include "worker/actor/std/checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/actor/std/method_table.h"

namespace weft {

absl::Status CheckAdd(const std::vector<Tensor>& args) {
  if (args[0].dtype() == v1::BOOL) return BadArgument(0, args[0], "add takes numbers, not BOOL");
  for (size_t i = 1; i < args.size(); ++i) {
    if (args[i].dtype() != args[0].dtype() || args[i].dims() != args[0].dims()) {
      return BadArgument(i, args[i], absl::StrCat("add takes arguments of one dtype and shape, and argument 0 is ", args[0].ToString()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckScale(const v1::Config& config, const Tensor& x) {
  if (!config.has_scale()) return absl::InvalidArgumentError("config.scale is missing");
  if (x.dtype() == v1::BOOL) return BadArgument(0, x, "scale takes numbers, not BOOL");
  const double scale = config.scale();
  if (!IsFloat(x.dtype()) && (scale != std::trunc(scale) || std::fabs(scale) > 9007199254740992.0)) {
    return BadArgument(0, x, absl::StrCat("an integer dtype takes a whole factor up to 2^53, and config.scale is ", scale));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReduceCall> CheckReduce(const v1::Config& config, const Tensor& x) {
  const std::string how = config.reduce().empty() ? "sum" : config.reduce();
  ReduceCall call{ReduceCall::kSum, {1, x.elements(), 1}, {1}};
  if (how == "mean") {
    call.how = ReduceCall::kMean;
  } else if (how == "max") {
    call.how = ReduceCall::kMax;
  } else if (how == "min") {
    call.how = ReduceCall::kMin;
  } else if (how != "sum") {
    return absl::InvalidArgumentError(absl::StrCat("config.reduce \"", how.substr(0, 40), "\" is not one of sum, mean, max, min"));
  }
  if (x.dtype() == v1::BOOL) return BadArgument(0, x, "reduce takes numbers, not BOOL");
  if (how == "mean" && !IsFloat(x.dtype())) {
    return BadArgument(0, x, "config.reduce \"mean\" takes F16, BF16, F32 or F64; use \"sum\", or another dtype");
  }
  if (config.has_axis()) {
    WEFT_ASSIGN_OR_RETURN(call.view, AxisView::Of(x, config.axis()));
    call.dims = x.dims();
    call.dims.erase(call.dims.begin() + config.axis());
  }
  if (call.view.size == 0 && how != "sum" && call.view.outer * call.view.inner > 0) {
    return BadArgument(0, x, absl::StrCat("config.reduce \"", how, "\" of no elements has no value; only \"sum\" has"));
  }
  return call;
}

absl::StatusOr<SplitCall> CheckSplit(const v1::Config& config, const Tensor& x, size_t parts) {
  WEFT_ASSIGN_OR_RETURN(const AxisView view, AxisView::Of(x, config.axis()));
  const int64_t n = static_cast<int64_t>(parts);
  if (config.parts() != n) {
    return absl::InvalidArgumentError(absl::StrCat("config.parts is ", config.parts(), ", the plan has ", n, " outputs"));
  }
  if (view.size % n != 0) {
    return BadArgument(0, x, absl::StrCat("axis ", config.axis(), " of size ", view.size, " does not divide into ", n, " equal parts"));
  }
  SplitCall call{view, x.dims()};
  call.dims[config.axis()] = view.size / n;
  return call;
}

absl::StatusOr<ConcatCall> CheckConcat(const v1::Config& config, const std::vector<Tensor>& args) {
  const int64_t axis = config.axis();
  WEFT_ASSIGN_OR_RETURN(const AxisView view, AxisView::Of(args[0], axis));
  ConcatCall call{view, axis, args[0].dims()};
  for (size_t i = 1; i < args.size(); ++i) {
    Dims same = args[i].dims();
    const bool fits = args[i].dtype() == args[0].dtype() && same.size() == call.dims.size();
    const int64_t size = fits ? same[axis] : 0;
    if (fits) same[axis] = call.dims[axis];
    if (!fits || same != call.dims) {
      return BadArgument(i, args[i], absl::StrCat("concat takes arguments of one dtype that differ only along axis ", axis,
                                                  ", and argument 0 is ", args[0].ToString()));
    }
    call.dims[axis] += size;
  }
  return call;
}

absl::Status CheckProduct(const Tensor& a, const Tensor& b) {
  if (a.dims().size() != 2) return BadArgument(0, a, "a matrix product takes matrices");
  if (b.dims().size() != 2) return BadArgument(1, b, "a matrix product takes matrices");
  if (a.dtype() != b.dtype()) return BadArgument(1, b, absl::StrCat("argument 0 is ", a.ToString(), "; both need one dtype"));
  if (a.dims()[1] != b.dims()[0]) {
    return BadArgument(1, b, absl::StrCat("argument 0 is ", a.ToString(), ", so it needs ", a.dims()[1], " rows"));
  }
  if (a.dtype() == v1::BOOL) return BadArgument(0, a, "a matrix product takes numbers, not BOOL");
  return absl::OkStatus();
}

absl::Status CheckSquare(const Tensor& a) {
  if (a.dims().size() != 2 || a.dims()[0] != a.dims()[1]) return BadArgument(0, a, "square takes a square matrix");
  return CheckProduct(a, a);
}

absl::Status CheckFinite(const Tensor& x) {
  if (!IsFloat(x.dtype())) return BadArgument(0, x, "finite takes F16, BF16, F32 or F64; other dtypes are always finite");
  return absl::OkStatus();
}

absl::Status CheckLinear(const Tensor& x, DType dtype, int64_t in_features) {
  if (x.dtype() != dtype || x.dims().size() != 2 || x.dims()[1] != in_features) {
    return BadArgument(0, x, absl::StrCat("forward takes ", DTypeName(dtype), "[batch, ", in_features,
                                          "], as config.dtype and config.in_features say"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Nanos> CheckDuration(const v1::Config& config) {
  const double s = config.duration_s();
  if (!(s >= 0 && s <= 3600)) return absl::InvalidArgumentError(absl::StrCat("config.duration_s ", s, " is not within 0 to 3600 seconds"));
  return FromSeconds(s);
}

}  // namespace weft
