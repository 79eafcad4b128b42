#include "worker/actor/std/axis_view.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<AxisView> AxisView::Of(const Tensor& t, int64_t axis) {
  const int64_t rank = static_cast<int64_t>(t.dims().size());
  if (axis < 0 || axis >= rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.axis is ", axis, ", but ", t.ToString(),
                     rank == 0 ? " has none" : absl::StrCat(" has axes 0 to ", rank - 1)));
  }
  AxisView v;
  for (int64_t i = 0; i < rank; ++i) {
    (i < axis ? v.outer : i == axis ? v.size : v.inner) *= t.dims()[i];
  }
  return v;
}

}  // namespace weft
