#pragma once

#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"

namespace weft {

// A tensor seen as [outer, size, inner] around one axis.
struct AxisView {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;

  // InvalidArgument unless 0 <= axis < rank.
  static absl::StatusOr<AxisView> Of(const Tensor& t, int64_t axis);
};

}  // namespace weft
