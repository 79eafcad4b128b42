#pragma once

// What signatures share: rules for dimensions that are not all fixed, and messages.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/shape.h"

namespace weft {

using Specs = std::vector<Spec>;

// Largest number of outputs of one call.
constexpr int64_t kMaxParts = 4096;

// The dimension of which both are true at run time: equal sizes stay, a bound is narrowed, `?` says nothing. nullopt
// when no size satisfies both. Whether they are equal in fact is checked by the actor, for each value.
std::optional<Dim> Unify(const Dim& a, const Dim& b);

// InvalidArgument when a value of it could be larger than kMaxTensorBytes (`?` counts as 1).
absl::Status CheckSpecSize(const Spec& spec);

// All but BOOL.
bool IsNumeric(DType dtype);

// "argument 1 is F32[4]: WHAT".
absl::Status BadArg(int index, const Spec& spec, const std::string& what);

// The axis of `config_axis` (default 0 is the caller's) within `spec`, or an error that names config.axis.
absl::StatusOr<int> CheckAxis(int64_t axis, int arg, const Spec& spec);

// Whether every value of that spec is empty.
bool AlwaysEmpty(const Spec& spec);

}  // namespace weft
