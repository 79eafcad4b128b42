// split, concat.

#include <cstring>

#include "common/base/status_macros.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/methods.h"

namespace weft::cpu {
namespace {

absl::Status Split(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(const SplitCall call, CheckSplit(ctx.config(), x, outs->size()));
  const int64_t parts = static_cast<int64_t>(outs->size());
  const size_t row = static_cast<size_t>(call.view.size * call.view.inner) * SizeOf(x.dtype());
  const size_t piece = row / parts;
  for (int64_t p = 0; p < parts; ++p) {
    WEFT_ASSIGN_OR_RETURN(outs->at(p), ctx.AllocateOutput(static_cast<int>(p), x.dtype(), call.dims));
    if (piece == 0) continue;
    for (int64_t o = 0; o < call.view.outer; ++o) {
      std::memcpy(outs->at(p).as<char>() + o * piece, x.as<char>() + o * row + p * piece, piece);
    }
  }
  return absl::OkStatus();
}

absl::Status Concat(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_ASSIGN_OR_RETURN(const ConcatCall call, CheckConcat(ctx.config(), args));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), call.dims));
  if (outs->at(0).elements() == 0) return absl::OkStatus();
  char* to = outs->at(0).as<char>();
  for (int64_t o = 0; o < call.view.outer; ++o) {
    for (const Tensor& a : args) {
      const size_t piece = static_cast<size_t>(a.dims()[call.axis] * call.view.inner) * SizeOf(a.dtype());
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
