#include <algorithm>

#include "absl/strings/str_cat.h"
#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

absl::StatusOr<PipelineSchedule> Interleaved(int32_t p, int32_t m, int32_t v) {
  if (m % p != 0) {
    return absl::InvalidArgumentError(absl::StrCat("interleaved-1f1b on ", p, " workers needs a multiple of ", p, " microbatches, not ", m,
                                                   ": the smallest that works is ", p, ", the next above ", m, " is ",
                                                   (m / p + 1) * static_cast<int64_t>(p)));
  }
  PipelineSchedule s = EmptySchedule("interleaved-1f1b", p, m, LoopPlacement(p, v));
  const int64_t steps = static_cast<int64_t>(m) * v, group = static_cast<int64_t>(p) * v;
  for (int32_t r = 0; r < p; ++r) {
    std::vector<PipelineOp>& order = s.orders[r];
    order.reserve(2 * static_cast<size_t>(steps));
    const auto step = [&](Pass pass, int64_t k) {
      const int32_t turn = static_cast<int32_t>(k % group / p);
      const int32_t chunk = pass == Pass::kForward ? turn : v - 1 - turn;
      order.push_back({pass, chunk * p + r, static_cast<int32_t>(k / group * p + k % p)});
    };
    const int64_t warm_up = std::min<int64_t>(2 * (p - 1 - r) + static_cast<int64_t>(v - 1) * p, steps);
    int64_t forward = 0, backward = 0;
    while (forward < warm_up) step(Pass::kForward, forward++);
    while (forward < steps) {
      step(Pass::kForward, forward++);
      step(Pass::kBackward, backward++);
    }
    while (backward < steps) step(Pass::kBackward, backward++);
  }
  return s;
}

}  // namespace weft
