#pragma once

// When everything happens, exactly: each worker runs its list in order, each pass as soon as what it needs is there.
//   F(s,k) after F(s-1,k), I(s,k) after F(s,k) and after I(s+1,k) - after the whole of it where stage s+1 runs B or a pair -, W(s,k) after
//   I(s,k); a value takes the hop between two workers and no time within one. A hop occupies no worker.

#include <vector>

#include "absl/status/statusor.h"
#include "driver/schedules/costs.h"
#include "driver/schedules/schedule.h"

namespace weft {

struct PipelineTimes {
  std::vector<std::vector<Ticks>> start;  // as PipelineSchedule::orders
  std::vector<Ticks> first, last;         // by worker: start of its first, end of its last pass
  Ticks makespan = 0;                     // last end; the first start is 0
  Ticks span = 0;                         // the largest last - first
};

// Linear. Pre: CheckSchedule. FailedPrecondition: the orders wait for each other in a circle; names the workers and passes on it.
absl::StatusOr<PipelineTimes> Evaluate(const PipelineSchedule& schedule, const PipelineCosts& costs);

// The same again and again on lists of the same pipeline, for a search: no allocation after the first run.
class Evaluator {
 public:
  Evaluator(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs);

  // False when the lists wait for each other. The results below are of the last run that returned true.
  bool Run(const std::vector<std::vector<PipelineOp>>& orders);

  Ticks makespan() const { return makespan_; }
  Ticks span() const { return span_; }
  const std::vector<Ticks>& first() const { return first_; }
  const std::vector<Ticks>& last() const { return last_; }
  // By worker and place in its list.
  const std::vector<std::vector<Ticks>>& start() const { return start_; }
  // How far each worker came, after false.
  const std::vector<size_t>& at() const { return at_; }

 private:
  void Advance(int32_t worker, const std::vector<std::vector<PipelineOp>>& orders);
  // The time from which the pass may start, or -1 while something that it needs is not done.
  Ticks Ready(const PipelineOp& op) const;
  Ticks ReadyForward(int32_t stage, int32_t microbatch) const;
  Ticks ReadyBackward(int32_t stage, int32_t microbatch) const;
  void Done(int32_t worker, const PipelineOp& op, Ticks end);
  void Wake(int32_t worker, int32_t stage);
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * microbatches_ + microbatch; }

  const std::vector<int32_t> worker_of_;
  const int32_t stages_, microbatches_;
  const PipelineCosts& costs_;
  std::vector<Ticks> forward_, backward_;  // by stage and microbatch: end, -1 until then
  std::vector<std::vector<Ticks>> start_;
  std::vector<size_t> at_;
  std::vector<Ticks> first_, last_;
  std::vector<int32_t> stack_;
  std::vector<char> on_stack_;
  Ticks makespan_ = 0, span_ = 0;
};

}  // namespace weft
