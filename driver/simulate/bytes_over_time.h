#pragma once

// How many bytes the values of a simulated run take on each worker, at each time.

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "driver/simulate/simulator.h"

namespace weft {

struct BytesPoint {
  Nanos at = 0;
  uint64_t bytes = 0;  // from then on
  bool operator==(const BytesPoint&) const = default;
};

struct WorkerBytes {
  std::vector<BytesPoint> curve;  // by time, beginning at 0; one point a time, only where the number changes
  uint64_t peak = 0;
  Nanos peak_at = 0;  // when it is first reached
};

// By worker, from the events of a recorded run. A value takes its bytes where its buffer lies (BufferBytes), from the start of the op that
// writes it to the end of the last op that reads it; what a WRITE puts into memory that both ends share, to the end of the last that reads it at
// the other end, or, for the client, to its own end. Never more than the plan's peak_bytes, which count all buffers of a value, in
// use or not. Pre: `result` is of `plan`; events of other ops are left out. O(n log n) in the events.
std::vector<WorkerBytes> BytesOverTime(const Plan& plan, const SimResult& result);

}  // namespace weft
