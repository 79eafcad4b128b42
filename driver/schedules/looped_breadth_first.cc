#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

PipelineSchedule LoopedBreadthFirst(int32_t p, int32_t m, int32_t v) {
  PipelineSchedule s = EmptySchedule("looped-bfs", p, m, LoopPlacement(p, v));
  for (int32_t r = 0; r < p; ++r) {
    for (int32_t c = 0; c < v; ++c) {
      for (int32_t k = 0; k < m; ++k) s.orders[r].push_back({Pass::kForward, c * p + r, k});
    }
    for (int32_t c = v - 1; c >= 0; --c) {
      for (int32_t k = 0; k < m; ++k) s.orders[r].push_back({Pass::kBackward, c * p + r, k});
    }
  }
  return s;
}

}  // namespace weft
