#include <algorithm>

#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {
namespace {

PipelineSchedule WithWarmUp(const char* name, int32_t p, int32_t m, int64_t factor) {
  PipelineSchedule s = EmptySchedule(name, p, m, LoopPlacement(p, 1));
  for (int32_t r = 0; r < p; ++r) {
    std::vector<PipelineOp>& order = s.orders[r];
    order.reserve(2 * static_cast<size_t>(m));
    const int32_t warm_up = static_cast<int32_t>(std::min<int64_t>(factor * (p - 1 - r), m));
    int32_t forward = 0, backward = 0;
    while (forward < warm_up) order.push_back({Pass::kForward, r, forward++});
    while (forward < m) {
      order.push_back({Pass::kForward, r, forward++});
      order.push_back({Pass::kBackward, r, backward++});
    }
    while (backward < m) order.push_back({Pass::kBackward, r, backward++});
  }
  return s;
}

}  // namespace

PipelineSchedule OneForwardOneBackward(int32_t p, int32_t m) { return WithWarmUp("1f1b", p, m, 1); }

PipelineSchedule EagerOneForwardOneBackward(int32_t p, int32_t m) { return WithWarmUp("eager-1f1b", p, m, 2); }

}  // namespace weft
