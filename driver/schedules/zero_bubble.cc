#include <algorithm>

#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {
namespace {

// Worker r: factor * (p-1-r) forwards, then F, I and W in turn, W of the microbatch factor * r before that of I.
PipelineSchedule Postponed(const char* name, int32_t p, int32_t m, int64_t factor) {
  PipelineSchedule s = EmptySchedule(name, p, m, LoopPlacement(p, 1));
  for (int32_t r = 0; r < p; ++r) {
    std::vector<PipelineOp>& order = s.orders[r];
    order.reserve(3 * static_cast<size_t>(m));
    const int32_t warm_up = static_cast<int32_t>(std::min<int64_t>(factor * (p - 1 - r), m));
    int32_t forward = 0, weight = 0;
    while (forward < warm_up) order.push_back({Pass::kForward, r, forward++});
    for (int32_t k = 0; k < m; ++k) {
      if (forward < m) order.push_back({Pass::kForward, r, forward++});
      order.push_back({Pass::kInputGrad, r, k});
      if (k >= factor * r) order.push_back({Pass::kWeightGrad, r, weight++});
    }
    while (weight < m) order.push_back({Pass::kWeightGrad, r, weight++});
  }
  return s;
}

}  // namespace

PipelineSchedule ZeroBubbleH1(int32_t p, int32_t m) { return Postponed("zb-h1", p, m, 1); }

PipelineSchedule ZeroBubbleH2(int32_t p, int32_t m) { return Postponed("zb-h2", p, m, 2); }

}  // namespace weft
