#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"

namespace weft {

struct AxisTick {
  Nanos at = 0;
  std::string label;  // without unit
};

// Round marks over [0, span] for a time axis.
struct TimeAxis {
  std::string unit;  // "ns", "µs", "ms", "s"
  std::vector<AxisTick> ticks;
};

// About `wanted` marks at steps of 1, 2 or 5 times a power of ten. Pre: span > 0, wanted > 0.
TimeAxis MakeTimeAxis(Nanos span, int wanted);

}  // namespace weft
