// Methods that cut values apart and put them together: split, concat; and their classes.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/infer.h"
#include "common/classes/std_signatures.h"

namespace weft {
namespace {

absl::StatusOr<Specs> InferSplit(const v1::Config& config, const Specs& args) {
  const Spec& x = args[0];
  const int64_t parts = config.parts();
  if (parts < 1 || parts > kMaxParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.parts is ", parts == 0 ? "missing" : absl::StrCat(parts), "; set it to 1 to ", kMaxParts));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, CheckAxis(config.axis(), 0, x));
  Spec part = x;
  Dim& d = part.shape.dims[axis];
  if (d.kind != Dim::kFixed) {
    return BadArg(0, x,
                  absl::StrCat("split needs a fixed size along axis ", axis,
                               ", since parts of an unknown size have no shape; split another axis or fix its size"));
  }
  if (d.size % parts != 0) {
    return BadArg(0, x,
                  absl::StrCat("axis ", axis, " of size ", d.size, " does not divide into config.parts = ", parts,
                               " equal parts"));
  }
  d.size /= parts;
  return Specs(static_cast<size_t>(parts), part);
}

absl::StatusOr<Specs> InferConcat(const v1::Config& config, const Specs& args) {
  Spec out = args[0];
  WEFT_ASSIGN_OR_RETURN(const int axis, CheckAxis(config.axis(), 0, out));
  for (int i = 1; i < static_cast<int>(args.size()); ++i) {
    const Spec& a = args[i];
    const auto differs = [&] {
      return BadArg(i, a,
                    absl::StrCat("concat takes arguments of one dtype that differ only along axis ", axis,
                                 ", and argument 0 is ", args[0].ToString()));
    };
    if (a.dtype != out.dtype || a.shape.dims.size() != out.shape.dims.size()) return differs();
    for (int d = 0; d < static_cast<int>(a.shape.dims.size()); ++d) {
      Dim& o = out.shape.dims[d];
      if (d != axis) {
        const std::optional<Dim> both = Unify(o, a.shape.dims[d]);
        if (!both.has_value()) return differs();
        o = *both;
      } else if (o.kind == Dim::kDynamic || a.shape.dims[d].kind == Dim::kDynamic) {
        o = {Dim::kDynamic, 0};
      } else {
        o.kind = std::max(o.kind, a.shape.dims[d].kind);  // one bounded summand makes the sum bounded
        o.size += a.shape.dims[d].size;
        // Sizes are at most 2^40 each: stop long before a sum of many could overflow.
        if (static_cast<uint64_t>(o.size) > kMaxTensorBytes) return CheckSpecSize(out);
      }
    }
  }
  WEFT_RETURN_IF_ERROR(CheckSpecSize(out));
  return Specs{out};
}

}  // namespace

MethodSignature SplitMethod() { return {"split", 1, 1, std::vector<std::string>{"axis", "parts"}, InferSplit}; }
MethodSignature ConcatMethod() { return {"concat", 1, -1, std::vector<std::string>{"axis"}, InferConcat}; }

void AddShapeClasses(ClassTable* table) {
  table->Add({"std.Split",
              "Cuts a value into config.parts equal parts along config.axis.",
              {"axis", "parts"},
              {},
              CheckMathConfig,
              {SplitMethod()}});
  table->Add({"std.Concat", "Joins values along config.axis.", {"axis"}, {}, CheckMathConfig, {ConcatMethod()}});
}

}  // namespace weft
