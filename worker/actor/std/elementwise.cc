// identity, add, scale, peek.

#include <cstring>

#include "common/base/status_macros.h"
#include "common/tensor/arith.h"
#include "common/tensor/combine.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/methods.h"

namespace weft::cpu {
namespace {

void Copy(const Tensor& from, const Tensor& to) {
  if (from.bytes() > 0) std::memcpy(to.data(), from.data(), from.bytes());
}

absl::Status Identity(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), args[0].dims()));
  Copy(args[0], outs->at(0));
  return absl::OkStatus();
}

absl::Status Add(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  WEFT_RETURN_IF_ERROR(CheckAdd(args));
  std::vector<const void*> inputs;
  for (const Tensor& a : args) inputs.push_back(a.data());
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), args[0].dims()));
  return Combine(args[0].dtype(), v1::SUM, inputs, outs->at(0).data(), args[0].elements());
}

absl::Status Scale(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_RETURN_IF_ERROR(CheckScale(ctx.config(), x));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), x.dims()));
  return ForElementType(x.dtype(), [&](auto e) {
    using E = decltype(e);
    const auto* from = x.as<typename E::Storage>();
    auto* to = outs->at(0).as<typename E::Storage>();
    const auto factor = static_cast<typename E::Compute>(ctx.config().scale());
    for (int64_t i = 0; i < x.elements(); ++i) to[i] = E::Store(Times(E::Load(from[i]), factor));
    return absl::OkStatus();
  });
}

absl::Status Peek(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), {1}));
  WEFT_ASSIGN_OR_RETURN(outs->at(1), ctx.AllocateOutput(1, v1::I64, {static_cast<int64_t>(x.dims().size())}));
  WEFT_ASSIGN_OR_RETURN(outs->at(2), ctx.AllocateOutput(2, v1::I32, {1}));
  if (x.elements() > 0) {
    std::memcpy(outs->at(0).data(), x.data(), SizeOf(x.dtype()));
  } else {
    std::memset(outs->at(0).data(), 0, SizeOf(x.dtype()));
  }
  for (size_t i = 0; i < x.dims().size(); ++i) outs->at(1).as<int64_t>()[i] = x.dims()[i];
  outs->at(2).as<int32_t>()[0] = x.dtype();
  return absl::OkStatus();
}

}  // namespace

StdMethod IdentityMethod() { return {"identity", 1, 1, 1, kInlineBytes, Identity}; }
StdMethod AddMethod() { return {"add", 1, -1, 1, kInlineBytes, Add}; }
StdMethod ScaleMethod() { return {"scale", 1, 1, 1, kInlineBytes, Scale}; }
// Reads one element whatever the size.
StdMethod PeekMethod() { return {"peek", 1, 1, 3, SIZE_MAX, Peek}; }

}  // namespace weft::cpu
