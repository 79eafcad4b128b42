#include "driver/schedules/auto.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "driver/schedules/evaluate.h"
#include "driver/schedules/fixed.h"
#include "driver/schedules/list_scheduler.h"

namespace weft {
namespace {

// Passes that may be timed in all, so that the search ends in time: about 0.1 us each.
constexpr double kListBudget = 4e6;
constexpr double kPolishBudget = 12e6;
// Lists that are made at least and at most, however long they are.
constexpr int64_t kFewestRuns = 100;
constexpr int64_t kMostRuns = 4000;
// Lists that take more than so much longer than the best are not looked at closely.
constexpr double kHopeless = 1.03;
// With fewer moves than this polishing gains next to nothing.
constexpr int64_t kFewestMoves = 2000;

class Search {
 public:
  explicit Search(const AutoProblem& problem)
      : p_(problem),
        stages_(static_cast<int32_t>(problem.worker_of.size())),
        bound_(LowerBound(problem)),
        evaluator_(problem.worker_of, problem.workers, problem.microbatches, *problem.costs),
        lister_(problem.worker_of, problem.workers, problem.microbatches, *problem.costs, problem.use, problem.cap) {
    const int64_t passes = 3 * static_cast<int64_t>(stages_) * p_.microbatches;
    const double runs = std::max(kListBudget / static_cast<double>(passes), static_cast<double>(kFewestRuns));
    runs_left_ = std::min(static_cast<int64_t>(p_.effort * runs), kMostRuns);
    polish_budget_ = static_cast<int64_t>(p_.effort * kPolishBudget);
    if (polish_budget_ / passes < kFewestMoves) polish_budget_ = 0;
  }

  AutoResult Run() {
    TryHandMade();
    TryCombinations();
    ClimbRules();
    if (polish_budget_ > 0 && !Done()) {
      Polisher polisher(p_.worker_of, p_.workers, p_.microbatches, *p_.costs, p_.use, p_.cap);
      best_score_ = polisher.Improve(&best_, bound_, polish_budget_);
    }
    AutoResult out;
    out.schedule.name = "auto";
    out.schedule.workers = p_.workers;
    out.schedule.microbatches = p_.microbatches;
    out.schedule.worker_of = p_.worker_of;
    out.schedule.orders = std::move(best_);
    out.score = best_score_;
    return out;
  }

 private:
  bool Done() const { return best_score_ <= bound_; }

  bool WithinCap(const std::vector<std::vector<PipelineOp>>& lists) const {
    return std::all_of(lists.begin(), lists.end(), [&](const auto& list) { return PeakOf(list, p_.use) <= p_.cap; });
  }

  // Keeps the lists if they are the best so far.
  Score Take(const std::vector<std::vector<PipelineOp>>& lists) {
    evaluator_.Run(lists);
    const Score score{evaluator_.makespan(), evaluator_.span()};
    if (score < best_score_) {
      best_score_ = score;
      best_ = lists;
    }
    return score;
  }

  void TryHandMade() {
    const int32_t p = p_.workers, m = p_.microbatches, v = stages_ / p;
    std::vector<PipelineSchedule> all;
    if (v == 1) all = {ZeroBubbleH1(p, m), ZeroBubbleH2(p, m), OneForwardOneBackward(p, m), EagerOneForwardOneBackward(p, m), GPipe(p, m)};
    if (v == 2) {
      all.push_back(ZeroBubbleV(p, m));
      if (auto dual = DualPipeV(p, m); dual.ok()) all.push_back(*std::move(dual));
    }
    if (v > 1) {
      all.push_back(LoopedBreadthFirst(p, m, v));
      if (auto interleaved = Interleaved(p, m, v); interleaved.ok()) all.push_back(*std::move(interleaved));
    }
    for (const PipelineSchedule& s : all) {
      if (s.worker_of != p_.worker_of) continue;
      // With B in two it is no slower, but it may hold more where I adds.
      if (const PipelineSchedule split = SplitBackward(s); WithinCap(split.orders)) {
        Take(split.orders);
      } else if (WithinCap(s.orders)) {
        Take(s.orders);
      }
    }
  }

  // From the start of F of a stage to the start of its I, when nothing is in the way.
  std::vector<double> RoundTrips() const {
    std::vector<double> out(stages_);
    double time = 0;
    for (int32_t s = stages_ - 1; s >= 0; --s) {
      if (s + 1 < stages_)
        time += static_cast<double>(p_.costs->input[s + 1]) + (p_.worker_of[s] == p_.worker_of[s + 1] ? 0 : 2.0 * p_.costs->hop);
      time += static_cast<double>(p_.costs->forward[s]);
      out[s] = time;
    }
    return out;
  }

  std::vector<int32_t> Window(const std::vector<double>& shape, double scale) const {
    std::vector<int32_t> out(stages_);
    for (int32_t s = 0; s < stages_; ++s) {
      out[s] = static_cast<int32_t>(std::clamp<double>(std::ceil(scale * shape[s] - 1e-9), 1, p_.microbatches));
    }
    return out;
  }

  // Windows that are worth trying, the most promising first.
  std::vector<std::vector<int32_t>> Windows() const {
    std::vector<double> trips = RoundTrips(), slope(stages_), flat(stages_, 1);
    const double per_microbatch = static_cast<double>(p_.costs->PerMicrobatch(false)) / p_.workers;
    for (double& t : trips) t /= per_microbatch;
    // As many as the cap allows if they are spread over the way back.
    const double chunks = static_cast<double>(stages_) / p_.workers;
    const double capacity = p_.cap == kNoCap ? p_.microbatches : static_cast<double>(p_.cap) / static_cast<double>(p_.use.forward);
    for (int32_t s = 0; s < stages_; ++s) slope[s] = capacity * (stages_ - s) / stages_ / chunks;
    std::vector<std::vector<int32_t>> out;
    const auto add = [&](const std::vector<int32_t>& w) {
      if (std::find(out.begin(), out.end(), w) == out.end()) out.push_back(w);
    };
    add(std::vector<int32_t>(stages_, p_.microbatches));
    for (const double scale : {1.5, 3.0, 1.0, 2.0, 1.25, 4.5, 0.7}) add(Window(trips, scale));
    for (const double scale : {1.0, 1.3, 0.7, 1.7, 0.5, 2.0, 0.3}) add(Window(slope, scale));
    for (const double scale : {2.0, 3.0, 1.0, 4.0}) add(Window(flat, scale));
    return out;
  }

  // Whether there is room for another run.
  bool Try(const ListRules& rules) {
    if (runs_left_ <= 0 || Done()) return false;
    --runs_left_;
    const auto& lists = lister_.Run(rules);
    if (static_cast<double>(lister_.end()) > kHopeless * static_cast<double>(best_score_.makespan)) return true;
    const Score score = Take(lists);
    if (score < rules_score_) {
      rules_score_ = score;
      rules_ = rules;
    }
    return true;
  }

  void TryCombinations() {
    const std::vector<std::vector<int32_t>> windows = Windows();
    const bool several = stages_ > p_.workers;
    // The lateness that does best most of the time, then all others.
    std::vector<std::pair<int32_t, int32_t>> late = {{3, 0}, {3, 4}, {0, 0}, {4, 2}, {0, 3}};
    for (int32_t f = 4; f >= 0; --f) {
      for (int32_t w = 0; w <= 4; ++w) {
        if (std::find(late.begin(), late.end(), std::pair{f, w}) == late.end()) late.push_back({f, w});
      }
    }
    for (const auto& [forward_late, weight_late] : late) {
      for (const std::vector<int32_t>& window : windows) {
        for (const bool pairs : {true, false}) {
          if (pairs && !p_.pairs) continue;
          for (const bool deep_first : {true, false}) {
            if (!deep_first && !several) continue;
            for (const bool forward_first : {false, true}) {
              if (!Try({window, forward_late, weight_late, forward_first, deep_first, pairs})) return;
            }
          }
        }
      }
    }
  }

  // Changes one rule of the best at a time as long as that helps.
  void ClimbRules() {
    if (rules_.window.empty()) return;
    for (bool better = true; better;) {
      better = false;
      std::vector<ListRules> next;
      for (int32_t late = 0; late <= 4; ++late) {
        next.push_back(rules_), next.back().forward_late = late;
        next.push_back(rules_), next.back().weight_late = late;
      }
      for (int32_t s = 0; s < stages_; ++s) {
        for (const int32_t by : {1, -1, 2}) {
          next.push_back(rules_);
          int32_t& window = next.back().window[s];
          window = std::clamp(window + by, 1, p_.microbatches);
        }
      }
      for (const ListRules& rules : next) {
        const Score before = rules_score_;
        if (rules == rules_) continue;
        if (!Try(rules)) return;
        better |= rules_score_ < before;
      }
    }
  }

  const AutoProblem& p_;
  const int32_t stages_;
  const Score bound_;
  Evaluator evaluator_;
  ListScheduler lister_;
  int64_t runs_left_ = 0;
  int64_t polish_budget_ = 0;
  std::vector<std::vector<PipelineOp>> best_;
  Score best_score_{std::numeric_limits<Ticks>::max(), std::numeric_limits<Ticks>::max()};
  ListRules rules_;
  Score rules_score_ = best_score_;
};

}  // namespace

Score LowerBound(const AutoProblem& problem) {
  const PipelineCosts& c = *problem.costs;
  // A worker starts no earlier than a value can be there, and then has all its work to do.
  std::vector<Ticks> work(problem.workers, 0), arrival(problem.workers, std::numeric_limits<Ticks>::max());
  Ticks way = 0;
  for (size_t s = 0; s < problem.worker_of.size(); ++s) {
    const int32_t w = problem.worker_of[s];
    arrival[w] = std::min(arrival[w], way);
    Ticks each = c.forward[s] + c.input[s] + c.weight[s];
    if (problem.pairs) each = std::min(each, each / c.pair_denominator * c.pair_numerator);
    work[w] += each * problem.microbatches;
    way += c.forward[s];
    if (s + 1 < problem.worker_of.size() && problem.worker_of[s + 1] != w) way += c.hop;
  }
  Score bound;
  for (int32_t w = 0; w < problem.workers; ++w) {
    bound.span = std::max(bound.span, work[w]);
    bound.makespan = std::max(bound.makespan, arrival[w] + work[w]);
  }
  return bound;
}

absl::StatusOr<AutoResult> AutoSchedule(const AutoProblem& problem) {
  const int32_t chunks = static_cast<int32_t>(problem.worker_of.size()) / problem.workers;
  if (const int64_t smallest = SmallestPeak(problem.use, chunks); problem.cap < smallest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no order stays within the cap: the smallest that works is ",
        static_cast<double>(smallest) / problem.use.per_unit, ", one microbatch after the other"));
  }
  return Search(problem).Run();
}

}  // namespace weft
