#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

PipelineSchedule ForwardOnly(int32_t p, int32_t m) {
  PipelineSchedule s = EmptySchedule("forward-only", p, m, LoopPlacement(p, 1));
  for (int32_t r = 0; r < p; ++r) {
    for (int32_t k = 0; k < m; ++k) s.orders[r].push_back({Pass::kForward, r, k});
  }
  return s;
}

}  // namespace weft
