// The numbers of the hand-made schedules, start by start and as a whole.

#include "driver/schedules/fixed.h"

#include <algorithm>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/schedules/pipeline.h"

namespace weft {
namespace {

struct Numbers {
  double makespan = 0, span = 0;
};

PipelinePlan Plan(const std::string& name, int32_t p, int32_t m, const std::string& cost = "F=1,I=1,W=1", int64_t hop = 0,
                  int32_t chunks = 0) {
  PipelineRequest request;
  request.schedule = name;
  request.workers = p;
  request.microbatches = m;
  if (chunks > 0) request.chunks = chunks;
  request.costs = *ParseCosts(cost, name == "forward-only");
  request.costs.hop = {hop, 0};
  const absl::StatusOr<PipelinePlan> plan = PlanPipeline(request);
  INFO(name << ": " << plan.status().message());
  REQUIRE(plan.ok());
  CHECK(plan->costs.exact);
  return *plan;
}

// Makespan, and the span where it is another.
void Expect(const PipelinePlan& plan, double makespan, double span = 0) {
  INFO(plan.schedule.name << " p " << plan.schedule.workers << " m " << plan.schedule.microbatches);
  CHECK(plan.makespan == makespan);
  CHECK(plan.span == (span > 0 ? span : makespan));
}

std::string Starts(const PipelinePlan& plan, int32_t w) {
  std::string out;
  for (size_t i = 0; i < plan.schedule.orders[w].size(); ++i) {
    absl::StrAppend(&out, PassName(plan.schedule, plan.schedule.orders[w][i]), "@", plan.costs.ToUnits(plan.times.start[w][i]), " ");
  }
  return absl::StrCat(out, "end ", plan.costs.ToUnits(plan.times.last[w]));
}

}  // namespace

TEST_CASE("schedules: makespan and span at F = I = W = 1 without hops") {
  struct Row {
    int32_t p, m;
    double gpipe, one, interleaved, bfs, h1;
    Numbers h2, zbv;
    double dual;
  };
  for (const Row& r : {Row{2, 2, 9, 9, 7.5, 7.5, 7, {}, {7, 7}, 0}, Row{2, 4, 15, 15, 13.5, 13.5, 13, {13, 12}, {12.5, 12}, 13},
                       Row{4, 4, 21, 21, 16.5, 16.5, 15, {}, {15, 15}, 0}, Row{4, 8, 33, 33, 28.5, 28.5, 27, {27, 24}, {25.5, 24}, 27},
                       Row{4, 12, 45, 45, 40.5, 40.5, 39, {39, 36}, {37.5, 36}, 39}}) {
    Expect(Plan("gpipe", r.p, r.m), r.gpipe);
    Expect(Plan("1f1b", r.p, r.m), r.one);
    Expect(Plan("eager-1f1b", r.p, r.m), r.one);
    Expect(Plan("interleaved-1f1b", r.p, r.m), r.interleaved);
    Expect(Plan("looped-bfs", r.p, r.m), r.bfs);
    Expect(Plan("zb-h1", r.p, r.m), r.h1);
    if (r.h2.makespan > 0) Expect(Plan("zb-h2", r.p, r.m), r.h2.makespan, r.h2.span);
    Expect(Plan("zbv", r.p, r.m), r.zbv.makespan, r.zbv.span);
    if (r.dual > 0) Expect(Plan("dualpipe-v", r.p, r.m), r.dual);
  }
  Expect(Plan("dualpipe-v", 4, 8, "F=1,I=1,W=1,FB=0.8"), 24);
}

TEST_CASE("schedules: makespan and span at F = 10, I = 12, W = 7 with hops") {
  const std::string cost = "F=10,I=12,W=7", with = cost + ",FB=0.8";
  struct Row {
    int64_t c;
    double gpipe, one, interleaved, bfs, h1;
    Numbers h2, zbv;
    double dual, dual_with;
  };
  for (const Row& r : {Row{0, 319, 319, 275.5, 275.5, 277, {262, 256}, {250, 247}, 269.5, 240.5},
                       Row{1, 325, 335, 289.5, 281.5, 289, {265, 262}, {263, 263}, 289.5, 260.5},
                       Row{4, 343, 383, 331.5, 299.5, 327, {280, 280}, {315.5, 315.5}, 355.5, 326.5}}) {
    INFO("c " << r.c);
    Expect(Plan("gpipe", 4, 8, cost, r.c), r.gpipe);
    Expect(Plan("1f1b", 4, 8, cost, r.c), r.one);
    Expect(Plan("interleaved-1f1b", 4, 8, cost, r.c), r.interleaved);
    Expect(Plan("looped-bfs", 4, 8, cost, r.c), r.bfs);
    Expect(Plan("zb-h1", 4, 8, cost, r.c), r.h1);
    Expect(Plan("zb-h2", 4, 8, cost, r.c), r.h2.makespan, r.h2.span);
    Expect(Plan("zbv", 4, 8, cost, r.c), r.zbv.makespan, r.zbv.span);
    Expect(Plan("dualpipe-v", 4, 8, cost, r.c), r.dual);
    Expect(Plan("dualpipe-v", 4, 8, with, r.c), r.dual_with);
  }
  Expect(Plan("eager-1f1b", 4, 8, cost, 1), 325);
  Expect(Plan("eager-1f1b", 4, 8, cost, 4), 343);
  Expect(Plan("eager-1f1b", 4, 8, "F=10,I=12,W=8", 2), 342);
}

TEST_CASE("schedules: peak activations at p = 4, m = 8") {
  const std::map<std::string, std::vector<double>> peaks = {{"forward-only", {8, 8, 8, 8}},
                                                            {"gpipe", {8, 8, 8, 8}},
                                                            {"1f1b", {4, 3, 2, 1}},
                                                            {"eager-1f1b", {7, 5, 3, 1}},
                                                            {"interleaved-1f1b", {5.5, 4.5, 3.5, 2.5}},
                                                            {"looped-bfs", {8, 8, 8, 8}},
                                                            {"zb-h1", {4, 4, 4, 4}},
                                                            {"zb-h2", {7, 7, 7, 7}},
                                                            {"zbv", {4, 4, 4, 4}},
                                                            {"dualpipe-v", {4.5, 4.5, 4.5, 4.5}}};
  for (const auto& [name, peak] : peaks) {
    INFO(name);
    CHECK(Plan(name, 4, 8).peak_activations == peak);
  }
}

TEST_CASE("schedules: golden orders") {
  const PipelinePlan h1 = Plan("zb-h1", 2, 4);
  CHECK(Starts(h1, 0) == "F0@0 F1@1 I0@3 W0@4 F2@5 I1@6 W1@7 F3@8 I2@9 W2@10 I3@11 W3@12 end 13");
  CHECK(Starts(h1, 1) == "F0@1 I0@2 F1@3 I1@4 W0@5 F2@6 I2@7 W1@8 F3@9 I3@10 W2@11 W3@12 end 13");
  const PipelinePlan one = Plan("1f1b", 2, 4);
  CHECK(Starts(one, 0) == "F0@0 F1@1 B0@4 F2@6 B1@7 F3@9 B2@10 B3@13 end 15");
  CHECK(Starts(one, 1) == "F0@1 B0@2 F1@4 B1@5 F2@7 B2@8 F3@10 B3@11 end 13");
}

TEST_CASE("schedules: closed forms") {
  struct Costs {
    double f, i, w;
  };
  for (const Costs& cost : {Costs{1, 1, 1}, Costs{10, 12, 7}, Costs{9, 4, 6}}) {
    const double t = cost.f + cost.i + cost.w;
    const std::string text = absl::StrCat("F=", cost.f, ",I=", cost.i, ",W=", cost.w);
    for (const auto& [p, m] : std::vector<std::pair<int32_t, int32_t>>{{1, 3}, {2, 4}, {3, 6}, {4, 8}, {4, 16}, {6, 18}, {8, 16}}) {
      INFO("p " << p << " m " << m << " " << text);
      Expect(Plan("gpipe", p, m, text), (m + p - 1) * t);
      Expect(Plan("1f1b", p, m, text), (m + p - 1) * t);
      Expect(Plan("eager-1f1b", p, m, text), (m + p - 1) * t);
      for (const int32_t v : {1, 2, 3}) {
        Expect(Plan("interleaved-1f1b", p, m, text, 0, v), m * t + (p - 1) * t / v);
        Expect(Plan("looped-bfs", p, m, text, 0, v), m * t + (p - 1) * t / v);
      }
      CHECK(Plan("zb-h1", p, m, text).makespan == m * t + (p - 1) * (cost.f + std::max(cost.i - cost.w, 0.0)));
      if (m < 2 * p - 1) continue;
      const double more = cost.f + cost.i - 2 * cost.w;
      CHECK(Plan("zb-h2", p, m, text).span == m * t + (p - 1) * std::max(more, 0.0));
      CHECK(Plan("zb-h2", p, m, text).makespan == m * t + (p - 1) * std::max(cost.f, more));
      if (cost.f == cost.i && cost.i == cost.w) {
        CHECK(Plan("zbv", p, m, text).span == m * t);
        CHECK(Plan("zbv", p, m, text).makespan == m * t + (p - 1) * cost.f / 2);
      }
      // Small hops, in tenths of a pass.
      const std::string large = absl::StrCat("F=", 100 * cost.f, ",I=", 100 * cost.i, ",W=", 100 * cost.w);
      const double c = 1, tt = 100 * t;
      CHECK(Plan("gpipe", p, m, large, 1).makespan == (m + p - 1) * tt + 2 * (p - 1) * c);
      if (p > 1) CHECK(Plan("1f1b", p, m, large, 1).makespan == (m + p - 1) * tt + (2 * (p - 2) + 2.0 * (p - 1) * m / p) * c);
      CHECK(Plan("eager-1f1b", p, m, large, 1).makespan == (m + p - 1) * tt + 2 * (p - 1) * c);
      // Where I is longer than W the hops are in the way, as in the tables; otherwise W hides a part of them.
      if (m >= 2 * p && cost.i >= cost.w) {
        CHECK(Plan("zb-h1", p, m, large, 1).makespan == m * tt + 100 * (p - 1) * (cost.f + cost.i - cost.w) + 4 * (p - 1) * c);
      }
    }
  }
}

TEST_CASE("schedules: forwards of stages that differ, and hops between them") {
  Expect(Plan("forward-only", 2, 8, "F=10"), 20 + 7 * 10, 80);
  Expect(Plan("forward-only", 2, 8, "F=10", 3), 93, 80);
  Expect(Plan("forward-only", 4, 8, "F=10", 3), 119, 80);
  const PipelinePlan uneven = Plan("forward-only", 4, 16, "F=3:7:2:5", 2);
  CHECK(uneven.makespan == 3 + 7 + 2 + 5 + 15 * 7 + 3 * 2);
}

TEST_CASE("schedules: every one is whole and runs to its end, whatever p, m and the costs are") {
  for (const std::string& name : PipelineScheduleNames()) {
    if (name == "auto") continue;
    for (int32_t p = 1; p <= 6; ++p) {
      for (int32_t m = 1; m <= 14; ++m) {
        for (const std::string cost : {"F=1,I=1,W=1", "F=3,I=0,W=5", "F=0,I=2,W=0.125"}) {
          PipelineRequest request;
          request.schedule = name;
          request.workers = p;
          request.microbatches = m;
          request.costs = *ParseCosts(cost, false);
          request.costs.hop = {7, 1};
          const absl::StatusOr<PipelinePlan> plan = PlanPipeline(request);
          INFO(name << " p " << p << " m " << m << ": " << plan.status().message());
          const bool refused = (name == "interleaved-1f1b" && m % p != 0) || (name == "dualpipe-v" && m < 2 * p);
          REQUIRE(plan.ok() == !refused);
          if (refused) {
            CHECK(plan.status().message().find("the smallest that works is") != std::string::npos);
            continue;
          }
          CHECK(plan->span <= plan->makespan);
          CHECK(plan->span * p >=
                plan->costs.ToUnits(plan->costs.PerMicrobatch(name == "forward-only")) * m * (name == "dualpipe-v" ? 0 : 1) - 1e-9);
        }
      }
    }
  }
}

TEST_CASE("schedules: a microbatch number that does not fit is refused with the one that does") {
  CHECK(Interleaved(4, 10, 2).status().message() ==
        "interleaved-1f1b on 4 workers needs a multiple of 4 microbatches, not 10: the smallest that works is 4, the next above 10 is 12");
  CHECK(DualPipeV(4, 7).status().message() == "dualpipe-v on 4 workers needs at least 8 microbatches, not 7: the smallest that works is 8");
}

}  // namespace weft
