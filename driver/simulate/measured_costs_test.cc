#include "driver/simulate/measured_costs.h"

#include <catch2/catch.hpp>

#include "driver/plan/test_plan.h"
#include "driver/simulate/cost_file.h"
#include "driver/simulate/predict.h"
#include "driver/simulate/simulator.h"
#include "driver/simulate/timeline.h"

namespace weft {
namespace {

// A rendezvous edge and a buffered one from w0 to w1, a collective over what they come to, and an output.
Plan Both() {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0), b = t.Compute("b", 0, {{a}});
  const TestPlan::Ends met = t.Transfer(a, 1, {2, true}), buffered = t.Transfer(b, 1, {2, false});
  const int32_t c = t.Compute("c", 1, {{met.in}}), d = t.Compute("d", 1, {{buffered.in}});
  const std::vector<int32_t> sum = t.Reduce("sum", {b, d});
  t.Output({t.Compute("e", 1, {{c}, {sum[1]}})}, "y");
  return t.Finish();
}

CostModel Costs() {
  CostModel m = CostModel::Default();
  m.compute = [](const Plan&, const PlanNode& n) { return 1000 * (n.id + 1); };
  m.transfer = [](const Plan&, const PlanEdge& e) { return e.rendezvous ? 5000 : e.dst_worker == kClient ? 70 : 600; };
  m.collective = [](const Plan&, const PlanGroup&) { return 2500; };
  return m;
}

std::vector<v1::TraceTrack> TraceOf(const Plan& plan, const CostModel& costs, int64_t executions) {
  const auto r = Simulate(plan, costs, {executions, 2, true});
  REQUIRE(r.ok());
  std::vector<v1::TraceTrack> tracks = PredictedTimeline(plan, *r);
  for (v1::TraceTrack& t : tracks) t.set_predicted(false);
  return tracks;
}

}  // namespace

TEST_CASE("measured costs: a run by known costs gives these costs back, and the same prediction") {
  const Plan plan = Both();
  std::vector<v1::TraceTrack> tracks = TraceOf(plan, Costs(), 12);
  // Another clock on w1.
  for (v1::TraceEvent& e : *tracks[1].mutable_event()) {
    e.set_start_ns(e.start_ns() + 1'000'000);
    e.set_end_ns(e.end_ns() + 1'000'000);
  }
  tracks[1].set_clock_offset_ns(-1'000'000);
  const auto measured = CostsFromTrace(plan, tracks);
  INFO(measured.status().message());
  REQUIRE(measured.ok());
  CHECK(measured->first_execution == 0);
  CHECK(measured->executions == 12);
  CHECK(CheckCostValues("measured", measured->costs).ok());
  const absl::Status fits = CheckCosts("measured", measured->costs, plan);
  INFO(fits.message());
  CHECK(fits.ok());
  const CostModel back = MakeCostModel(measured->costs, {}), known = Costs();
  for (const PlanNode& n : plan.nodes) {
    CHECK(back.compute(plan, n) == known.compute(plan, n));
    CHECK(back.first_call(plan, n) == 0);
  }
  for (const PlanEdge& e : plan.edges) {
    INFO(EdgeName(plan, e));
    CHECK(back.transfer(plan, e) == known.transfer(plan, e));
    CHECK(back.latency(plan, e) == 0);
    CHECK(back.read(plan, e) == 0);
  }
  CHECK(back.collective(plan, plan.groups[0]) == 2500);
  const auto p = Predict(plan, back, {2}), q = Predict(plan, known, {2});
  REQUIRE(p.ok());
  REQUIRE(q.ok());
  CHECK(p->cycle_time == q->cycle_time);
  CHECK(p->makespan == q->makespan);
}

TEST_CASE("measured costs: medians, without failed ops") {
  TestPlan t(1);
  t.Output({t.Compute("a", 0)}, "y");
  const Plan plan = t.Finish();
  v1::TraceTrack track;
  track.set_worker("w0");
  const Nanos took[] = {50, 7, 9, 1000, 8, 10};
  for (int k = 0; k < 6; ++k) {
    v1::TraceEvent* e = track.add_event();
    e->set_op(0);
    e->set_execution(k);
    e->set_start_ns(10'000 * k);
    e->set_end_ns(10'000 * k + took[k]);
  }
  v1::TraceEvent* failed = track.add_event();
  failed->set_op(0);
  failed->set_execution(6);
  failed->set_error(true);
  const auto measured = CostsFromTrace(plan, {track});
  REQUIRE(measured.ok());
  CHECK(measured->costs.node(0).time_s() == Approx(9e-9));
  CHECK(measured->costs.node(0).first_s() == Approx(41e-9));
}

TEST_CASE("measured costs: a buffered value's way, where nothing else held its reader up") {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0);
  const TestPlan::Ends ends = t.Transfer(a, 1, {2, false});
  t.Output({t.Compute("b", 1, {{ends.in}})}, "y");
  const Plan plan = t.Finish();
  std::vector<v1::TraceTrack> tracks(2);
  tracks[0].set_worker("w0");
  tracks[1].set_worker("w1");
  const auto add = [&](int32_t op, int64_t k, Nanos start, Nanos end) {
    v1::TraceEvent* e = tracks[plan.ops[op].worker].add_event();
    e->set_op(op);
    e->set_execution(k);
    e->set_start_ns(start);
    e->set_end_ns(end);
  };
  for (const PlanOp& op : plan.ops) {
    if (op.kind == v1::COMPUTE) add(op.id, 1, 0, 10);
  }
  add(ends.out, 1, 100, 160);
  add(ends.in, 1, 200, 230);  // 40 after the write
  add(ends.out, 2, 210, 260);
  add(ends.in, 2, 265, 290);  // 5 after it, and the lane had been free since 230
  add(ends.out, 3, 270, 285);
  add(ends.in, 3, 290, 320);  // at once, but then the lane was still taken when the write ended
  const auto measured = CostsFromTrace(plan, tracks);
  INFO(measured.status().message());
  REQUIRE(measured.ok());
  const v1::EdgeCost* edge = nullptr;
  for (const v1::EdgeCost& e : measured->costs.edge()) edge = e.to() == "b" ? &e : edge;
  REQUIRE(edge != nullptr);
  CHECK(edge->from() == "a");
  CHECK(edge->time_s() == Approx(50e-9));
  CHECK(edge->read_s() == Approx(30e-9));
  CHECK(edge->latency_s() == Approx(5e-9));
}

TEST_CASE("measured costs: what is missing is named") {
  const Plan plan = Both();
  std::vector<v1::TraceTrack> tracks = TraceOf(plan, Costs(), 3);
  CHECK(CostsFromTrace(plan, {tracks[0]}).status().message() ==
        "nothing was recorded on worker w1: compile the graph with its trace on, and execute it at least once");
  std::vector<v1::TraceTrack> failing = tracks;
  for (v1::TraceEvent& e : *failing[1].mutable_event()) e.set_error(e.name() == "d");
  CHECK(CostsFromTrace(plan, failing).status().message() == "no execution in the trace has run node d without an error");
  tracks[0].mutable_event(0)->set_op(-1);
  CHECK(std::string(CostsFromTrace(plan, tracks).status().message()).find("launch STREAM") != std::string::npos);
  // A worker that nobody knows, an op that does not exist, another worker's op.
  v1::TraceTrack strange;
  strange.set_worker("w9");
  strange.add_event()->set_op(3);
  failing = TraceOf(plan, Costs(), 3);
  failing.push_back(strange);
  failing[0].add_event()->set_op(1000);
  CHECK(CostsFromTrace(plan, failing).ok());
}

}  // namespace weft
