#pragma once

// Ops of one worker that slow each other while they run: the part of the simulator behind CostModel::contention.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "driver/plan/verify_index.h"
#include "driver/simulate/cost_model.h"

namespace weft {

// Keeps for each running unit (an op, both ends of a rendezvous transfer, all members of a collective) how much of its work is left, in
// millionths of a nanosecond, and says anew when it ends whenever something that slows it starts or ends. A unit that two things slow is
// slowed by the larger factor. Whole numbers only; an end is rounded up to the next nanosecond.
class Slowdown {
 public:
  // InvalidArgument: more entries than kMax, or a factor that makes things faster.
  static absl::Status Check(const std::vector<Contention>& contention);
  static constexpr size_t kMax = 64;
  static constexpr int64_t kOne = 1'000'000;  // factor of what is not slowed

  struct End {
    Nanos at;
    int32_t unit;
    Nanos start;
    uint32_t version;
  };

  // Pre: Check is OK. Unit u has the ops unit_ops[unit_ops_at[u]] to unit_ops[unit_ops_at[u + 1] - 1]. All must outlive this.
  Slowdown(const PlanIndex& index, const std::vector<Contention>& contention, const std::vector<int32_t>& unit_ops,
           const std::vector<int32_t>& unit_ops_at);

  // At `now` unit u starts, with so much time to run if nothing slows it; or ends. Then changed() has the ends that hold from now on.
  void Start(int32_t unit, Nanos now, Nanos cost);
  void Finish(int32_t unit, Nanos now);
  const std::vector<End>& changed() const { return changed_; }

  // Whether an end that was given out still holds.
  bool Holds(int32_t unit, uint32_t version) const { return running_[unit].version == version; }

 private:
  struct Running {
    Nanos start = 0, last = 0;
    Nanos at = -1;      // when it ends as things are
    __int128 work = 0;  // left at `last`
    int64_t factor = kOne;
    uint32_t version = 0;
  };

  template <typename F>
  void ForEachOp(int32_t unit, F f) const {
    for (int32_t i = unit_ops_at_[unit]; i < unit_ops_at_[unit + 1]; ++i) f(unit_ops_[i]);
  }
  int64_t FactorOf(int32_t unit) const;
  void Retime(int32_t unit, Nanos now);
  void RetimeAround(int32_t unit, Nanos now);

  const PlanIndex& index_;
  const std::vector<int32_t>&unit_ops_, &unit_ops_at_;
  std::vector<int64_t> factors_;              // by entry
  std::vector<uint64_t> slowed_by_, slows_;   // by op: sets of entries
  std::vector<std::vector<int32_t>> active_;  // by worker and entry: running ops that slow
  std::vector<std::vector<int32_t>> ops_on_;  // by worker: running ops
  std::vector<Running> running_;              // by unit
  std::vector<End> changed_;
};

}  // namespace weft
