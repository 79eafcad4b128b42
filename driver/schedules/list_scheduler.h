#pragma once

// Makes a schedule by running the pipeline: whenever a worker is free it takes, of what could start, what the rules prefer. What comes out
// always runs to its end and stays within the cap. One run costs O(n log p); `auto` makes many with different rules.

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "driver/schedules/costs.h"
#include "driver/schedules/memory.h"
#include "driver/schedules/schedule.h"

namespace weft {

struct ListRules {
  // By stage: most microbatches whose F is done and whose I is not. At least 1.
  std::vector<int32_t> window;
  // An F or W may hold up a pass that is known to become possible by so many quarters of its own time.
  int32_t forward_late = 0;
  int32_t weight_late = 0;
  bool forward_first = false;  // F before I where both could start
  bool deep_first = true;      // of several stages' F that of the later stage, otherwise of the earlier
  bool pairs = false;          // F and B at once where both could start

  bool operator==(const ListRules&) const = default;
};

class ListScheduler {
 public:
  // `use` and `cap` hold for every worker; cap >= SmallestPeak. All must outlive the scheduler.
  ListScheduler(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs,
                const MemoryUse& use, int64_t cap);

  // The lists, valid until the next run.
  const std::vector<std::vector<PipelineOp>>& Run(const ListRules& rules);
  // When the last run ended. Run strictly in order its lists may end earlier, since a worker that waited for one pass may have taken
  // another.
  Ticks end() const;

 private:
  struct Stage {
    int32_t forwards = 0, inputs = 0;  // done or begun
    std::vector<int32_t> pending;      // microbatches of I, in order; those before `weights` have their W
    size_t weights = 0;
    bool HasWeight() const { return weights < pending.size(); }
  };
  struct Worker {
    std::vector<int32_t> stages;
    Ticks busy_until = 0;
    Ticks wake = -1;  // when it looks next; -1: when something arrives
    int64_t held = 0;
  };
  // What a worker could do now, and the earliest that it knows of later.
  struct Outlook {
    int32_t forward = -1, input = -1, weight = -1;  // stages
    Ticks next_forward = kNever, next_input = kNever;
    bool lacks_memory = false;  // an F could start but for the cap
  };
  enum class Choice { kWait, kForward, kInput, kWeight, kPair };

  static constexpr Ticks kNever = INT64_MAX;

  void Reset();
  void Look(int32_t w, Ticks now);
  Outlook Survey(const Worker& worker, Ticks now) const;
  Choice Choose(const Worker& worker, const Outlook& o, Ticks now) const;
  bool Fits(const Worker& worker, int32_t stage) const;
  void Begin(int32_t w, const PipelineOp& op, Ticks now);
  void ForwardEnds(int32_t w, int32_t stage, int32_t microbatch, Ticks end);
  void InputEnds(int32_t w, int32_t stage, int32_t microbatch, Ticks end);
  void Wake(int32_t w, Ticks at);
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * microbatches_ + microbatch; }

  const std::vector<int32_t>& worker_of_;
  const int32_t stage_count_, microbatches_;
  const PipelineCosts& costs_;
  const MemoryUse& use_;
  const int64_t cap_;
  const int64_t input_growth_;  // what an I adds at most

  const ListRules* rules_ = nullptr;
  std::vector<Stage> stages_;
  std::vector<Worker> workers_;
  std::vector<Ticks> forward_ready_, input_ready_;  // by stage and microbatch; kNever while not known
  std::priority_queue<std::pair<Ticks, int32_t>, std::vector<std::pair<Ticks, int32_t>>, std::greater<>> wakes_;
  std::vector<std::vector<PipelineOp>> lists_;
};

}  // namespace weft
