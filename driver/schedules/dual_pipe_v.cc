#include <deque>

#include "absl/strings/str_cat.h"
#include "driver/schedules/fixed.h"
#include "driver/schedules/order_writer.h"

namespace weft {

absl::StatusOr<PipelineSchedule> DualPipeV(int32_t p, int32_t m) {
  if (m < 2 * static_cast<int64_t>(p)) {
    return absl::InvalidArgumentError(absl::StrCat("dualpipe-v on ", p, " workers needs at least ", 2 * static_cast<int64_t>(p),
                                                   " microbatches, not ", m, ": the smallest that works is ", 2 * static_cast<int64_t>(p)));
  }
  PipelineSchedule s = EmptySchedule("dualpipe-v", p, m, VPlacement(p));
  for (int32_t r = 0; r < p; ++r) {
    const int32_t a = r, z = 2 * p - 1 - r;
    OrderWriter out(2 * p, &s.orders[r]);
    std::deque<int32_t> postponed;  // stages of I whose W is still to come, across both
    const auto input = [&](int32_t stage) {
      out.I(stage);
      postponed.push_back(stage);
    };
    const auto weight = [&] {
      out.W(postponed.front());
      postponed.pop_front();
    };
    for (int32_t i = 0; i < 2 * (p - r - 1); ++i) out.F(a);
    for (int32_t i = 0; i < r + 1; ++i) out.F(a), out.F(z);
    for (int32_t i = 0; i < p - r - 1; ++i) input(z), weight(), out.F(z);
    for (int32_t i = 0; i < m - 2 * p + r + 1; ++i) {
      if (i == 0 && r == p - 1) {
        out.F(a), out.B(z);  // the very first pair has nothing to overlap with: B needs what the F before it made
      } else {
        out.FB(a, z);
      }
      out.FB(z, a);
    }
    for (int32_t i = 0; i < p - r - 1; ++i) out.B(z), out.FB(z, a);
    for (int32_t i = 0; i < 2 * (r + 1); ++i) {
      const int32_t stage = i % 2 == 0 ? z : a;
      if (i < r + 1) {
        out.B(stage);
      } else {
        input(stage);
      }
    }
    for (int32_t i = 0; i < p - r - 1; ++i) weight(), input(a);
    for (int32_t i = 0; i < r + 1; ++i) weight();
  }
  return s;
}

}  // namespace weft
