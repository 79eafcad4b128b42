#include "driver/simulate/predict.h"

#include <catch2/catch.hpp>

#include "driver/plan/test_plan.h"
#include "driver/plan/verify.h"

namespace weft {
namespace {

// Producer on w0, transfer, consumer on w1, one item an execution.
Plan OneItem(double p, double x, double c, int32_t send_slots, int32_t recv_slots, bool output = true) {
  TestPlan t(2);
  const int32_t make = t.Compute("make", 0, {}, p, send_slots);
  TestPlan::EdgeOptions o;
  o.slots = recv_slots;
  o.seconds = x;
  const TestPlan::Ends ends = t.Transfer(make, 1, o);
  const int32_t use = t.Compute("use", 1, {{ends.in}}, c);
  if (output) t.Output({use}, "result");
  Plan plan = t.Finish();
  const absl::Status verified = Verify(plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  return plan;
}

Prediction PredictOf(const Plan& plan, int32_t in_flight, int64_t executions = 0) {
  const absl::StatusOr<Prediction> p = Predict(plan, CostModel::Default(), {in_flight, executions});
  INFO(p.status().message());
  REQUIRE(p.ok());
  return *p;
}

}  // namespace

TEST_CASE("predict: the overlap micro-cases as executions that follow each other") {
  struct Row {
    double p, x, c;
    int m;
    int64_t makespan[4];  // S,R = 1,1  2,1  1,2  2,2
  };
  const Row rows[] = {
      {10, 5, 10, 10, {160, 160, 160, 115}},
      {4, 5, 10, 10, {154, 154, 109, 109}},
      {5, 10, 5, 10, {155, 155, 155, 110}},
      {10, 10, 10, 20, {410, 410, 410, 220}},
  };
  for (const Row& row : rows) {
    for (int i = 0; i < 4; ++i) {
      const Plan plan = OneItem(row.p, row.x, row.c, 1 + i % 2, 1 + i / 2);
      const Prediction p = PredictOf(plan, row.m, row.m);
      INFO(row.p << "," << row.x << "," << row.c << "," << row.m << " case " << i);
      CHECK(p.makespan == row.makespan[i] * kNanosPerSecond);
      CHECK(p.steady);
      CHECK(p.first_latency == FromSeconds(row.p + row.x + row.c));
      if (i == 0) CHECK(p.period_s == Approx(row.x + std::max(row.p, row.c)).epsilon(1e-12));
      if (i == 3) CHECK(p.period_s == Approx(std::max({row.p, row.x, row.c})).epsilon(1e-12));
    }
  }
}

TEST_CASE("predict: fewer in flight than the pipeline is long") {
  const Plan plan = OneItem(4, 5, 10, 2, 2);
  // One: each execution alone. Two: the second starts at once; from then on the consumer is never idle, and an execution is admitted when
  // the one before the last is done.
  const Prediction one = PredictOf(plan, 1, 3);
  CHECK(one.period_s == 19);
  CHECK(one.latency_s == 19);
  CHECK(one.cycle == 1);
  CHECK(one.warm_up == 0);
  CHECK(one.makespan == 57 * kNanosPerSecond);
  const Prediction two = PredictOf(plan, 2, 3);
  CHECK(two.period_s == 10);
  CHECK(two.makespan == 39 * kNanosPerSecond);
  CHECK(two.first_latency == 19 * kNanosPerSecond);
  CHECK(two.max_latency == 20 * kNanosPerSecond);  // admitted at 19, 29, ... and done at 39, 49, ...
  // What is held back only by credits waits longer for its result.
  const Prediction eight = PredictOf(plan, 8);
  CHECK(eight.executions == 8);
  CHECK(eight.period_s == 10);
  CHECK(eight.max_latency == 80 * kNanosPerSecond);
}

TEST_CASE("predict: far beyond what is simulated, by repetition") {
  const Plan plan = OneItem(4, 5, 10, 2, 2);
  const int64_t many = 1'000'000'000;
  CHECK(PredictOf(plan, 4, many).makespan == (9 + 10 * many) * kNanosPerSecond);
}

TEST_CASE("predict: a cycle of several executions") {
  // Two in flight, the stages a and b on one worker each, with b's lane first taken by a task that does not need a: executions come in
  // pairs, as both are admitted by results that come in pairs.
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0, {}, 3);
  const TestPlan::Ends ends = t.Transfer(a, 1, {2, true, 1});
  const int32_t b = t.Compute("b", 1, {{ends.in}}, 1);
  t.Output({b}, "result");
  const Plan plan = t.Finish();
  const Prediction p = PredictOf(plan, 2, 5);
  // Admitted at 0 0 5 8 11 ...: a of execution k ends at 3(k + 1) as long as two are in flight.
  CHECK(p.steady);
  CHECK(p.period_s == 3);
  CHECK(p.first_latency == 5 * kNanosPerSecond);
  CHECK(p.makespan == 17 * kNanosPerSecond);
}

TEST_CASE("predict: without a repetition it says so") {
  // Nothing holds the first worker back: its executions run ahead of the second's, ever further, and no output is held by it.
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0, {}, 3);
  t.Output({a}, "result");
  t.Compute("b", 1, {}, 5);
  const Plan plan = t.Finish();
  const absl::StatusOr<Prediction> p = Predict(plan, CostModel::Default(), {1, 2, 3 * 64});
  REQUIRE(p.ok());
  CHECK_FALSE(p->steady);
  CHECK(p->period_s == 3);
  CHECK(p->makespan == 6 * kNanosPerSecond);
  const auto beyond = Predict(plan, CostModel::Default(), {1, 1000, 3 * 64});
  CHECK(beyond.status().code() == absl::StatusCode::kResourceExhausted);
  const auto tiny = Predict(plan, CostModel::Default(), {1, 1, 5});
  CHECK(tiny.status().message() == "the plan has 3 ops: to see two executions, at least 6 op runs must be allowed, not 5");
}

}  // namespace weft
