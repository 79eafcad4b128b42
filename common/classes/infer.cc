#include "common/classes/infer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

std::optional<Dim> Unify(const Dim& a, const Dim& b) {
  if (a.kind == Dim::kDynamic) return b;
  if (b.kind == Dim::kDynamic) return a;
  if (a.kind == Dim::kFixed && b.kind == Dim::kFixed) {
    if (a.size != b.size) return std::nullopt;
    return a;
  }
  if (a.kind == Dim::kBounded && b.kind == Dim::kBounded) return Dim{Dim::kBounded, std::min(a.size, b.size)};
  const Dim& fixed = a.kind == Dim::kFixed ? a : b;
  const Dim& bounded = a.kind == Dim::kFixed ? b : a;
  if (fixed.size > bounded.size) return std::nullopt;
  return fixed;
}

absl::Status CheckSpecSize(const Spec& spec) {
  if (AlwaysEmpty(spec)) return absl::OkStatus();
  Dims dims;
  for (const Dim& d : spec.shape.dims) {
    // A bound of 0 admits only empty values.
    dims.push_back(d.kind == Dim::kDynamic ? 1 : d.size);
  }
  const absl::StatusOr<int64_t> n = NumElements(dims);
  if (!n.ok() || static_cast<uint64_t>(*n) * SizeOf(spec.dtype) > kMaxTensorBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the result ", spec.ToString(),
                                                   " is larger than 1 TiB or has more than ", kMaxRank, " dimensions"));
  }
  return absl::OkStatus();
}

bool IsNumeric(DType dtype) { return SizeOf(dtype) != 0 && dtype != v1::BOOL; }

absl::Status BadArg(int index, const Spec& spec, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("argument ", index, " is ", spec.ToString(), ": ", what));
}

absl::StatusOr<int> CheckAxis(int64_t axis, int arg, const Spec& spec) {
  const auto rank = static_cast<int64_t>(spec.shape.dims.size());
  if (axis >= 0 && axis < rank) return static_cast<int>(axis);
  if (rank == 0) return BadArg(arg, spec, absl::StrCat("a scalar has no axis (config.axis is ", axis, ")"));
  return BadArg(arg, spec, absl::StrCat("config.axis is ", axis, ", but its axes are 0 to ", rank - 1));
}

bool AlwaysEmpty(const Spec& spec) {
  return std::any_of(spec.shape.dims.begin(), spec.shape.dims.end(),
                     [](const Dim& d) { return d.kind != Dim::kDynamic && d.size == 0; });
}

}  // namespace weft
