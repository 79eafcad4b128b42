#include "driver/schedules/evaluate.h"

#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

#include "driver/schedules/csv.h"
#include "driver/schedules/fixed.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

PipelineCosts Costs(const PipelineSchedule& s, const std::string& text, int64_t hop) {
  CostSpec spec = *ParseCosts(text, false);
  spec.hop = {hop, 0};
  return *ResolveCosts(spec, s.workers, s.stages(), s.microbatches);
}

}  // namespace

TEST_CASE("evaluate: orders that wait for each other are explained") {
  // Both have everything, but w0 wants a gradient before it has made what that gradient comes from.
  const auto s = ReadScheduleGrid("F0,B0,F1,B1\nF1,F0,B0,B1");
  REQUIRE(s.ok());
  const auto times = Evaluate(*s, Costs(*s, "F=1,I=1,W=1", 0));
  REQUIRE(times.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(times.status().message()),
             Contains("w0 is at B0 and waits for the gradient of microbatch 0 of stage 1, which stands later on w1") &&
                 Contains("w1 is at F1 and waits for F of microbatch 1 of stage 0, which stands later on w0"));
}

TEST_CASE("evaluate: the next stage's I waits for a whole B, but not for a W") {
  const auto fused = ReadScheduleGrid("F0,B0\nF0,B0"), split = ReadScheduleGrid("F0,I0,W0\nF0,I0,W0");
  CHECK(Evaluate(*fused, Costs(*fused, "F=10,I=12,W=7", 3))->makespan == 10 + 3 + 10 + 19 + 3 + 19);
  CHECK(Evaluate(*split, Costs(*split, "F=10,I=12,W=7", 3))->makespan == 10 + 3 + 10 + 12 + 3 + 19);
}

TEST_CASE("evaluate: passes start as early as their rules allow, and no earlier") {
  std::mt19937 rng(3);
  const PipelineSchedule all[] = {GPipe(4, 6), ZeroBubbleH2(3, 7), ZeroBubbleV(3, 8), *DualPipeV(3, 7), *Interleaved(3, 6, 2)};
  for (const PipelineSchedule& s : all) {
    for (int round = 0; round < 20; ++round) {
      PipelineCosts c = Costs(s, "F=1,I=1,W=1", rng() % 9);
      for (auto* list : {&c.forward, &c.input, &c.weight}) {
        for (Ticks& t : *list) t = rng() % 20;
      }
      const auto times = Evaluate(s, c);
      REQUIRE(times.ok());
      // Ends of everything, found apart.
      std::vector<std::vector<Ticks>> forward(s.stages(), std::vector<Ticks>(s.microbatches, -1)), backward = forward;
      for (int32_t w = 0; w < s.workers; ++w) {
        for (size_t i = 0; i < s.orders[w].size(); ++i) {
          const PipelineOp& op = s.orders[w][i];
          const Ticks end = times->start[w][i] + c.Of(op);
          if (op.pass == Pass::kForward || op.pass == Pass::kPair) forward[op.stage][op.microbatch] = end;
          if (op.pass == Pass::kInputGrad || op.pass == Pass::kBackward) backward[op.stage][op.microbatch] = end;
          if (op.pass == Pass::kPair) backward[op.back_stage][op.back_microbatch] = end;
        }
      }
      const auto hop = [&](int32_t a, int32_t b) { return s.worker_of[a] == s.worker_of[b] ? 0 : c.hop; };
      bool good = true;
      Ticks last = 0;
      for (int32_t w = 0; w < s.workers; ++w) {
        Ticks free = 0;
        for (size_t i = 0; i < s.orders[w].size(); ++i) {
          const PipelineOp& op = s.orders[w][i];
          Ticks ready = free;
          const bool is_pair = op.pass == Pass::kPair;
          const int32_t bs = is_pair ? op.back_stage : op.stage, bk = is_pair ? op.back_microbatch : op.microbatch;
          if ((op.pass == Pass::kForward || is_pair) && op.stage > 0)
            ready = std::max(ready, forward[op.stage - 1][op.microbatch] + hop(op.stage - 1, op.stage));
          if (op.pass == Pass::kWeightGrad) ready = std::max(ready, backward[bs][bk]);
          if (op.pass == Pass::kInputGrad || op.pass == Pass::kBackward || is_pair) {
            ready = std::max(ready, forward[bs][bk]);
            if (bs + 1 < s.stages()) ready = std::max(ready, backward[bs + 1][bk] + hop(bs, bs + 1));
          }
          good &= times->start[w][i] == ready;
          free = ready + c.Of(op);
          last = std::max(last, free);
        }
      }
      CHECK(good);
      CHECK(times->makespan == last);
    }
  }
}

TEST_CASE("schedule: splitting B into I and W is never slower") {
  for (const int64_t hop : {0, 2, 5}) {
    for (const PipelineSchedule& s :
         {GPipe(4, 8), OneForwardOneBackward(4, 8), EagerOneForwardOneBackward(4, 8), *Interleaved(4, 8, 2), *DualPipeV(3, 9)}) {
      const PipelineSchedule split = SplitBackward(s);
      CHECK(Evaluate(split, Costs(s, "F=10,I=12,W=7", hop))->makespan <= Evaluate(s, Costs(s, "F=10,I=12,W=7", hop))->makespan);
    }
  }
}

}  // namespace weft
