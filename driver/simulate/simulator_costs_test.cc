// What the cost model can say beside plain times, each with its numbers worked out by hand. One unit is a second.

#include <limits>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/plan/test_plan.h"
#include "driver/plan/verify.h"
#include "driver/simulate/bytes_over_time.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

constexpr Nanos kUnit = kNanosPerSecond;

SimResult Run(const Plan& plan, const CostModel& costs, int64_t executions, int32_t in_flight = 100, bool barrier = false) {
  const absl::Status verified = Verify(plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  SimOptions options;
  options.executions = executions;
  options.in_flight = in_flight;
  options.end_barrier = barrier;
  const absl::StatusOr<SimResult> r = Simulate(plan, costs, options);
  INFO(r.status().message());
  REQUIRE(r.ok());
  return *r;
}

// "0-10 10-20": when an op ran, execution after execution, in units.
std::string Times(const SimResult& r, int32_t op) {
  std::string out;
  for (const SimEvent& e : r.events) {
    if (e.op == op) absl::StrAppend(&out, out.empty() ? "" : " ", ToSeconds(e.start), "-", ToSeconds(e.end));
  }
  return out;
}

template <typename T>
auto Always(double seconds) {
  return [seconds](const Plan&, const T&) { return FromSeconds(seconds); };
}

// P (10) on w0, C (10) on w1, and the edge between them.
struct Pair {
  TestPlan t{2};
  int32_t p, c;
  TestPlan::Ends x;
  Plan plan;

  explicit Pair(bool rendezvous, double seconds = 0, int32_t slots = 4) {
    p = t.Compute("P", 0, {}, 10, slots);
    x = t.Transfer(p, 1, {slots, rendezvous, seconds});
    c = t.Compute("C", 1, {{x.in}}, 10, slots);
    plan = t.Finish();
  }
};

}  // namespace

TEST_CASE("latency holds no lane, occupancy does") {
  const Pair pair(false);
  CostModel costs = CostModel::Default();
  costs.transfer = Always<PlanEdge>(2);
  costs.latency = Always<PlanEdge>(5);
  costs.read = Always<PlanEdge>(1);
  SimResult r = Run(pair.plan, costs, 2);
  CHECK(Times(r, pair.x.out) == "10-12 20-22");
  CHECK(Times(r, pair.x.in) == "17-18 27-28");
  CHECK(Times(r, pair.c) == "18-28 28-38");
  CHECK(r.execution_start == std::vector<Nanos>{0, 10 * kUnit});
  CHECK(r.execution_end == std::vector<Nanos>{28 * kUnit, 38 * kUnit});

  // A transfer that takes longer than a task holds up the next one; its latency does not.
  costs.transfer = Always<PlanEdge>(15);
  costs.latency = Always<PlanEdge>(100);
  costs.read = nullptr;
  r = Run(pair.plan, costs, 3);
  CHECK(Times(r, pair.x.out) == "10-25 25-40 40-55");
  CHECK(Times(r, pair.c) == "125-135 140-150 155-165");

  // A credit comes back when the reader is done, however long the value was under way.
  const Pair tight(false, 0, 1);
  r = Run(tight.plan, costs, 2);
  CHECK(Times(r, tight.x.out) == "10-25 135-150");
  CHECK(Times(r, tight.c) == "125-135 250-260");
}

TEST_CASE("a result's way to the client comes before the next execution, and holds no lane") {
  TestPlan t{1};
  const int32_t p = t.Compute("P", 0, {}, 10, 4);
  const int32_t out = t.Output({p, 0}, "result");
  const Plan plan = t.Finish();
  CostModel costs = CostModel::Default();
  costs.transfer = Always<PlanEdge>(2);
  costs.latency = Always<PlanEdge>(5);
  SimResult r = Run(plan, costs, 3, 1);
  CHECK(Times(r, p) == "0-10 17-27 34-44");
  CHECK(r.done == std::vector<Nanos>{17 * kUnit, 34 * kUnit, 51 * kUnit});
  r = Run(plan, costs, 3, 2);
  CHECK(Times(r, p) == "0-10 10-20 20-30");
  CHECK(Times(r, out) == "10-12 20-22 30-32");
  CHECK(r.done == std::vector<Nanos>{17 * kUnit, 27 * kUnit, 37 * kUnit});
}

TEST_CASE("over ipc the reader copies, and the writer's buffer is free when it has") {
  // The micro-case 10, 5, 10 with ten items: S buffers of P's, R of the edge.
  const auto makespan = [](int32_t s, int32_t r) {
    TestPlan t(2);
    t.plan().workers[0].device = t.plan().workers[1].device = "cuda";
    const int32_t p = t.Compute("P", 0, {}, 10, s);
    const auto x = t.Transfer(p, 1, {r, false, 0, v1::IPC});
    const int32_t c = t.Compute("C", 1, {{x.in}}, 10);
    Plan plan = t.Finish();
    plan.ops[x.in].waits.push_back({c, r, v1::PlanWait::BUFFER});
    plan.peak_bytes = {16ull * s, 16ull * (r + 2)};
    CostModel costs = CostModel::Default();
    costs.transfer = Always<PlanEdge>(5);
    const SimResult result = Run(plan, costs, 10);
    CHECK(Times(result, x.out).substr(0, 5) == "10-10");
    CHECK(Times(result, x.in).substr(0, 5) == "10-15");
    const std::vector<WorkerBytes> bytes = BytesOverTime(plan, result);
    CHECK(bytes[0].peak == 16ull * s);
    CHECK(bytes[0].curve.back().at == result.makespan - 10 * kUnit);  // the last copy's end
    return result.makespan / kUnit;
  };
  CHECK(makespan(1, 1) == 160);
  CHECK(makespan(2, 1) == 160);
  CHECK(makespan(1, 2) == 160);
  CHECK(makespan(2, 2) == 115);
}

TEST_CASE("first use costs more, once") {
  const Pair pair(true, 5);
  CostModel costs = CostModel::Default();
  costs.first_call = [](const Plan&, const PlanNode& n) { return n.name == "P" ? 7 * kUnit : 0; };
  SimResult r = Run(pair.plan, costs, 3);
  CHECK(Times(r, pair.p) == "0-17 17-27 27-37");
  CHECK(Times(r, pair.x.in) == "17-22 27-32 37-42");
  costs = CostModel::Default();
  costs.first_transfer = Always<PlanEdge>(3);
  r = Run(pair.plan, costs, 2);
  CHECK(Times(r, pair.x.out) == "10-18 20-25");
  CHECK(Times(r, pair.x.in) == "10-18 20-25");

  TestPlan t(3);
  const int32_t a = t.Compute("a", 0, {}, 1);
  const auto one = t.Transfer(a, 1, {2, true, 1}), two = t.Transfer(a, 1, {2, true, 1}), other = t.Transfer(a, 2, {2, true, 1});
  t.Compute("b", 1, {{one.in}, {two.in}});
  const int32_t c = t.Compute("c", 2, {{other.in}});
  const auto g = t.Reduce("g", {a, c});
  costs = CostModel::Default();
  costs.first_contact = Always<PlanEdge>(10);
  costs.collective = Always<PlanGroup>(2);
  costs.first_collective = Always<PlanGroup>(4);
  r = Run(t.Finish(), costs, 2, 1);
  // The first edge from w0 to w1 pays, the second does not; w0 to w2 is another connection.
  CHECK(Times(r, one.out) == "1-12 31-32");
  CHECK(Times(r, two.out) == "12-13 32-33");
  CHECK(Times(r, other.out) == "13-24 33-34");
  CHECK(Times(r, g[0]) == "24-30 34-36");
}

TEST_CASE("contention: computations beside a transfer go slower while it lasts") {
  // w1: K (100) runs from 0; a transfer of 50 comes in at 10.
  const auto build = [](double k) {
    TestPlan t(2);
    const int32_t p = t.Compute("P", 0, {}, 10);
    const auto x = t.Transfer(p, 1, {2, true, 50});
    t.Compute("K", 1, {}, k);
    t.Compute("C", 1, {{x.in}}, 10);
    return t.Finish();
  };
  const Plan plan = build(100);
  CostModel costs = CostModel::Default();
  costs.contention = {{v1::LANE_COMPUTE, "", v1::TRANSPORT_UNSPECIFIED, v1::LANE_RECV, v1::TRANSPORT_UNSPECIFIED, 2'000'000}};
  // 10 at full speed, 50 at half, so 65 are left at 60.
  SimResult r = Run(plan, costs, 1);
  CHECK(Times(r, 3) == "0-125");
  CHECK(Times(r, 4) == "125-135");
  CHECK(r.makespan == 135 * kUnit);
  CHECK(r.busy[1] == 135 * kUnit);
  // Of another node, of another transport: nothing.
  costs.contention[0].node = "C";
  CHECK(Run(plan, costs, 1).makespan == 110 * kUnit);
  costs.contention[0].node = "K";
  CHECK(Run(plan, costs, 1).makespan == 135 * kUnit);
  costs.contention[0].beside_transport = v1::NCCL;
  CHECK(Run(plan, costs, 1).makespan == 110 * kUnit);
  costs.contention[0].beside_transport = v1::SHM;
  CHECK(Run(plan, costs, 1).makespan == 135 * kUnit);
  // The larger of two factors holds.
  costs.contention.push_back(costs.contention[0]);
  costs.contention[1].factor = 5'000'000;  // 10 + 50/5 done at 60: 80 left
  CHECK(Times(Run(plan, costs, 1), 3) == "0-140");
  // A transfer is slowed at either end: here by K, which runs to 100. By then 45 are done, and 5 are left at full speed.
  costs.contention = {{v1::LANE_RECV, "", v1::TRANSPORT_UNSPECIFIED, v1::LANE_COMPUTE, v1::TRANSPORT_UNSPECIFIED, 2'000'000}};
  CHECK(Times(Run(plan, costs, 1), 2) == "10-105");
}

TEST_CASE("contention: times are whole nanoseconds, rounded up") {
  TestPlan t(2);
  const int32_t a = t.Compute("A", 0), b = t.Compute("B", 1);
  t.Reduce("g", {a, b});
  t.Compute("K", 0);
  CostModel costs;
  costs.compute = [](const Plan&, const PlanNode& n) -> Nanos { return n.name == "K" ? 1000 : 0; };
  costs.contention = {{v1::LANE_COMPUTE, "", v1::TRANSPORT_UNSPECIFIED, v1::LANE_COLLECTIVE, v1::GLOO, 1'180'000}};
  const Plan plan = t.Finish();
  const auto end = [&](Nanos collective) {
    costs.collective = [=](const Plan&, const PlanGroup&) { return collective; };
    return Run(plan, costs, 1).makespan;
  };
  CHECK(end(0) == 1000);
  CHECK(end(118) == 1018);   // 100 done in 118
  CHECK(end(5000) == 5000);
  CHECK(end(100) == 1016);   // 84.745762 done, 915.254238 left
  costs.contention[0].factor = 999'999;
  CHECK(Simulate(plan, costs, {1, 1, true}).status().code() == absl::StatusCode::kInvalidArgument);
  costs.contention.assign(65, costs.contention[0]);
  CHECK(Simulate(plan, costs, {1, 1, true}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("end barrier: an execution starts when all of the last one is done") {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0, {}, 1);
  t.Output({a}, "y");
  const int32_t b = t.Compute("b", 1, {}, 10);
  const Plan plan = t.Finish();
  const CostModel costs = CostModel::Default();
  CHECK(Times(Run(plan, costs, 3, 1), a) == "0-1 1-2 2-3");
  CHECK(Times(Run(plan, costs, 3, 1, true), a) == "0-1 10-11 20-21");
  CHECK(Times(Run(plan, costs, 3, 8, true), b) == "0-10 10-20 20-30");
  CHECK(Run(plan, costs, 3, 8, true).seconds_per_execution == 10);
}

TEST_CASE("bytes over time") {
  const Pair pair(true, 5, 2);
  const CostModel costs = CostModel::Default();
  SimResult r = Run(pair.plan, costs, 2);
  std::vector<WorkerBytes> b = BytesOverTime(pair.plan, r);
  using Curve = std::vector<BytesPoint>;
  // P's value k from P's start to the end of its SEND: [0, 15], [10, 25].
  CHECK(b[0].curve == Curve{{0, 16}, {10 * kUnit, 32}, {15 * kUnit, 16}, {25 * kUnit, 0}});
  CHECK(b[0].peak == 32);
  CHECK(b[0].peak_at == 10 * kUnit);
  // Received: [10, 25], [20, 35]; C's own: [15, 25], [25, 35].
  CHECK(b[1].curve == Curve{{0, 0}, {10 * kUnit, 16}, {15 * kUnit, 32}, {20 * kUnit, 48}, {25 * kUnit, 32}, {35 * kUnit, 0}});
  CHECK(b[1].peak == 48);
  CHECK(b[1].peak_at == 20 * kUnit);

  // Memory that both ends share is the writer's, until the reader is done.
  const Pair shared(false, 0, 2);
  b = BytesOverTime(shared.plan, Run(shared.plan, costs, 1));
  CHECK(b[0].curve == Curve{{0, 16}, {20 * kUnit, 0}});
  CHECK(b[1].curve == Curve{{0, 0}, {10 * kUnit, 16}, {20 * kUnit, 0}});
  // Without events there is nothing to say.
  b = BytesOverTime(shared.plan, SimResult());
  CHECK(b.size() == 2);
  CHECK(b[0].peak == 0);
}

}  // namespace weft
