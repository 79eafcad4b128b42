#include "common/trace/axis.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

TimeAxis MakeTimeAxis(Nanos span, int wanted) {
  Nanos step = 1;
  for (Nanos power = 1; span / step > wanted; power *= 10) {
    for (const Nanos factor : {1, 2, 5}) {
      step = power * factor;
      if (span / step <= wanted) break;
    }
  }
  TimeAxis axis;
  Nanos unit = 1;
  axis.unit = "ns";
  if (span >= 2 * kNanosPerSecond) {
    unit = kNanosPerSecond;
    axis.unit = "s";
  } else if (span >= 2'000'000) {
    unit = 1'000'000;
    axis.unit = "ms";
  } else if (span >= 2'000) {
    unit = 1'000;
    axis.unit = "µs";
  }
  for (Nanos at = 0; at <= span; at += step) {
    axis.ticks.push_back({at, absl::StrCat(static_cast<double>(at) / static_cast<double>(unit))});
  }
  return axis;
}

}  // namespace weft
