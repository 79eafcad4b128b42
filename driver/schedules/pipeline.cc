#include "driver/schedules/pipeline.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "driver/schedules/auto.h"
#include "driver/schedules/csv.h"
#include "driver/schedules/fixed.h"

namespace weft {
namespace {

constexpr int64_t kMaxPasses = 30'000'000;

using Build = std::function<absl::StatusOr<PipelineSchedule>(int32_t p, int32_t m, int32_t v)>;

// A hand-made schedule and how many stages a worker it can have.
struct Entry {
  const char* name;
  int32_t chunks;  // as many as it always has; 0: any number, by default 2
  Build build;
};

template <typename F>
Build Plain(F f) {
  return [f](int32_t p, int32_t m, int32_t) -> absl::StatusOr<PipelineSchedule> { return f(p, m); };
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry>* const entries = new std::vector<Entry>{
      {"forward-only", 1, Plain(ForwardOnly)},
      {"gpipe", 1, Plain(GPipe)},
      {"1f1b", 1, Plain(OneForwardOneBackward)},
      {"eager-1f1b", 1, Plain(EagerOneForwardOneBackward)},
      {"interleaved-1f1b", 0, Interleaved},
      {"looped-bfs", 0, [](int32_t p, int32_t m, int32_t v) -> absl::StatusOr<PipelineSchedule> { return LoopedBreadthFirst(p, m, v); }},
      {"zb-h1", 1, Plain(ZeroBubbleH1)},
      {"zb-h2", 1, Plain(ZeroBubbleH2)},
      {"zbv", 2, Plain(ZeroBubbleV)},
      {"dualpipe-v", 2, Plain(DualPipeV)},
  };
  return *entries;
}

class Planner {
 public:
  explicit Planner(const PipelineRequest& request) : r_(request) {}

  absl::StatusOr<PipelinePlan> Run() {
    WEFT_RETURN_IF_ERROR(CheckNumbers());
    const Nanos start = Clock::Real()->Now();
    if (r_.schedule == "auto") {
      WEFT_RETURN_IF_ERROR(Automatic());
    } else {
      WEFT_RETURN_IF_ERROR(HandMade());
      WEFT_ASSIGN_OR_RETURN(plan_.costs, ResolveCosts(r_.costs, r_.workers, plan_.schedule.stages(), r_.microbatches));
      WEFT_RETURN_IF_ERROR(ResolveUse());
    }
    plan_.scheduler_s = ToSeconds(Clock::Real()->Now() - start);
    WEFT_RETURN_IF_ERROR(Measure());
    WEFT_RETURN_IF_ERROR(CheckCap());
    return std::move(plan_);
  }

 private:
  absl::Status CheckNumbers() const {
    if (r_.workers < 1 || r_.microbatches < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(r_.workers, " workers and ", r_.microbatches, " microbatches: the smallest that works is 1 of each"));
    }
    if (r_.chunks.has_value() && *r_.chunks < 1) {
      return absl::InvalidArgumentError(absl::StrCat(*r_.chunks, " chunks: the smallest number of stages a worker that works is 1"));
    }
    const int64_t most = kMaxPasses / 3 / r_.workers / std::max(r_.chunks.value_or(2), 2);
    if (r_.microbatches > most) {
      return absl::InvalidArgumentError(absl::StrCat(r_.microbatches, " microbatches on ", r_.workers,
                                                     " workers are too many passes to plan: at most ", most, " microbatches"));
    }
    if (r_.cap_bytes.has_value() && r_.cap_activations.has_value()) {
      return absl::InvalidArgumentError("a cap in activations and one in bytes cannot be given together: give one of them");
    }
    if (r_.cap_bytes.has_value() && !r_.memory.has_value()) {
      return absl::InvalidArgumentError("a cap in bytes needs to know what the passes hold: add --memory f=BYTES,w=-BYTES");
    }
    if (!r_.placement.empty() && r_.schedule != "auto") {
      return absl::InvalidArgumentError(
          absl::StrCat("the placement of stages is part of ", r_.schedule, ": it can be chosen for auto only"));
    }
    return absl::OkStatus();
  }

  absl::Status HandMade() {
    if (r_.schedule == "csv") return FromGrid();
    const auto entry = std::find_if(Entries().begin(), Entries().end(), [&](const Entry& e) { return e.name == r_.schedule; });
    if (entry == Entries().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", r_.schedule, "\" is no schedule: there are ", absl::StrJoin(PipelineScheduleNames(), ", "), " and csv:FILE"));
    }
    const int32_t chunks = r_.chunks.value_or(entry->chunks == 0 ? 2 : entry->chunks);
    if (entry->chunks != 0 && chunks != entry->chunks) {
      return absl::InvalidArgumentError(absl::StrCat(r_.schedule, " has ", entry->chunks, entry->chunks == 1 ? " stage" : " stages",
                                                     " a worker, not ", chunks, ": use --chunks ", entry->chunks,
                                                     ", or interleaved-1f1b, looped-bfs or auto"));
    }
    WEFT_ASSIGN_OR_RETURN(plan_.schedule, entry->build(r_.workers, r_.microbatches, chunks));
    plan_.chunks = chunks;
    return absl::OkStatus();
  }

  absl::Status FromGrid() {
    WEFT_ASSIGN_OR_RETURN(plan_.schedule, ReadScheduleGrid(r_.grid));
    const PipelineSchedule& s = plan_.schedule;
    if (s.workers != r_.workers || s.microbatches != r_.microbatches) {
      return absl::InvalidArgumentError(absl::StrCat("the grid has ", s.workers, " rows and ", s.microbatches,
                                                     " microbatches, but --stages says ", r_.workers, " and --microbatches ",
                                                     r_.microbatches));
    }
    // Stages need not be spread evenly; then costs must be given for each.
    plan_.chunks = std::max(1, s.stages() / s.workers);
    if (r_.chunks.has_value() && static_cast<int64_t>(*r_.chunks) * s.workers != s.stages()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the grid has ", s.stages(), " stages on ", s.workers, " workers, but --chunks says ", *r_.chunks));
    }
    return absl::OkStatus();
  }

  absl::Status ResolveUse() {
    activations_ = ActivationUse(plan_.chunks);
    if (r_.memory.has_value()) {
      WEFT_ASSIGN_OR_RETURN(bytes_, ResolveMemory(*r_.memory, plan_.chunks, r_.microbatches));
    }
    if (r_.cap_activations.has_value()) cap_ = CapOf(activations_, *r_.cap_activations);
    if (r_.cap_bytes.has_value()) cap_ = CapOf(bytes_, *r_.cap_bytes);
    return absl::OkStatus();
  }

  const MemoryUse& CappedUse() const { return r_.cap_bytes.has_value() ? bytes_ : activations_; }
  std::string Unit() const { return r_.cap_bytes.has_value() ? " bytes" : " microbatches"; }

  absl::Status Automatic() {
    plan_.chunks = r_.chunks.value_or(r_.placement == "v" ? 2 : 1);
    if (!r_.placement.empty() && r_.placement != "loop" && r_.placement != "v") {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", r_.placement, "\" is no placement: use loop (stage s on worker s mod p) or v (stages r and 2p-1-r on worker r)"));
    }
    if (r_.placement == "v" && plan_.chunks != 2) {
      return absl::InvalidArgumentError(absl::StrCat("the placement v has 2 stages a worker, not ", plan_.chunks));
    }
    WEFT_ASSIGN_OR_RETURN(plan_.costs, ResolveCosts(r_.costs, r_.workers, r_.workers * plan_.chunks, r_.microbatches));
    WEFT_RETURN_IF_ERROR(ResolveUse());
    std::vector<std::vector<int32_t>> placements;
    if (r_.placement != "v") placements.push_back(LoopPlacement(r_.workers, plan_.chunks));
    if (plan_.chunks == 2 && r_.placement != "loop") placements.push_back(VPlacement(r_.workers));
    std::optional<AutoResult> best;
    for (const std::vector<int32_t>& placement : placements) {
      AutoProblem problem;
      problem.worker_of = placement;
      problem.workers = r_.workers;
      problem.microbatches = r_.microbatches;
      problem.costs = &plan_.costs;
      problem.use = CappedUse();
      problem.cap = cap_;
      problem.pairs = plan_.costs.pair_numerator < plan_.costs.pair_denominator;
      problem.effort = 1.0 / static_cast<double>(placements.size());
      WEFT_ASSIGN_OR_RETURN(AutoResult result, AutoSchedule(problem));
      if (!best.has_value() || result.score < best->score) best = std::move(result);
    }
    plan_.schedule = std::move(best->schedule);
    return absl::OkStatus();
  }

  absl::Status Measure() {
    WEFT_ASSIGN_OR_RETURN(plan_.times, Evaluate(plan_.schedule, plan_.costs));
    plan_.has_unit = r_.costs.has_unit;
    plan_.makespan = plan_.costs.ToUnits(plan_.times.makespan);
    plan_.span = plan_.costs.ToUnits(plan_.times.span);
    const bool forward_only = plan_.schedule.orders[0].back().pass == Pass::kForward;
    const double work = static_cast<double>(plan_.costs.PerMicrobatch(forward_only)) * r_.microbatches / r_.workers;
    if (plan_.times.makespan > 0) plan_.bubble_global = 1 - work / static_cast<double>(plan_.times.makespan);
    if (plan_.times.span > 0) plan_.bubble_span = 1 - work / static_cast<double>(plan_.times.span);
    for (const auto& order : plan_.schedule.orders) {
      plan_.peak_activations.push_back(static_cast<double>(PeakOf(order, activations_)) / activations_.per_unit);
      if (r_.memory.has_value()) plan_.peak_bytes.push_back(static_cast<double>(PeakOf(order, bytes_)) / bytes_.per_unit);
    }
    return absl::OkStatus();
  }

  absl::Status CheckCap() const {
    if (cap_ == kNoCap) return absl::OkStatus();
    const std::vector<double>& peaks = r_.cap_bytes.has_value() ? plan_.peak_bytes : plan_.peak_activations;
    for (size_t w = 0; w < peaks.size(); ++w) {
      if (PeakOf(plan_.schedule.orders[w], CappedUse()) <= cap_) continue;
      const double smallest = *std::max_element(peaks.begin(), peaks.end());
      return absl::InvalidArgumentError(absl::StrCat(
          r_.schedule, " holds ", peaks[w], Unit(), " on w", w, ", the cap is ", static_cast<double>(cap_) / CappedUse().per_unit,
          ": the smallest that works for it is ", smallest, "; auto stays within any cap from ",
          static_cast<double>(SmallestPeak(CappedUse(), plan_.chunks)) / CappedUse().per_unit, " on"));
    }
    return absl::OkStatus();
  }

  const PipelineRequest& r_;
  PipelinePlan plan_;
  MemoryUse activations_, bytes_;
  int64_t cap_ = kNoCap;
};

}  // namespace

const std::vector<std::string>& PipelineScheduleNames() {
  static const std::vector<std::string>* const names = [] {
    auto* list = new std::vector<std::string>;
    for (const Entry& e : Entries()) list->push_back(e.name);
    list->push_back("auto");
    return list;
  }();
  return *names;
}

absl::StatusOr<PipelinePlan> PlanPipeline(const PipelineRequest& request) { return Planner(request).Run(); }

}  // namespace weft
