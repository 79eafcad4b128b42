// split, concat.

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/actor/std/axis_view.h"
#include "worker/actor/std/methods.h"

namespace weft::cpu {
namespace {

absl::Status Split(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(const AxisView view, AxisView::Of(x, ctx.config().axis()));
  const int64_t parts = static_cast<int64_t>(outs->size());
  if (ctx.config().parts() != parts) {
    return absl::InvalidArgumentError(absl::StrCat("config.parts is ", ctx.config().parts(), ", the plan has ", parts, " outputs"));
  }
  if (view.size % parts != 0) {
    return BadArgument(0, x, absl::StrCat("axis ", ctx.config().axis(), " of size ", view.size, " does not divide into ", parts, " equal parts"));
  }
  Dims dims = x.dims();
  dims[ctx.config().axis()] = view.size / parts;
  const size_t row = static_cast<size_t>(view.size * view.inner) * SizeOf(x.dtype());
  const size_t piece = row / parts;
  for (int64_t p = 0; p < parts; ++p) {
    WEFT_ASSIGN_OR_RETURN(outs->at(p), ctx.AllocateOutput(static_cast<int>(p), x.dtype(), dims));
    if (piece == 0) continue;
    for (int64_t o = 0; o < view.outer; ++o) {
      std::memcpy(outs->at(p).as<char>() + o * piece, x.as<char>() + o * row + p * piece, piece);
    }
  }
  return absl::OkStatus();
}

absl::Status Concat(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const int64_t axis = ctx.config().axis();
  WEFT_ASSIGN_OR_RETURN(const AxisView view, AxisView::Of(args[0], axis));
  Dims dims = args[0].dims();
  for (size_t i = 1; i < args.size(); ++i) {
    Dims same = args[i].dims();
    const bool fits = args[i].dtype() == args[0].dtype() && same.size() == dims.size();
    const int64_t size = fits ? same[axis] : 0;
    if (fits) same[axis] = dims[axis];
    if (!fits || same != dims) {
      return BadArgument(i, args[i], absl::StrCat("concat takes arguments of one dtype that differ only along axis ", axis,
                                                  ", and argument 0 is ", args[0].ToString()));
    }
    dims[axis] += size;
  }
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), dims));
  if (outs->at(0).elements() == 0) return absl::OkStatus();
  char* to = outs->at(0).as<char>();
  for (int64_t o = 0; o < view.outer; ++o) {
    for (const Tensor& a : args) {
      const size_t piece = static_cast<size_t>(a.dims()[axis] * view.inner) * SizeOf(a.dtype());
      if (piece > 0) std::memcpy(to, a.as<char>() + o * piece, piece);
      to += piece;
    }
  }
  return absl::OkStatus();
}

}  // namespace

StdMethod SplitMethod() { return {"split", 1, 1, -1, kInlineBytes, Split}; }
StdMethod ConcatMethod() { return {"concat", 1, -1, 1, kInlineBytes, Concat}; }

}  // namespace weft::cpu
