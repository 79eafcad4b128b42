#include "driver/schedules/list_scheduler.h"

#include <algorithm>

namespace weft {

ListScheduler::ListScheduler(const std::vector<int32_t>& worker_of, int32_t workers, int32_t microbatches, const PipelineCosts& costs,
                             const MemoryUse& use, int64_t cap)
    : worker_of_(worker_of),
      stage_count_(static_cast<int32_t>(worker_of.size())),
      microbatches_(microbatches),
      costs_(costs),
      use_(use),
      cap_(cap),
      input_growth_(std::max<int64_t>(0, use.Input())),
      stages_(worker_of.size()),
      workers_(workers),
      lists_(workers) {
  for (int32_t s = 0; s < stage_count_; ++s) workers_[worker_of_[s]].stages.push_back(s);
}

void ListScheduler::Reset() {
  const size_t cells = static_cast<size_t>(stage_count_) * microbatches_;
  forward_ready_.assign(cells, kNever);
  input_ready_.assign(cells, kNever);
  for (Stage& s : stages_) {
    s.forwards = s.inputs = 0;
    s.weights = 0;
    s.pending.clear();
  }
  for (Worker& w : workers_) {
    w.busy_until = 0;
    w.wake = -1;
    w.held = 0;
  }
  for (auto& list : lists_) list.clear();
  std::fill_n(forward_ready_.begin(), microbatches_, 0);
}

const std::vector<std::vector<PipelineOp>>& ListScheduler::Run(const ListRules& rules) {
  rules_ = &rules;
  Reset();
  Wake(worker_of_[0], 0);
  while (!wakes_.empty()) {
    const auto [now, w] = wakes_.top();
    wakes_.pop();
    if (workers_[w].wake != now) continue;  // it was woken earlier
    workers_[w].wake = -1;
    Look(w, now);
  }
  return lists_;
}

Ticks ListScheduler::end() const {
  Ticks last = 0;
  for (const Worker& w : workers_) last = std::max(last, w.busy_until);
  return last;
}

void ListScheduler::Wake(int32_t w, Ticks at) {
  Worker& worker = workers_[w];
  at = std::max(at, worker.busy_until);
  if (worker.wake >= 0 && worker.wake <= at) return;
  worker.wake = at;
  wakes_.push({at, w});
}

// After this F every microbatch k that is not through all stages of the worker yet must still find room for its other stages, once those
// before it have given back what they hold: (what k and those behind it hold) + (what k still lacks) <= cap. As the first of them can go
// on, and k's own next F keeps that sum, every microbatch comes to its end. The sum is largest at the k that are next at some stage.
bool ListScheduler::Fits(const Worker& worker, int32_t stage) const {
  if (cap_ == kNoCap) return true;
  if (worker.held + use_.forward + input_growth_ > cap_) return false;
  if (worker.stages.size() == 1) return true;
  const auto forwards = [&](int32_t s) { return stages_[s].forwards + (s == stage ? 1 : 0); };
  const int32_t most = forwards(worker.stages.front());  // a microbatch reaches the first stage first
  for (const int32_t next : worker.stages) {
    const int32_t k = forwards(next);
    if (k >= most) continue;
    int64_t passes = 0;
    for (const int32_t s : worker.stages) passes += std::max(1, forwards(s) - k);
    if (passes * use_.forward + input_growth_ > cap_) return false;
  }
  return true;
}

ListScheduler::Outlook ListScheduler::Survey(const Worker& worker, Ticks now) const {
  Outlook o;
  const bool room_for_input = input_growth_ == 0 || worker.held + input_growth_ <= cap_;
  for (const int32_t s : worker.stages) {
    const Stage& stage = stages_[s];
    if (stage.inputs < stage.forwards) {
      const Ticks ready = input_ready_[Cell(s, stage.inputs)];
      if (ready > now) {
        o.next_input = std::min(o.next_input, ready);
      } else if (room_for_input && (o.input < 0 || stage.inputs <= stages_[o.input].inputs)) {
        o.input = s;
      }
    }
    if (stage.forwards < microbatches_ && stage.forwards - stage.inputs < rules_->window[s]) {
      const Ticks ready = forward_ready_[Cell(s, stage.forwards)];
      if (ready != kNever && !Fits(worker, s)) {
        o.lacks_memory |= ready <= now;
      } else if (ready > now) {
        o.next_forward = std::min(o.next_forward, ready);
      } else if (o.forward < 0 || rules_->deep_first) {
        o.forward = s;
      }
    }
    if (stage.HasWeight() && (o.weight < 0 || stage.pending[stage.weights] < stages_[o.weight].pending[stages_[o.weight].weights]))
      o.weight = s;
  }
  return o;
}

ListScheduler::Choice ListScheduler::Choose(const Worker& worker, const Outlook& o, Ticks now) const {
  if (rules_->pairs && o.forward >= 0 && o.input >= 0) return Choice::kPair;
  if (rules_->forward_first && o.forward >= 0) return Choice::kForward;
  if (o.input >= 0) return Choice::kInput;
  if (o.forward >= 0) {
    const Ticks cost = costs_.forward[o.forward];
    if (o.next_input == kNever || now + cost <= o.next_input + cost * rules_->forward_late / 4) return Choice::kForward;
  }
  if (o.weight >= 0) {
    const Ticks cost = costs_.weight[o.weight];
    // An F that was just passed over is no reason to hurry.
    const Ticks next = o.forward >= 0 ? o.next_input : std::min(o.next_input, o.next_forward);
    if (o.lacks_memory || next == kNever || now + cost <= next + cost * rules_->weight_late / 4) return Choice::kWeight;
  }
  return Choice::kWait;
}

void ListScheduler::Look(int32_t w, Ticks now) {
  Worker& worker = workers_[w];
  const Outlook o = Survey(worker, now);
  switch (Choose(worker, o, now)) {
    case Choice::kForward:
      return Begin(w, {Pass::kForward, o.forward, stages_[o.forward].forwards}, now);
    case Choice::kInput:
      return Begin(w, {Pass::kInputGrad, o.input, stages_[o.input].inputs}, now);
    case Choice::kWeight:
      return Begin(w, {Pass::kWeightGrad, o.weight, stages_[o.weight].pending[stages_[o.weight].weights]}, now);
    case Choice::kPair:
      return Begin(w, {Pass::kPair, o.forward, stages_[o.forward].forwards, o.input, stages_[o.input].inputs}, now);
    case Choice::kWait:
      break;
  }
  const Ticks next = std::min(o.next_input, o.next_forward);
  if (next != kNever) Wake(w, next);
}

void ListScheduler::Begin(int32_t w, const PipelineOp& op, Ticks now) {
  Worker& worker = workers_[w];
  lists_[w].push_back(op);
  const Ticks end = now + costs_.Of(op);
  worker.busy_until = end;
  switch (op.pass) {
    case Pass::kForward:
      worker.held += use_.forward;
      ++stages_[op.stage].forwards;
      ForwardEnds(w, op.stage, op.microbatch, end);
      break;
    case Pass::kInputGrad:
      worker.held += use_.Input();
      ++stages_[op.stage].inputs;
      stages_[op.stage].pending.push_back(op.microbatch);
      InputEnds(w, op.stage, op.microbatch, end);
      break;
    case Pass::kWeightGrad:
      worker.held += use_.weight;
      ++stages_[op.stage].weights;
      break;
    default:  // F adds what B gives back at the end
      ++stages_[op.stage].forwards;
      ++stages_[op.back_stage].inputs;
      ForwardEnds(w, op.stage, op.microbatch, end);
      InputEnds(w, op.back_stage, op.back_microbatch, end);
      break;
  }
  Wake(w, end);
}

void ListScheduler::ForwardEnds(int32_t w, int32_t stage, int32_t microbatch, Ticks end) {
  if (stage + 1 == stage_count_) {
    input_ready_[Cell(stage, microbatch)] = end;
    return;
  }
  const int32_t to = worker_of_[stage + 1];
  const Ticks ready = to == w ? end : end + costs_.hop;
  forward_ready_[Cell(stage + 1, microbatch)] = ready;
  if (to != w) Wake(to, ready);
}

void ListScheduler::InputEnds(int32_t w, int32_t stage, int32_t microbatch, Ticks end) {
  if (stage == 0) return;
  const int32_t to = worker_of_[stage - 1];
  const Ticks ready = to == w ? end : end + costs_.hop;
  input_ready_[Cell(stage - 1, microbatch)] = ready;
  if (to != w) Wake(to, ready);
}

}  // namespace weft
