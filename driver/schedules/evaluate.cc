#include "driver/schedules/evaluate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

Evaluator::Evaluator(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs)
    : worker_of_(worker_of),
      stages_(static_cast<int32_t>(worker_of.size())),
      microbatches_(microbatches),
      costs_(costs),
      forward_(worker_of.size() * microbatches),
      backward_(worker_of.size() * microbatches),
      start_(workers),
      at_(workers),
      first_(workers),
      last_(workers),
      on_stack_(workers) {}

Ticks Evaluator::ReadyForward(int32_t stage, int32_t microbatch) const {
  if (stage == 0) return 0;
  const Ticks end = forward_[Cell(stage - 1, microbatch)];
  if (end < 0) return -1;
  return worker_of_[stage - 1] == worker_of_[stage] ? end : end + costs_.hop;
}

Ticks Evaluator::ReadyBackward(int32_t stage, int32_t microbatch) const {
  const Ticks forward = forward_[Cell(stage, microbatch)];
  if (forward < 0 || stage + 1 == stages_) return forward;
  const Ticks end = backward_[Cell(stage + 1, microbatch)];
  if (end < 0) return -1;
  return std::max(forward, worker_of_[stage + 1] == worker_of_[stage] ? end : end + costs_.hop);
}

Ticks Evaluator::Ready(const PipelineOp& op) const {
  switch (op.pass) {
    case Pass::kForward:
      return ReadyForward(op.stage, op.microbatch);
    case Pass::kInputGrad:
    case Pass::kBackward:
      return ReadyBackward(op.stage, op.microbatch);
    case Pass::kWeightGrad:
      return backward_[Cell(op.stage, op.microbatch)];
    case Pass::kPair: {
      const Ticks f = ReadyForward(op.stage, op.microbatch), b = ReadyBackward(op.back_stage, op.back_microbatch);
      return f < 0 || b < 0 ? -1 : std::max(f, b);
    }
  }
  return -1;
}

void Evaluator::Wake(int32_t worker, int32_t stage) {
  if (stage < 0 || stage >= stages_) return;
  const int32_t w = worker_of_[stage];
  if (w == worker || on_stack_[w]) return;
  on_stack_[w] = true;
  stack_.push_back(w);
}

void Evaluator::Done(int32_t worker, const PipelineOp& op, Ticks end) {
  if (op.pass == Pass::kForward || op.pass == Pass::kPair) {
    forward_[Cell(op.stage, op.microbatch)] = end;
    Wake(worker, op.stage + 1);
  }
  if (op.pass == Pass::kInputGrad || op.pass == Pass::kBackward) {
    backward_[Cell(op.stage, op.microbatch)] = end;
    Wake(worker, op.stage - 1);
  }
  if (op.pass == Pass::kPair) {
    backward_[Cell(op.back_stage, op.back_microbatch)] = end;
    Wake(worker, op.back_stage - 1);
  }
}

void Evaluator::Advance(int32_t worker, const std::vector<std::vector<PipelineOp>>& orders) {
  const std::vector<PipelineOp>& order = orders[worker];
  size_t& at = at_[worker];
  Ticks free = last_[worker];
  for (; at < order.size(); ++at) {
    const Ticks ready = Ready(order[at]);
    if (ready < 0) break;
    const Ticks start = std::max(free, ready);
    free = start + costs_.Of(order[at]);
    start_[worker][at] = start;
    Done(worker, order[at], free);
  }
  last_[worker] = free;
}

bool Evaluator::Run(const std::vector<std::vector<PipelineOp>>& orders) {
  std::fill(forward_.begin(), forward_.end(), -1);
  std::fill(backward_.begin(), backward_.end(), -1);
  std::fill(at_.begin(), at_.end(), 0);
  std::fill(last_.begin(), last_.end(), 0);
  const int32_t workers = static_cast<int32_t>(orders.size());
  for (int32_t w = workers - 1; w >= 0; --w) {
    start_[w].resize(orders[w].size());
    stack_.push_back(w);
    on_stack_[w] = true;
  }
  while (!stack_.empty()) {
    const int32_t w = stack_.back();
    stack_.pop_back();
    on_stack_[w] = false;
    Advance(w, orders);
  }
  makespan_ = span_ = 0;
  for (int32_t w = 0; w < workers; ++w) {
    if (at_[w] < orders[w].size()) return false;
    first_[w] = orders[w].empty() ? 0 : start_[w][0];
    makespan_ = std::max(makespan_, last_[w]);
    span_ = std::max(span_, last_[w] - first_[w]);
  }
  return true;
}

namespace {

// What a pass that cannot start lacks, and which worker has it.
struct Lack {
  std::string what;
  int32_t worker;
};

class Circle {
 public:
  Circle(const PipelineSchedule& schedule, const Evaluator& evaluator) : s_(schedule), at_(evaluator.at()) {
    done_forward_.assign(static_cast<size_t>(s_.stages()) * s_.microbatches, false);
    done_backward_ = done_forward_;
    for (int32_t w = 0; w < s_.workers; ++w) {
      for (size_t i = 0; i < at_[w]; ++i) Mark(s_.orders[w][i]);
    }
  }

  absl::Status Explain() const {
    // From any worker that is stuck, whom it waits for; after as many steps as there are workers one is on the circle.
    int32_t w = 0;
    while (at_[w] == s_.orders[w].size()) ++w;
    for (int32_t i = 0; i < s_.workers; ++i) w = LackOf(w).worker;
    std::string text = "the orders wait for each other in a circle: ";
    const int32_t start = w;
    int shown = 0;
    do {
      const Lack lack = LackOf(w);
      if (++shown <= 8) {
        absl::StrAppend(&text, shown > 1 ? "; " : "", "w", w, " is at ", PassName(s_, s_.orders[w][at_[w]]), " and waits for ", lack.what);
      }
      w = lack.worker;
    } while (w != start);
    if (shown > 8) absl::StrAppend(&text, "; and ", shown - 8, " more workers");
    return absl::FailedPreconditionError(text);
  }

 private:
  size_t Cell(int32_t stage, int32_t microbatch) const { return static_cast<size_t>(stage) * s_.microbatches + microbatch; }

  void Mark(const PipelineOp& op) {
    if (op.pass == Pass::kForward || op.pass == Pass::kPair) done_forward_[Cell(op.stage, op.microbatch)] = true;
    if (op.pass == Pass::kInputGrad || op.pass == Pass::kBackward) done_backward_[Cell(op.stage, op.microbatch)] = true;
    if (op.pass == Pass::kPair) done_backward_[Cell(op.back_stage, op.back_microbatch)] = true;
  }

  Lack Of(int32_t stage, int32_t microbatch, bool forward) const {
    const int32_t w = s_.worker_of[stage];
    const std::string name = forward ? "F" : "the gradient";
    return {absl::StrCat(name, " of microbatch ", microbatch, " of stage ", stage, ", which stands later on w", w), w};
  }

  Lack LackOf(int32_t w) const {
    const PipelineOp& op = s_.orders[w][at_[w]];
    const bool forward = op.pass == Pass::kForward || op.pass == Pass::kPair;
    if (forward && op.stage > 0 && !done_forward_[Cell(op.stage - 1, op.microbatch)]) return Of(op.stage - 1, op.microbatch, true);
    const int32_t stage = op.pass == Pass::kPair ? op.back_stage : op.stage,
                  k = op.pass == Pass::kPair ? op.back_microbatch : op.microbatch;
    if (op.pass == Pass::kWeightGrad) return Of(stage, k, false);
    if (!done_forward_[Cell(stage, k)]) return Of(stage, k, true);
    return Of(stage + 1, k, false);
  }

  const PipelineSchedule& s_;
  const std::vector<size_t>& at_;
  std::vector<bool> done_forward_, done_backward_;
};

}  // namespace

absl::StatusOr<PipelineTimes> Evaluate(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  Evaluator evaluator(schedule.worker_of, schedule.workers, schedule.microbatches, costs);
  if (!evaluator.Run(schedule.orders)) return Circle(schedule, evaluator).Explain();
  PipelineTimes out;
  out.start = evaluator.start();
  out.first = evaluator.first();
  out.last = evaluator.last();
  out.makespan = evaluator.makespan();
  out.span = evaluator.span();
  return out;
}

}  // namespace weft
