#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "driver/schedules/schedule.h"

namespace weft {

// Writes a worker's list; each pass of a stage takes the microbatches in order.
class OrderWriter {
 public:
  OrderWriter(int32_t stages, std::vector<PipelineOp>* to) : next_(stages), to_(to) {}

  void F(int32_t stage) { Add(Pass::kForward, stage, next_[stage].forward++); }
  void I(int32_t stage) {
    next_[stage].postponed.push_back(next_[stage].backward);
    Add(Pass::kInputGrad, stage, next_[stage].backward++);
  }
  // Of the oldest I of any stage that has none yet.
  void W(int32_t stage) { Add(Pass::kWeightGrad, stage, next_[stage].postponed[next_[stage].weights++]); }
  void B(int32_t stage) { Add(Pass::kBackward, stage, next_[stage].backward++); }
  void FB(int32_t stage, int32_t back_stage) {
    to_->push_back({Pass::kPair, stage, next_[stage].forward++, back_stage, next_[back_stage].backward++});
  }

  int32_t forwards(int32_t stage) const { return next_[stage].forward; }
  int32_t backwards(int32_t stage) const { return next_[stage].backward; }
  int32_t weights(int32_t stage) const { return static_cast<int32_t>(next_[stage].weights); }

 private:
  struct Next {
    int32_t forward = 0, backward = 0;
    std::vector<int32_t> postponed;  // microbatches of I
    size_t weights = 0;
  };

  void Add(Pass pass, int32_t stage, int32_t microbatch) { to_->push_back({pass, stage, microbatch}); }

  std::vector<Next> next_;
  std::vector<PipelineOp>* const to_;
};

inline PipelineSchedule EmptySchedule(std::string name, int32_t p, int32_t m, std::vector<int32_t> worker_of) {
  PipelineSchedule s;
  s.name = std::move(name);
  s.workers = p;
  s.microbatches = m;
  s.worker_of = std::move(worker_of);
  s.orders.resize(p);
  return s;
}

}  // namespace weft
