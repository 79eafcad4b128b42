#include "driver/schedules/polish.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr int32_t kFarthest = 8;     // places that a pass moves at once
constexpr int32_t kPatience = 200;   // refused moves after which the longest way is looked up anew: it is not the only one
constexpr double kWarmth = 0.002;    // part of the makespan by which a move may be worse at the start
constexpr double kSpanWeight = 0.3;  // of span against makespan while that can still become less

bool IsForward(const PipelineOp& op) { return op.pass == Pass::kForward || op.pass == Pass::kPair; }

int32_t BackStage(const PipelineOp& op) { return op.pass == Pass::kPair ? op.back_stage : op.stage; }
int32_t BackMicrobatch(const PipelineOp& op) { return op.pass == Pass::kPair ? op.back_microbatch : op.microbatch; }
// Whether it makes a gradient for the stage before.
bool IsBackward(const PipelineOp& op) { return op.pass != Pass::kForward && op.pass != Pass::kWeightGrad; }

// Whether `a` may not come after `b` on their worker: same stage, and either the same microbatch or the same kind of pass.
bool Ordered(const PipelineOp& a, const PipelineOp& b) {
  const auto part = [](const PipelineOp& op, int i, Pass* pass, int32_t* stage, int32_t* k) {
    if (op.pass != Pass::kPair) {
      if (i > 0) return false;
      *pass = op.pass, *stage = op.stage, *k = op.microbatch;
      return true;
    }
    *pass = i == 0 ? Pass::kForward : Pass::kBackward;
    *stage = i == 0 ? op.stage : op.back_stage;
    *k = i == 0 ? op.microbatch : op.back_microbatch;
    return true;
  };
  for (int i = 0; i < 2; ++i) {
    Pass pass_a, pass_b;
    int32_t stage_a, stage_b, k_a, k_b;
    if (!part(a, i, &pass_a, &stage_a, &k_a)) continue;
    for (int j = 0; j < 2; ++j) {
      if (!part(b, j, &pass_b, &stage_b, &k_b) || stage_a != stage_b) continue;
      const bool back_a = pass_a == Pass::kInputGrad || pass_a == Pass::kBackward,
                 back_b = pass_b == Pass::kInputGrad || pass_b == Pass::kBackward;
      if (k_a == k_b || pass_a == pass_b || (back_a && back_b)) return true;
    }
  }
  return false;
}

}  // namespace

Polisher::Polisher(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs,
                   const MemoryUse& use, int64_t cap)
    : worker_of_(worker_of),
      stages_(static_cast<int32_t>(worker_of.size())),
      microbatches_(microbatches),
      costs_(costs),
      use_(use),
      cap_(cap),
      evaluator_(worker_of, workers, microbatches, costs),
      forward_at_(worker_of.size() * microbatches),
      backward_at_(worker_of.size() * microbatches) {}

uint64_t Polisher::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

void Polisher::LocatePasses(const Lists& lists) {
  for (const std::vector<PipelineOp>& list : lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (IsForward(list[i])) forward_at_[Cell(list[i].stage, list[i].microbatch)] = static_cast<int32_t>(i);
      if (IsBackward(list[i])) backward_at_[Cell(BackStage(list[i]), BackMicrobatch(list[i]))] = static_cast<int32_t>(i);
    }
  }
}

// Whether what the pass at `place` makes is at `to_worker` at just that time.
bool Polisher::EndsAt(const Lists& lists, const Place& place, Ticks at, int32_t to_worker) const {
  const Ticks end = evaluator_.start()[place.worker][place.index] + costs_.Of(lists[place.worker][place.index]);
  return end + (place.worker == to_worker ? 0 : costs_.hop) == at;
}

bool Polisher::Before(const Lists& lists, Place* place) {
  const int32_t w = place->worker;
  const PipelineOp& op = lists[w][place->index];
  const Ticks start = evaluator_.start()[w][place->index];
  const Place previous{w, place->index - 1};
  const bool busy = previous.index >= 0 && EndsAt(lists, previous, start, w);
  if (busy && Random() % 2 == 0) {
    *place = previous;
    return true;
  }
  if (IsForward(op) && op.stage > 0) {
    const Place from{worker_of_[op.stage - 1], forward_at_[Cell(op.stage - 1, op.microbatch)]};
    if (EndsAt(lists, from, start, w)) {
      *place = from;
      return true;
    }
  }
  const int32_t back = BackStage(op);
  if (IsBackward(op) && back + 1 < stages_) {
    const Place from{worker_of_[back + 1], backward_at_[Cell(back + 1, BackMicrobatch(op))]};
    if (EndsAt(lists, from, start, w)) {
      *place = from;
      return true;
    }
  }
  if (busy) *place = previous;
  return busy;
}

void Polisher::FindCritical(const Lists& lists) {
  LocatePasses(lists);
  // Mostly the way to the makespan, now and then that of the worker with the largest span.
  const bool by_span = Random() % 4 == 0;
  int32_t last = 0;
  const auto length = [&](int32_t w) { return evaluator_.last()[w] - (by_span ? evaluator_.first()[w] : 0); };
  for (int32_t w = 1; w < static_cast<int32_t>(lists.size()); ++w) {
    if (length(w) > length(last)) last = w;
  }
  critical_.clear();
  Place place{last, static_cast<int32_t>(lists[last].size()) - 1};
  // Passes that take no time could lead round in a circle of equal times; no way has more steps than there are passes.
  const size_t most = 4 * forward_at_.size();
  do {
    critical_.push_back(place);
  } while (critical_.size() < most && Before(lists, &place));
}

bool Polisher::KeepsOrder(const std::vector<PipelineOp>& list, int32_t from, int32_t to) const {
  const int32_t step = from < to ? 1 : -1;
  for (int32_t i = from + step; i != to + step; i += step) {
    if (Ordered(list[from], list[i])) return false;
  }
  return true;
}

Score Polisher::Improve(Lists* lists, const Score& target, int64_t budget) {
  Lists current = *lists;
  evaluator_.Run(current);
  Score best = Current(), score = best;
  int64_t passes = 0;
  for (const auto& list : current) passes += static_cast<int64_t>(list.size());
  const double warmth = kWarmth * static_cast<double>(best.makespan);
  FindCritical(current);
  std::vector<PipelineOp> saved;
  int32_t refused = 0;
  for (int64_t left = budget; left > 0 && best > target;) {
    const Place place = critical_[Random() % critical_.size()];
    std::vector<PipelineOp>& list = current[place.worker];
    const int32_t distance = 1 + static_cast<int32_t>(Random() % kFarthest);
    const int32_t to = Random() % 2 == 0 ? place.index + distance : place.index - distance;
    left -= 1 + distance;
    if (to >= 0 && to < static_cast<int32_t>(list.size()) && KeepsOrder(list, place.index, to)) {
      saved = list;
      const auto begin = list.begin();
      if (to > place.index) std::rotate(begin + place.index, begin + place.index + 1, begin + to + 1);
      if (to < place.index) std::rotate(begin + to, begin + place.index, begin + place.index + 1);
      left -= static_cast<int64_t>(list.size());
      bool keep = PeakOf(list, use_) <= cap_;
      if (keep) {
        left -= passes;
        keep = evaluator_.Run(current);
      }
      if (keep) {
        const Score now = Current();
        const double weight = best.makespan <= target.makespan ? 1 : kSpanWeight;
        const double worse = static_cast<double>(now.makespan - score.makespan) + weight * static_cast<double>(now.span - score.span);
        const double allowed = warmth * static_cast<double>(left) / static_cast<double>(budget);
        // Mostly only what is no worse; at first also a little worse, to get over a hill.
        keep = worse <= 0 || (allowed > 0 && std::exp(-worse / allowed) > static_cast<double>(Random() % 1000000) * 1e-6);
        if (keep) {
          score = now;
          refused = 0;
          if (score < best) {
            best = score;
            *lists = current;
          }
          FindCritical(current);
          continue;
        }
      }
      list = saved;
    }
    if (++refused % kPatience == 0) {
      left -= passes;
      evaluator_.Run(current);
      FindCritical(current);
    }
  }
  return best;
}

}  // namespace weft
