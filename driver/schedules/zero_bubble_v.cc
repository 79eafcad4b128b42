#include <algorithm>

#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

PipelineSchedule ZeroBubbleV(int32_t p, int32_t m) {
  PipelineSchedule s = EmptySchedule("zbv", p, m, VPlacement(p));
  const int32_t whole = std::max(m, 2 * p - 1);
  for (int32_t r = 0; r < p; ++r) {
    const int32_t a = r, z = 2 * p - 1 - r;
    std::vector<PipelineOp> order;
    order.reserve(6 * static_cast<size_t>(whole));
    OrderWriter out(2 * p, &order);
    for (int32_t i = 0; i < 2 * (p - r) - 1; ++i) out.F(a);
    for (int32_t i = 0; i < r; ++i) out.F(z), out.F(a);
    for (int32_t i = 0; i < p - r; ++i) out.F(z), out.I(z), out.W(z);
    while (out.forwards(z) < whole) {
      if (out.forwards(a) < whole) out.F(a);
      out.I(a), out.W(a);
      out.F(z), out.I(z), out.W(z);
    }
    for (int32_t i = 0; i < r; ++i) out.I(a), out.I(z);
    for (int32_t i = 0; i < p - r; ++i) out.I(a), out.W(a);
    while (out.weights(z) < whole) out.W(z);
    while (out.weights(a) < whole) out.W(a);
    // Fewer microbatches than fill the pattern: the same without those that are not there.
    if (whole > m) std::erase_if(order, [m](const PipelineOp& op) { return op.microbatch >= m; });
    s.orders[r] = std::move(order);
  }
  return s;
}

}  // namespace weft
