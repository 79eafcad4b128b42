#pragma once

// Local search on finished lists: moves single passes that stand on the longest way to the end.

#include <cstdint>
#include <utility>
#include <vector>

#include "driver/schedules/costs.h"
#include "driver/schedules/evaluate.h"
#include "driver/schedules/memory.h"
#include "driver/schedules/schedule.h"

namespace weft {

// What a schedule is judged by: makespan, then span.
struct Score {
  Ticks makespan = 0;
  Ticks span = 0;
  auto operator<=>(const Score&) const = default;
};

class Polisher {
 public:
  // All must outlive the polisher.
  Polisher(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs, const MemoryUse& use,
           int64_t cap);

  // Changes the schedule's lists to the best found, never to worse ones, and returns their score. Stops when `target` is reached, or when
  // about `budget` passes have been timed. Deterministic. Pre: the lists run to their end within the cap.
  Score Improve(std::vector<std::vector<PipelineOp>>* lists, const Score& target, int64_t budget);

 private:
  using Lists = std::vector<std::vector<PipelineOp>>;
  struct Place {
    int32_t worker;
    int32_t index;
  };

  uint64_t Random();
  Score Current() const { return {evaluator_.makespan(), evaluator_.span()}; }
  // Fills critical_ from the last run of `evaluator_` on `lists`.
  void FindCritical(const Lists& lists);
  void LocatePasses(const Lists& lists);
  // The pass on the critical way before this one, if any.
  bool Before(const Lists& lists, Place* place);
  bool EndsAt(const Lists& lists, const Place& place, Ticks at, int32_t to_worker) const;
  bool KeepsOrder(const std::vector<PipelineOp>& list, int32_t from, int32_t to) const;
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * microbatches_ + microbatch; }

  const std::vector<int32_t>& worker_of_;
  const int32_t stages_, microbatches_;
  const PipelineCosts& costs_;
  const MemoryUse& use_;
  const int64_t cap_;
  Evaluator evaluator_;
  uint64_t random_ = 0x9e3779b97f4a7c15;
  std::vector<int32_t> forward_at_, backward_at_;  // by stage and microbatch: place in its worker's list
  std::vector<Place> critical_;
};

}  // namespace weft
