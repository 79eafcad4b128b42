// How long schedules take to make, their times included, as time of one core. Limits: p32 m256 50 ms for the hand-made ones and 1 s for
// auto, p64 m1024 1 s and 20 s.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "driver/schedules/pipeline.h"

namespace weft {
namespace {

struct Case {
  std::string schedule;
  int32_t p, m;
  double limit_s;
  std::optional<int64_t> cap;  // activations
  int64_t hop = 0;             // tenths
};

void Make(benchmark::State& state, const Case& c) {
  PipelineRequest request;
  request.schedule = c.schedule;
  request.workers = c.p;
  request.microbatches = c.m;
  request.costs = *ParseCosts("F=10,I=12,W=7", c.schedule == "forward-only");
  request.costs.hop = {c.hop, 1};
  if (c.cap.has_value()) request.cap_activations = Decimal{*c.cap, 0};
  double slowest = 0;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    const auto plan = PlanPipeline(request);
    slowest = std::max(slowest, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (!plan.ok()) return state.SkipWithError(std::string(plan.status().message()).c_str());
    state.counters["makespan"] = plan->makespan;
    state.counters["bubble_span"] = plan->bubble_span;
  }
  state.counters["limit_s"] = c.limit_s;
  if (slowest > c.limit_s) state.SkipWithError(absl::StrCat("took ", slowest, " s, the limit is ", c.limit_s, " s").c_str());
}

void RegisterAll() {
  for (const auto& [p, m, fixed_s, auto_s] : {std::tuple{32, 256, 0.05, 1.0}, {64, 1024, 1.0, 20.0}}) {
    for (const std::string& name : PipelineScheduleNames()) {
      if (name == "auto") continue;
      const Case c{name, p, m, fixed_s, std::nullopt, 1};
      benchmark::RegisterBenchmark(absl::StrCat(name, "/p", p, "/m", m).c_str(), [c](benchmark::State& s) {
        Make(s, c);
      })->Unit(benchmark::kMillisecond);
    }
    for (const std::optional<int64_t> cap : {std::optional<int64_t>(), std::optional<int64_t>(p), std::optional<int64_t>(2 * p)}) {
      for (const int64_t hop : {0, 10}) {
        const Case c{"auto", p, m, auto_s, cap, hop};
        benchmark::RegisterBenchmark(
            absl::StrCat("auto/p", p, "/m", m, "/cap:", cap.has_value() ? absl::StrCat(*cap) : "none", "/hop:", hop / 10).c_str(),
            [c](benchmark::State& s) { Make(s, c); })
            ->Unit(benchmark::kMillisecond)
            ->Iterations(1);
      }
    }
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
