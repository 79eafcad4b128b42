#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/decimal.h"
#include "driver/schedules/schedule.h"

namespace weft {

// Bytes of a whole worker's share of one microbatch: F adds `forward`, I adds -(forward + weight), W adds `weight`; B gives all back at its
// end, a pair takes at its start and gives at its end.
struct MemorySpec {
  Decimal forward;
  Decimal weight;  // <= 0
};

// "f=201216,w=-73728", with units such as MiB. InvalidArgument names the key.
absl::StatusOr<MemorySpec> ParseMemory(const std::string& text);

// The same for one stage in whole numbers.
struct MemoryUse {
  int64_t forward = 1;
  int64_t weight = -1;
  double per_unit = 1;  // so many are one byte, or one whole worker's microbatch

  int64_t Input() const { return -(forward + weight); }
};

// Activations in microbatches of a whole worker share, held from the start of F to the end of W or B.
MemoryUse ActivationUse(int32_t chunks);
// InvalidArgument: bytes beyond what can be counted.
absl::StatusOr<MemoryUse> ResolveMemory(const MemorySpec& spec, int32_t chunks, int64_t microbatches);

inline constexpr int64_t kNoCap = std::numeric_limits<int64_t>::max();
// The largest whole number that is not above `limit` (bytes or microbatches).
int64_t CapOf(const MemoryUse& use, const Decimal& limit);

// The most that the list ever holds: a worker runs its list in order, so that the passes' times do not matter.
int64_t PeakOf(const std::vector<PipelineOp>& order, const MemoryUse& use);

// Less than this no order can do with: one microbatch after the other, on a worker with so many stages.
int64_t SmallestPeak(const MemoryUse& use, int32_t chunks);

}  // namespace weft
