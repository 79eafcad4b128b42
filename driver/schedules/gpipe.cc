#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

PipelineSchedule GPipe(int32_t p, int32_t m) {
  PipelineSchedule s = EmptySchedule("gpipe", p, m, LoopPlacement(p, 1));
  for (int32_t r = 0; r < p; ++r) {
    for (int32_t k = 0; k < m; ++k) s.orders[r].push_back({Pass::kForward, r, k});
    for (int32_t k = 0; k < m; ++k) s.orders[r].push_back({Pass::kBackward, r, k});
  }
  return s;
}

}  // namespace weft
