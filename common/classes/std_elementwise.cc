// Methods whose result has the arguments' shape, or loses an axis: identity, add, scale, reduce, peek; and their
// classes.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/infer.h"
#include "common/classes/std_signatures.h"

namespace weft {
namespace {

absl::StatusOr<Specs> InferIdentity(const v1::Config&, const Specs& args) { return Specs{args[0]}; }

absl::StatusOr<Specs> InferAdd(const v1::Config&, const Specs& args) {
  Spec sum = args[0];
  if (!IsNumeric(sum.dtype)) return BadArg(0, sum, "add takes numbers, not BOOL");
  for (int i = 1; i < static_cast<int>(args.size()); ++i) {
    const Spec& a = args[i];
    const auto differs = [&] {
      return BadArg(i, a,
                    absl::StrCat("add takes arguments of one dtype and shape, and argument 0 is ", args[0].ToString()));
    };
    if (a.dtype != sum.dtype || a.shape.dims.size() != sum.shape.dims.size()) return differs();
    for (size_t d = 0; d < a.shape.dims.size(); ++d) {
      const std::optional<Dim> both = Unify(sum.shape.dims[d], a.shape.dims[d]);
      if (!both.has_value()) return differs();
      sum.shape.dims[d] = *both;
    }
  }
  return Specs{sum};
}

absl::StatusOr<Specs> InferScale(const v1::Config& config, const Specs& args) {
  if (!config.has_scale()) {
    return absl::InvalidArgumentError("config.scale is missing; set it for the actor or the node");
  }
  if (!IsNumeric(args[0].dtype)) return BadArg(0, args[0], "scale takes numbers, not BOOL");
  const double s = config.scale();
  if (!IsFloat(args[0].dtype) && (s != std::trunc(s) || std::fabs(s) > 9007199254740992.0)) {
    return BadArg(0, args[0],
                  absl::StrCat("an integer dtype takes a whole factor up to 2^53, and config.scale is ", s));
  }
  return Specs{args[0]};
}

absl::StatusOr<Specs> InferReduce(const v1::Config& config, const Specs& args) {
  const Spec& x = args[0];
  const std::string how = config.reduce().empty() ? "sum" : config.reduce();
  if (!IsNumeric(x.dtype)) return BadArg(0, x, "reduce takes numbers, not BOOL");
  if (how == "mean" && !IsFloat(x.dtype)) {
    return BadArg(0, x, "config.reduce \"mean\" takes F16, BF16, F32 or F64; use \"sum\", or another dtype");
  }
  Spec out{x.dtype, Shape::Of({1})};
  bool empty = AlwaysEmpty(x);
  if (config.has_axis()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, CheckAxis(config.axis(), 0, x));
    const Dim& d = x.shape.dims[axis];
    empty = d.kind != Dim::kDynamic && d.size == 0;
    out.shape = x.shape;
    out.shape.dims.erase(out.shape.dims.begin() + axis);
  }
  if (empty && how != "sum") {
    return BadArg(0, x, absl::StrCat("config.reduce \"", how, "\" of no elements has no value; only \"sum\" has"));
  }
  return Specs{out};
}

absl::StatusOr<Specs> InferPeek(const v1::Config&, const Specs& args) {
  const Spec& x = args[0];
  if (AlwaysEmpty(x)) return BadArg(0, x, "peek takes the first element, and there is none");
  return Specs{Spec{x.dtype, Shape::Of({1})}, Spec{v1::I64, Shape::Of({static_cast<int64_t>(x.shape.dims.size())})},
               Spec{v1::I32, Shape::Of({1})}};
}

}  // namespace

using Fields = std::vector<std::string>;

MethodSignature IdentityMethod() { return {"identity", 1, 1, Fields{}, InferIdentity}; }
MethodSignature AddMethod() { return {"add", 1, -1, Fields{}, InferAdd}; }
MethodSignature ScaleMethod() { return {"scale", 1, 1, Fields{"scale"}, InferScale}; }
MethodSignature ReduceMethod() { return {"reduce", 1, 1, Fields{"reduce", "axis"}, InferReduce}; }
MethodSignature PeekMethod() { return {"peek", 1, 1, Fields{}, InferPeek}; }

absl::Status CheckMathConfig(const v1::Config& config) {
  std::string problems;
  const auto bad = [&](const std::string& what) { absl::StrAppend(&problems, problems.empty() ? "" : "; ", what); };
  if (config.has_axis() && (config.axis() < 0 || config.axis() >= kMaxRank)) {
    bad(absl::StrCat("config.axis ", config.axis(), " is not within 0 to ", kMaxRank - 1));
  }
  if (config.parts() < 0 || config.parts() > kMaxParts) {
    bad(absl::StrCat("config.parts ", config.parts(), " is not within 1 to ", kMaxParts));
  }
  const std::string& how = config.reduce();
  if (!how.empty() && how != "sum" && how != "mean" && how != "max" && how != "min") {
    bad(absl::StrCat("config.reduce \"", how.substr(0, 40), "\" is not one of sum, mean, max, min"));
  }
  if (const absl::Status s = CheckPrecision(config); !s.ok()) bad(std::string(s.message()));
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

void AddElementwiseClasses(ClassTable* table) {
  table->Add({"std.Identity", "Passes a value on unchanged.", {}, {}, nullptr, {IdentityMethod()}});
  table->Add({"std.Add", "Adds values of one dtype and shape.", {}, {}, nullptr, {AddMethod()}});
  table->Add({"std.Scale", "Multiplies a value by config.scale.", {"scale"}, {}, CheckMathConfig, {ScaleMethod()}});
  table->Add({"std.Reduce",
              "Sum, mean, maximum or minimum along config.axis, or over all elements.",
              {"reduce", "axis"},
              {},
              CheckMathConfig,
              {ReduceMethod()}});
}

}  // namespace weft
