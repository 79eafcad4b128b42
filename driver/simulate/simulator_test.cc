#include "driver/simulate/simulator.h"

#include <algorithm>
#include <limits>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/plan/test_plan.h"
#include "driver/plan/verify.h"
#include "driver/simulate/timeline.h"

namespace weft {
namespace {

constexpr Nanos kUnit = kNanosPerSecond;  // one unit of the tables

SimResult Run(const Plan& plan, int64_t executions, int32_t in_flight = 1000, const CostModel& costs = CostModel::Default()) {
  const absl::Status verified = Verify(plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  absl::StatusOr<SimResult> r = Simulate(plan, costs, {executions, in_flight, true});
  INFO(r.status().message());
  REQUIRE(r.ok());
  // The cheap form says the same.
  absl::StatusOr<SimResult> plain = Simulate(plan, costs, {executions, in_flight, false});
  REQUIRE(plain.ok());
  CHECK(plain->events.empty());
  CHECK(plain->makespan == r->makespan);
  CHECK(plain->execution_end == r->execution_end);
  return *std::move(r);
}

// P on w0, transfer, C on w1.
Plan ProducerConsumer(double p, double x, double c, int32_t send_buffers, int32_t recv_buffers) {
  TestPlan t(2);
  const int32_t from = t.Compute("P", 0, {}, p, send_buffers);
  const auto move = t.Transfer(from, 1, {recv_buffers, true, x});
  t.Compute("C", 1, {{move.in}}, c);
  return t.Finish();
}

// A chain of stages on workers of their own, one microbatch an execution. Buffered edges with one slot per microbatch and `hop` on the
// send lane, or emulated links.
Plan Chain(const std::vector<double>& stages, double hop, bool rendezvous, int32_t buffers) {
  TestPlan t(static_cast<int32_t>(stages.size()));
  int32_t v = t.Compute("F0", 0, {}, stages[0], buffers);
  for (size_t i = 1; i < stages.size(); ++i) {
    const auto move = t.Transfer(v, static_cast<int32_t>(i), {buffers, rendezvous, hop});
    v = t.Compute(absl::StrCat("F", i), static_cast<int32_t>(i), {{move.in}}, stages[i], buffers);
  }
  if (rendezvous && buffers == 1) t.NoOverlap();
  return t.Finish();
}

CostModel WithTransfer(Nanos hop) {
  CostModel costs = CostModel::Default();
  costs.transfer = [hop](const Plan&, const PlanEdge&) { return hop; };
  return costs;
}

// One call of a pipeline's step.
struct Call {
  char what;  // 'F', 'I', 'W', or 'B': I and W at once
  int micro;
  double cost;
};

// One execution of a backward pipeline over workers with one stage each: F(s, k) after F(s-1, k), I or B (s, k) after F(s, k) and after
// I or B (s+1, k), W after I. Lists are run strictly in order. A READ stands right before its consumer: the recv lane is a queue too, and a
// READ placed early would hold up the one that is needed first.
Plan Pipeline(const std::vector<std::vector<Call>>& lists) {
  const int p = static_cast<int>(lists.size());
  TestPlan t(p);
  std::vector<size_t> next(p, 0);
  std::vector<std::vector<int32_t>> forward(p, std::vector<int32_t>(64, -1)), backward = forward, in = forward, grad = forward;
  const auto send = [&](int32_t op, int32_t to) {
    const int32_t e = t.Edge({op}, to, {2, false});
    t.Out(e, {op});
    return e;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (int r = 0; r < p; ++r) {
      while (next[r] < lists[r].size()) {
        const Call& c = lists[r][next[r]];
        std::vector<PlanValue> args;
        if (c.what == 'F' && r > 0) {
          if (in[r][c.micro] < 0) break;
          args.push_back({t.In(in[r][c.micro])});
        }
        if (c.what == 'I' || c.what == 'B') {
          if (forward[r][c.micro] < 0 || (r + 1 < p && grad[r][c.micro] < 0)) break;
          args.push_back({forward[r][c.micro]});
          if (r + 1 < p) args.push_back({t.In(grad[r][c.micro])});
        }
        if (c.what == 'W') {
          if (backward[r][c.micro] < 0) break;
          args.push_back({backward[r][c.micro]});
        }
        const int32_t op = t.Compute(absl::StrCat(std::string(1, c.what), c.micro, "s", r), r, args, c.cost);
        if (c.what == 'F') {
          forward[r][c.micro] = op;
          if (r + 1 < p) in[r + 1][c.micro] = send(op, r + 1);
        } else if (c.what != 'W') {
          backward[r][c.micro] = op;
          if (r > 0) grad[r - 1][c.micro] = send(op, r - 1);
        }
        ++next[r];
        moved = true;
      }
    }
  }
  for (int r = 0; r < p; ++r) REQUIRE(next[r] == lists[r].size());
  return t.Finish();
}

std::vector<std::vector<Call>> OneF1B(int p, int m, double f, double b, int warm_up_factor = 1) {
  std::vector<std::vector<Call>> lists(p);
  for (int r = 0; r < p; ++r) {
    const int warm = std::min(warm_up_factor * (p - 1 - r), m);
    int fw = 0, bw = 0;
    while (fw < warm) lists[r].push_back({'F', fw++, f});
    while (fw < m) {
      lists[r].push_back({'F', fw++, f});
      lists[r].push_back({'B', bw++, b});
    }
    while (bw < m) lists[r].push_back({'B', bw++, b});
  }
  return lists;
}

std::vector<std::vector<Call>> GPipe(int p, int m, double f, double b) {
  std::vector<std::vector<Call>> lists(p);
  for (auto& list : lists) {
    for (int k = 0; k < m; ++k) list.push_back({'F', k, f});
    for (int k = 0; k < m; ++k) list.push_back({'B', k, b});
  }
  return lists;
}

// "F0@0 F1@1 ...": the compute ops of a worker with their starts, in units.
std::string Starts(const Plan& plan, const SimResult& r, int32_t worker) {
  std::string out;
  for (const SimEvent& e : r.events) {
    const PlanOp& o = plan.ops[e.op];
    if (o.worker != worker || o.kind != v1::COMPUTE) continue;
    const std::string& name = plan.nodes[o.node].name;
    absl::StrAppend(&out, out.empty() ? "" : " ", name.substr(0, name.find('s')), "@", e.start / kUnit);
  }
  return out;
}

}  // namespace

TEST_CASE("overlap micro-cases") {
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
      const Plan plan = ProducerConsumer(row.p, row.x, row.c, 1 + i % 2, 1 + i / 2);
      INFO(row.p << "," << row.x << "," << row.c << "," << row.m << " case " << i);
      const SimResult r = Run(plan, row.m);
      CHECK(r.makespan == row.makespan[i] * kUnit);
      const double full = row.p + row.x + row.c + (row.m - 1) * std::max({row.p, row.x, row.c});
      const double none = row.p + (row.m - 1) * (row.x + std::max(row.p, row.c)) + row.x + row.c;
      if (i == 0) CHECK(r.makespan == FromSeconds(none));
      if (i == 3) CHECK(r.makespan == FromSeconds(full));
    }
  }
}

TEST_CASE("forward only: closed forms, and blocking rendezvous against asynchronous hops") {
  CHECK(Run(Chain({10, 10}, 0, false, 8), 8).makespan == (20 + 7 * 10) * kUnit);
  CHECK(Run(Chain({3, 7, 2, 5}, 0, false, 16), 16).makespan == (17 + 15 * 7) * kUnit);
  // + (p-1) c.
  CHECK(Run(Chain({10, 10}, 0, false, 8), 8, 1000, WithTransfer(3 * kUnit)).makespan == 93 * kUnit);
  CHECK(Run(Chain({10, 10, 10, 10}, 0, false, 8), 8, 1000, WithTransfer(3 * kUnit)).makespan == 119 * kUnit);
  // The same over rendezvous links with two buffers a side.
  CHECK(Run(Chain({10, 10, 10, 10}, 3, true, 2), 8).makespan == 119 * kUnit);
  CHECK(Run(Chain({10, 10}, 3, true, 1), 8).makespan == 114 * kUnit);
  CHECK(Run(Chain({10, 10, 10, 10}, 3, true, 1), 8).makespan == 161 * kUnit);
}

TEST_CASE("pipelines with a backward pass") {
  for (const auto& [p, m] : std::vector<std::pair<int, int>>{{2, 2}, {2, 4}, {4, 4}, {4, 8}, {4, 12}}) {
    INFO("p " << p << " m " << m);
    CHECK(Run(Pipeline(GPipe(p, m, 1, 2)), 1).makespan == (m + p - 1) * 3 * kUnit);
    CHECK(Run(Pipeline(OneF1B(p, m, 1, 2)), 1).makespan == (m + p - 1) * 3 * kUnit);
  }
  struct Row {
    int c, gpipe, one;
  };
  for (const Row& row : {Row{0, 319, 319}, Row{1, 325, 335}, Row{4, 343, 383}}) {
    CHECK(Run(Pipeline(GPipe(4, 8, 10, 19)), 1, 1, WithTransfer(row.c * kUnit)).makespan == row.gpipe * kUnit);
    CHECK(Run(Pipeline(OneF1B(4, 8, 10, 19)), 1, 1, WithTransfer(row.c * kUnit)).makespan == row.one * kUnit);
  }
  CHECK(Run(Pipeline(OneF1B(4, 8, 10, 19, 2)), 1, 1, WithTransfer(1 * kUnit)).makespan == 325 * kUnit);
  CHECK(Run(Pipeline(OneF1B(4, 8, 10, 19, 2)), 1, 1, WithTransfer(4 * kUnit)).makespan == 343 * kUnit);
  CHECK(Run(Pipeline(OneF1B(4, 8, 10, 20, 2)), 1, 1, WithTransfer(2 * kUnit)).makespan == 342 * kUnit);
}

TEST_CASE("golden orders of 1F1B and ZB-H1, start by start") {
  const Plan one = Pipeline(OneF1B(2, 4, 1, 2));
  const SimResult r1 = Run(one, 1);
  CHECK(Starts(one, r1, 0) == "F0@0 F1@1 B0@4 F2@6 B1@7 F3@9 B2@10 B3@13");
  CHECK(Starts(one, r1, 1) == "F0@1 B0@2 F1@4 B1@5 F2@7 B2@8 F3@10 B3@11");
  CHECK(r1.makespan == 15 * kUnit);
  CHECK(r1.span == std::vector<Nanos>{15 * kUnit, 12 * kUnit});
  CHECK(r1.busy == std::vector<Nanos>{12 * kUnit, 12 * kUnit});

  const auto list = [](const std::string& text) {
    std::vector<Call> calls;
    for (size_t i = 0; i + 1 < text.size(); i += 2) calls.push_back({text[i], text[i + 1] - '0', 1});
    return calls;
  };
  const Plan zb = Pipeline({list("F0F1I0W0F2I1W1F3I2W2I3W3"), list("F0I0F1I1W0F2I2W1F3I3W2W3")});
  const SimResult r2 = Run(zb, 1);
  CHECK(Starts(zb, r2, 0) == "F0@0 F1@1 I0@3 W0@4 F2@5 I1@6 W1@7 F3@8 I2@9 W2@10 I3@11 W3@12");
  CHECK(Starts(zb, r2, 1) == "F0@1 I0@2 F1@3 I1@4 W0@5 F2@6 I2@7 W1@8 F3@9 I3@10 W2@11 W3@12");
  CHECK(r2.makespan == 13 * kUnit);
}

TEST_CASE("three senders and a receiver: without overlap, with it, and with several in flight") {
  const auto build = [](bool overlap) {
    TestPlan t(4);
    std::vector<TestPlan::Ends> moves;
    for (int i = 0; i < 3; ++i) {
      const int32_t make = t.Compute(absl::StrCat("make", i), i);
      moves.push_back(t.Transfer(make, 3, {2, true, 0.010}));
    }
    int32_t last = -1, first_in = -1;
    for (int i = 0; i < 3; ++i) {
      const int32_t c = t.Compute(absl::StrCat("square", i), 3, {{moves[i].in}}, 0.010);
      if (!overlap && last >= 0) t.Wait(moves[i].in, last, 0, v1::PlanWait::NO_OVERLAP);
      if (first_in < 0) first_in = moves[i].in;
      t.Output({c}, absl::StrCat("out", i));
      last = c;
    }
    if (!overlap) t.Wait(first_in, last, 1, v1::PlanWait::NO_OVERLAP);
    return t.Finish();
  };
  CHECK(Run(build(false), 20, 1).seconds_per_execution == Approx(0.060).epsilon(1e-12));
  CHECK(Run(build(true), 20, 1).seconds_per_execution == Approx(0.040).epsilon(1e-12));
  CHECK(Run(build(true), 20, 4).seconds_per_execution == Approx(0.030).epsilon(1e-12));
  // 0 in flight: as the plan's options say, which is 4.
  CHECK(Run(build(true), 20, 0).seconds_per_execution == Approx(0.030).epsilon(1e-12));
  CHECK(Run(build(true), 1, 1).seconds_per_execution == Approx(0.040).epsilon(1e-12));
}

TEST_CASE("credits hold a buffered producer, collectives wait for all, outputs admit") {
  {
    // The consumer takes 5; the producer may be `slots` values ahead.
    TestPlan t(2);
    const int32_t a = t.Compute("a", 0, {}, 1, 8);
    const auto move = t.Transfer(a, 1, {2, false});
    t.Compute("b", 1, {{move.in}}, 5);
    const Plan plan = t.Finish();
    const SimResult r = Run(plan, 6);
    std::vector<Nanos> writes;
    for (const SimEvent& e : r.events) {
      if (e.op == move.out) writes.push_back(e.start / kUnit);
    }
    CHECK(writes == std::vector<Nanos>{1, 2, 6, 11, 16, 21});
  }
  {
    TestPlan t(3);
    const auto g = t.Reduce("g", {t.Compute("a", 0, {}, 1), t.Compute("b", 1, {}, 7), t.Compute("c", 2, {}, 3)});
    const int32_t d = t.Compute("d", 0, {{g[0]}}, 1);
    CostModel costs = CostModel::Default();
    costs.collective = [](const Plan&, const PlanGroup&) { return 2 * kUnit; };
    const SimResult r = Run(t.Finish(), 1, 1, costs);
    CHECK(r.makespan == 10 * kUnit);
    for (const SimEvent& e : r.events) {
      if (e.op == g[2]) CHECK((e.start == 7 * kUnit && e.end == 9 * kUnit));
      if (e.op == d) CHECK(e.start == 9 * kUnit);
    }
  }
  {
    // The output is there after 1; what else the execution does takes until 10, and does not delay the next admission.
    TestPlan t(2);
    t.Output({t.Compute("a", 0, {}, 1)}, "y");
    t.Compute("b", 1, {}, 10);
    const SimResult r = Run(t.Finish(), 3, 1);
    CHECK(r.execution_end == std::vector<Nanos>{10 * kUnit, 20 * kUnit, 30 * kUnit});
    std::vector<Nanos> starts;
    for (const SimEvent& e : r.events) {
      if (e.op == 0) starts.push_back(e.start / kUnit);
    }
    CHECK(starts == std::vector<Nanos>{0, 1, 2});
  }
  {
    // Without outputs every op counts.
    TestPlan t(2);
    t.Compute("a", 0, {}, 1);
    t.Compute("b", 1, {}, 10);
    CHECK(Run(t.Finish(), 3, 1).execution_end == std::vector<Nanos>{10 * kUnit, 20 * kUnit, 30 * kUnit});
  }
}

TEST_CASE("emulated links: latency and bandwidth, by rendezvous, both lanes held") {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0, {}, 1, 2, {TestSpec(v1::U8, {1000})});
  const auto move = t.Transfer(a, 1, {2, true, 0.5});
  t.Compute("b", 1, {{move.in}});
  Plan plan = t.Finish();
  plan.edges[0].emulate_bandwidth = 2000;
  const SimResult r = Run(plan, 1);
  for (const SimEvent& e : r.events) {
    if (e.op == move.out || e.op == move.in) CHECK((e.start == kUnit && e.end == 2 * kUnit));
  }
  CHECK(r.makespan == 2 * kUnit);
  CHECK(std::is_sorted(r.events.begin(), r.events.end(), [](const SimEvent& x, const SimEvent& y) { return x.start < y.start; }));
}

TEST_CASE("a standstill names the heads of the lanes and what they wait for") {
  TestPlan t(2);
  const int32_t f0 = t.Compute("F0", 0), f1 = t.Compute("F1", 0);
  const int32_t e0 = t.Edge({f0}, 1, {2, true}), e1 = t.Edge({f1}, 1, {2, true});
  t.Out(e0, {f0});
  t.Out(e1, {f1});
  t.Compute("a", 1, {{t.In(e1)}});
  t.Compute("b", 1, {{t.In(e0)}});
  const Plan plan = t.Finish();
  CHECK_FALSE(Verify(plan).ok());
  const absl::StatusOr<SimResult> r = Simulate(plan, CostModel::Default(), {3, 2, true});
  REQUIRE(r.status().code() == absl::StatusCode::kFailedPrecondition);
  const std::string text(r.status().message());
  INFO(text);
  CHECK(text.find("w0 send0: SEND F0:0 -> b:0 of execution 0 is issued and waits for w1: RECV F0:0 -> b:0") != std::string::npos);
  CHECK(text.find("w1 recv0: RECV F1:0 -> a:0 of execution 0 is issued and waits for w0: SEND F1:0 -> a:0") != std::string::npos);
  CHECK(text.find("w1 compute: COMPUTE a of execution 0 waits for w1: RECV F1:0 -> a:0 of execution 0 (DATA)") != std::string::npos);
  CHECK(text.find("w0 compute: COMPUTE F0 of execution 2 is not admitted") != std::string::npos);
}

TEST_CASE("what cannot be simulated is refused") {
  const Plan plan = ProducerConsumer(1, 1, 1, 2, 2);
  const CostModel costs = CostModel::Default();
  CHECK(Simulate(plan, costs, {0, 1, true}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Simulate(plan, costs, {1, -1, true}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Simulate(plan, costs, {int64_t{1} << 60, 1, true}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Simulate(plan, costs, {int64_t{1} << 60, 1, false}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Simulate(PartOf(plan, 0), costs, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CostModel negative = costs;
  negative.compute = [](const Plan&, const PlanNode&) -> Nanos { return -1; };
  CHECK(Simulate(plan, negative, {}).status().message().find("node P") != std::string::npos);
  CHECK(Simulate(plan, CostModel{}, {10, 2, true})->makespan == 0);
  CHECK(Simulate(Plan{}, costs, {5, 2, true})->makespan == 0);
  // Times saturate.
  CostModel huge = costs;
  huge.compute = [](const Plan&, const PlanNode&) { return std::numeric_limits<Nanos>::max() - 5; };
  CHECK(Simulate(plan, huge, {10, 2, true})->makespan == std::numeric_limits<Nanos>::max());
  Plan broken = plan;
  broken.ops[1].args[0].op = 99;
  CHECK(Simulate(broken, costs, {}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("timeline: one predicted track a worker") {
  const Plan plan = ProducerConsumer(10, 5, 10, 2, 2);
  const SimResult r = Run(plan, 2);
  const std::vector<v1::TraceTrack> tracks = PredictedTimeline(plan, r);
  REQUIRE(tracks.size() == 2);
  CHECK(tracks[1].worker() == "w1");
  CHECK(tracks[1].predicted());
  REQUIRE(tracks[1].event_size() == 4);
  const v1::TraceEvent& e = tracks[1].event(0);
  CHECK(e.name() == "RECV P:0 -> C:0");
  CHECK(e.kind() == v1::RECV);
  CHECK(e.lane() == v1::LANE_RECV);
  CHECK(e.start_ns() == 10 * kUnit);
  CHECK(e.end_ns() == 15 * kUnit);
  CHECK(tracks[1].event(3).name() == "C");
  CHECK(tracks[1].event(3).execution() == 1);
  // Results that do not belong to the plan are left out, not followed.
  SimResult other;
  other.events.push_back({77, 0, 0, 0});
  CHECK(PredictedTimeline(plan, other)[0].event_size() == 0);
}

// Run with [.bench] to see the time.
TEST_CASE("ten thousand executions of a thousand ops", "[.bench]") {
  const Plan plan = Chain(std::vector<double>(334, 0.001), 0, false, 2);
  const absl::StatusOr<SimResult> r = Simulate(plan, CostModel::Default(), {10000, 8, false});
  REQUIRE(r.ok());
  CHECK(r->makespan > 0);
}

}  // namespace weft
