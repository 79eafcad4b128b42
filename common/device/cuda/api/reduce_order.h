#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

// The order in which KernelsApi::Reduce combines the `size` elements of each of its outputs. It depends on these two numbers alone, so results
// are the same on every GPU, stream and run.
//
// Up to kReduceInOrder elements: one after the other, as on the CPU. Beyond: they are cut into `parts` of consecutive elements, part p from
// size * p / parts on. In a part, lane t of kReduceLanes combines elements t, t + kReduceLanes, ... one after the other, then the lanes are
// folded. The parts' results are combined alike, by kReduceFinalLanes lanes. Folding n values: for half = kLanes / 2, kLanes / 4, ..., 1, value l
// is combined with value l + half, where there is one, for all l < half.
constexpr int64_t kReduceInOrder = 4096;
constexpr int kReduceLanes = 128;
constexpr int kReduceFinalLanes = 32;
constexpr int64_t kReduceMaxParts = 1024;
// At most so many parts' results of all outputs together.
constexpr int64_t kReduceMaxPartials = int64_t{1} << 19;

constexpr int64_t ReduceParts(int64_t outputs, int64_t size) {
  const int64_t parts = std::min(kReduceMaxParts, size / kReduceInOrder);
  return std::max<int64_t>(1, std::min(parts, kReduceMaxPartials / std::max<int64_t>(1, outputs)));
}

}  // namespace weft
