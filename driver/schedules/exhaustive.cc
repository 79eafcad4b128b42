#include "driver/schedules/exhaustive.h"

#include <limits>

#include "driver/schedules/evaluate.h"

namespace weft {
namespace {

using Lists = std::vector<std::vector<PipelineOp>>;

// All lists of a worker within the cap.
void AddLists(const AutoProblem& p, int32_t w, int32_t f, int32_t i, int32_t g, std::vector<PipelineOp>* list, Lists* out) {
  const int32_t m = p.microbatches;
  if (PeakOf(*list, p.use) > p.cap) return;
  if (g == m) return out->push_back(*list);
  const auto with = [&](Pass pass, int32_t k, int32_t df, int32_t di, int32_t dg) {
    list->push_back({pass, w, k});
    AddLists(p, w, f + df, i + di, g + dg, list, out);
    list->pop_back();
  };
  if (f < m) with(Pass::kForward, f, 1, 0, 0);
  if (i < f) with(Pass::kInputGrad, i, 0, 1, 0);
  if (g < i) with(Pass::kWeightGrad, g, 0, 0, 1);
}

void Combine(const std::vector<Lists>& choices, size_t w, Lists* lists, Evaluator* evaluator, Score* best) {
  if (w == choices.size()) {
    if (!evaluator->Run(*lists)) return;
    const Score score{evaluator->makespan(), evaluator->span()};
    if (score < *best) *best = score;
    return;
  }
  for (const auto& list : choices[w]) {
    (*lists)[w] = list;
    Combine(choices, w + 1, lists, evaluator, best);
  }
}

}  // namespace

Score ExhaustiveOptimum(const AutoProblem& problem) {
  std::vector<Lists> choices(problem.workers);
  for (int32_t w = 0; w < problem.workers; ++w) {
    std::vector<PipelineOp> list;
    AddLists(problem, w, 0, 0, 0, &list, &choices[w]);
  }
  Evaluator evaluator(problem.worker_of, problem.workers, problem.microbatches, *problem.costs);
  Lists lists(problem.workers);
  Score best{std::numeric_limits<Ticks>::max(), std::numeric_limits<Ticks>::max()};
  Combine(choices, 0, &lists, &evaluator, &best);
  return best;
}

}  // namespace weft
