#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/decimal.h"
#include "driver/schedules/schedule.h"

namespace weft {

// What the passes of a pipeline take, as written. One value stands for a whole worker's share of the model, of which a stage of v has a
// v-th part; several are the stages' own, one each.
struct CostSpec {
  std::vector<Decimal> forward = {{1, 0}};
  std::vector<Decimal> input = {{1, 0}};
  std::vector<Decimal> weight = {{1, 0}};
  Decimal pair_factor = {1, 0};  // F and B at once take so many times F + B
  Decimal hop;                   // from a worker to another
  // Whether any value had a unit of time. Without one, times are bare numbers (and seconds where time really passes).
  bool has_unit = false;
};

// "F=10,I=12ms,W=7,FB=0.8": F, I and W must be there (F alone for a schedule that has only forwards), FB need not. A value is a time of at
// least 0, or one for each stage with ':' between them. InvalidArgument names the key.
absl::StatusOr<CostSpec> ParseCosts(const std::string& text, bool forward_only);

using Ticks = int64_t;

// The same in whole ticks: exact, and small enough that no sum of them overflows.
struct PipelineCosts {
  std::vector<Ticks> forward, input, weight;  // by stage
  Ticks hop = 0;
  int64_t pair_numerator = 1, pair_denominator = 1;
  // So many ticks are one unit (or second).
  double ticks_per_unit = 1;
  bool exact = true;  // false: a value had more digits than fit, and was rounded

  Ticks Pair(int32_t stage, int32_t back_stage) const {
    return (forward[stage] + input[back_stage] + weight[back_stage]) / pair_denominator * pair_numerator;
  }
  Ticks Of(const PipelineOp& op) const;
  double ToUnits(Ticks t) const { return static_cast<double>(t) / ticks_per_unit; }
  // Work of all passes of all stages for one microbatch; of the forwards alone.
  Ticks PerMicrobatch(bool forward_only) const;
};

// InvalidArgument: a list that has neither one value nor one for each stage, no work at all, or times beyond what can be counted.
absl::StatusOr<PipelineCosts> ResolveCosts(const CostSpec& spec, int32_t workers, int32_t stages, int32_t microbatches);

}  // namespace weft
