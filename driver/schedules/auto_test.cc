#include "driver/schedules/auto.h"

#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/schedules/check.h"
#include "driver/schedules/exhaustive.h"
#include "driver/schedules/list_scheduler.h"
#include "driver/schedules/pipeline.h"

namespace weft {
namespace {

PipelineRequest Request(const std::string& name, int32_t p, int32_t m, const std::string& cost, int64_t hop_tenths = 0) {
  PipelineRequest r;
  r.schedule = name;
  r.workers = p;
  r.microbatches = m;
  r.costs = *ParseCosts(cost, false);
  r.costs.hop = {hop_tenths, 1};
  return r;
}

PipelinePlan Plan(const PipelineRequest& r) {
  const auto plan = PlanPipeline(r);
  INFO(plan.status().message());
  REQUIRE(plan.ok());
  const absl::Status whole = CheckSchedule(plan->schedule);
  INFO(whole.message());
  REQUIRE(whole.ok());
  return *plan;
}

}  // namespace

TEST_CASE("auto: the exact optima of two workers with unit costs") {
  for (const int32_t m : {2, 3, 4}) {
    for (const int32_t cap : {1, 2, 3, 4}) {
      PipelineRequest r = Request("auto", 2, m, "F=1,I=1,W=1");
      r.cap_activations = Decimal{cap, 0};
      INFO("m " << m << " cap " << cap);
      CHECK(Plan(r).makespan == (cap == 1 ? 5 * m : 3 * m + 1));
    }
  }
}

TEST_CASE("auto: as good as trying every order, with any costs, hops and caps") {
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    const int32_t p = round % 4 == 3 ? 3 : 2, m = p == 3 ? 2 + rng() % 2 : 2 + rng() % 3;
    CostSpec spec = *ParseCosts(absl::StrCat("F=", 1 + rng() % 12, ",I=", 1 + rng() % 12, ",W=", 1 + rng() % 12), false);
    spec.hop = {static_cast<int64_t>(rng() % 3 == 0 ? 0 : rng() % 15), 0};
    const PipelineCosts costs = *ResolveCosts(spec, p, p, m);
    AutoProblem problem;
    problem.worker_of = LoopPlacement(p, 1);
    problem.workers = p;
    problem.microbatches = m;
    problem.costs = &costs;
    // In activations, or in bytes of which I gives a part back, or adds.
    const int64_t kept = 1 + rng() % 12;
    problem.use = round % 2 == 0 ? ActivationUse(1) : MemoryUse{10, -kept, 1};
    problem.cap = rng() % 4 == 0 ? kNoCap : SmallestPeak(problem.use, 1) + static_cast<int64_t>(rng() % (2 * problem.use.forward + 1));
    const AutoResult found = *AutoSchedule(problem);
    const Score best = ExhaustiveOptimum(problem);
    INFO("round " << round << " p " << p << " m " << m << " F " << costs.forward[0] << " I " << costs.input[0] << " W " << costs.weight[0]
                  << " c " << costs.hop << " f " << problem.use.forward << " w " << problem.use.weight << " cap " << problem.cap);
    CHECK(found.score.makespan == best.makespan);
    CHECK(found.score.span == best.span);
    // And the bound is one.
    const Score bound = LowerBound(problem);
    CHECK(bound.makespan <= best.makespan);
    CHECK(bound.span <= best.span);
  }
}

TEST_CASE("auto: the zero-bubble paper's rates under its caps") {
  struct Row {
    int32_t hidden, heads, m;
    const char* cost;
    int64_t hop;  // thousandths
    double zb1p, zb2p;
  };
  for (const Row& row : {Row{2304, 24, 24, "F=18.522,I=18.086,W=9.337", 601, .1585, .0433},
                         Row{2304, 24, 32, "F=18.513,I=18.086,W=9.331", 626, .1242, .0039},
                         Row{4096, 32, 24, "F=29.718,I=29.444,W=19.927", 527, .1323, .0029},
                         Row{4096, 32, 32, "F=29.802,I=29.428,W=19.530", 577, .1045, .0022}}) {
    const int64_t f = 34 * row.hidden + 5 * row.heads * 1024, w = -32 * row.hidden;
    for (const int64_t times : {1, 2}) {
      PipelineRequest r = Request("auto", 8, row.m, row.cost);
      r.costs.hop = {row.hop, 3};
      r.memory = MemorySpec{{f, 0}, {w, 0}};
      r.cap_bytes = Decimal{times * 8 * f, 0};
      const PipelinePlan plan = Plan(r);
      INFO("h " << row.hidden << " m " << row.m << ", " << times << " p f: " << plan.bubble_span);
      CHECK(plan.bubble_span <= (times == 1 ? row.zb1p : row.zb2p) + 0.001);
      for (const double peak : plan.peak_bytes) CHECK(peak <= times * 8 * static_cast<double>(f));
    }
    // What the same paper measured for the hand-made ones.
    const double published[3] = {row.hidden == 2304 ? (row.m == 24 ? .2431 : .1985) : (row.m == 24 ? .2347 : .1898),
                                 row.hidden == 2304 ? (row.m == 24 ? .1585 : .1242) : (row.m == 24 ? .1323 : .1045),
                                 row.hidden == 2304 ? (row.m == 24 ? .1083 : .0837) : (row.m == 24 ? .0698 : .0559)};
    const char* const names[3] = {"1f1b", "zb-h1", "zb-h2"};
    for (int i = 0; i < 3; ++i) {
      PipelineRequest r = Request(names[i], 8, row.m, row.cost);
      r.costs.hop = {row.hop, 3};
      INFO(names[i]);
      CHECK(Plan(r).bubble_span == Approx(published[i]).margin(0.00006));
    }
  }
}

TEST_CASE("auto: never worse than a hand-made schedule of the same placement within the same cap") {
  for (const auto& [p, m] : std::vector<std::pair<int32_t, int32_t>>{{4, 8}, {3, 9}}) {
    for (const std::string cost : {"F=10,I=12,W=7", "F=10,I=12,W=7,FB=0.8"}) {
      for (const int64_t hop : {1, 10, 40}) {
        for (const std::string& name : PipelineScheduleNames()) {
          if (name == "auto" || name == "forward-only") continue;
          const PipelinePlan hand = Plan(Request(name, p, m, cost, hop));
          PipelineRequest r = Request("auto", p, m, cost, hop);
          r.chunks = hand.chunks;
          if (hand.chunks == 2) r.placement = name == "zbv" || name == "dualpipe-v" ? "v" : "loop";
          const double cap = *std::max_element(hand.peak_activations.begin(), hand.peak_activations.end());
          r.cap_activations = *ParseDecimal("cap", absl::StrCat(cap));
          const PipelinePlan plan = Plan(r);
          INFO(name << " p " << p << " m " << m << " " << cost << " hop " << hop << " cap " << cap << ": " << plan.makespan << " against "
                    << hand.makespan);
          CHECK(plan.makespan <= hand.makespan);
          if (plan.makespan == hand.makespan) CHECK(plan.span <= hand.span);
          for (const double peak : plan.peak_activations) CHECK(peak <= cap);
        }
      }
    }
  }
}

TEST_CASE("auto: within any cap from the smallest on, with any number of stages a worker") {
  for (const int32_t v : {1, 2, 3}) {
    double before = 1e9;
    for (const int64_t cap_halves : {2, 3, 4, 5, 6, 8, 12}) {
      PipelineRequest r = Request("auto", 3, 6, "F=4,I=5,W=3", 10);
      r.chunks = v;
      r.cap_activations = Decimal{cap_halves * 5, 1};
      const PipelinePlan plan = Plan(r);
      for (const double peak : plan.peak_activations) CHECK(peak <= 0.5 * static_cast<double>(cap_halves));
      INFO("v " << v << " cap " << 0.5 * static_cast<double>(cap_halves) << ": " << plan.makespan << " after " << before);
      CHECK(plan.makespan <= before * 1.05);
      before = plan.makespan;
    }
  }
  // Memory that I adds to.
  PipelineRequest r = Request("auto", 3, 6, "F=4,I=5,W=3", 10);
  r.chunks = 2;
  r.memory = *ParseMemory("f=10,w=-30");
  r.cap_bytes = Decimal{20, 0};
  const PipelinePlan plan = Plan(r);
  for (const double peak : plan.peak_bytes) CHECK(peak <= 20);
  r.cap_bytes = Decimal{19, 0};
  const auto refused = PlanPipeline(r);
  CHECK(std::string(refused.status().message()).find("the smallest that works is 20") != std::string::npos);
}

TEST_CASE("list scheduler: with any rules everything gets done within the cap") {
  std::mt19937 rng(9);
  for (int round = 0; round < 3000; ++round) {
    const int32_t p = 1 + rng() % 4, v = 1 + rng() % 4, m = 1 + rng() % 8;
    const std::vector<int32_t> worker_of = v == 2 && rng() % 2 == 0 ? VPlacement(p) : LoopPlacement(p, v);
    PipelineCosts costs;
    for (auto* list : {&costs.forward, &costs.input, &costs.weight}) {
      for (size_t s = 0; s < worker_of.size(); ++s) list->push_back(rng() % 3 == 0 ? 0 : rng() % 20);
    }
    costs.hop = rng() % 2 == 0 ? 0 : rng() % 30;
    costs.pair_numerator = 1 + rng() % 2;
    const MemoryUse use = rng() % 2 == 0 ? ActivationUse(v) : MemoryUse{10, -static_cast<int64_t>(rng() % 30), 1};
    const int64_t smallest = SmallestPeak(use, v);
    const int64_t cap = rng() % 4 == 0 ? kNoCap : smallest + static_cast<int64_t>(rng() % (1 + 2 * smallest));
    ListRules rules;
    for (size_t s = 0; s < worker_of.size(); ++s) rules.window.push_back(1 + rng() % m);
    rules.forward_late = rng() % 5;
    rules.weight_late = rng() % 5;
    rules.forward_first = rng() % 2 == 0;
    rules.deep_first = rng() % 2 == 0;
    rules.pairs = rng() % 2 == 0;
    PipelineSchedule s;
    s.workers = p;
    s.microbatches = m;
    s.worker_of = worker_of;
    ListScheduler lister(worker_of, p, m, costs, use, cap);
    s.orders = lister.Run(rules);
    INFO("round " << round << " p " << p << " v " << v << " m " << m << " cap " << cap);
    const absl::Status whole = CheckSchedule(s);
    INFO(whole.message());
    REQUIRE(whole.ok());
    const auto times = Evaluate(s, costs);
    REQUIRE(times.ok());
    CHECK(times->makespan <= lister.end());
    for (const auto& order : s.orders) CHECK(PeakOf(order, use) <= cap);
  }
}

TEST_CASE("auto: the same every time") {
  const PipelineRequest r = Request("auto", 4, 8, "F=10,I=12,W=7", 13);
  CHECK(Plan(r).schedule.orders == Plan(r).schedule.orders);
}

}  // namespace weft
