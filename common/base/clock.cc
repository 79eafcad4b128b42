#include "common/base/clock.h"

#include <time.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

class RealClock : public Clock {
 public:
  Nanos Now() const override {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<Nanos>(ts.tv_sec) * kNanosPerSecond + ts.tv_nsec;
  }
};

}  // namespace

Nanos FromSeconds(double s) {
  if (std::isnan(s)) return 0;
  const double n = std::round(s * 1e9);
  if (n >= 9.2e18) return std::numeric_limits<Nanos>::max();
  if (n <= -9.2e18) return std::numeric_limits<Nanos>::min();
  return static_cast<Nanos>(n);
}

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace weft
