#include "driver/plan/overlap.h"

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

// Three senders whose own tasks take no time, one receiver; links and computes of 10 ms.
GraphBuilder Three(v1::Overlap overlap) {
  GraphBuilder b;
  for (int i = 0; i < 3; ++i) {
    b.Actor(absl::StrCat("s", i), absl::StrCat("w", i));
    b.Node(absl::StrCat("make", i), absl::StrCat("s", i));
  }
  b.Actor("receiver", "w3", 0.010);
  for (int i = 0; i < 3; ++i) {
    b.Node(absl::StrCat("use", i), "receiver", {absl::StrCat("make", i)});
    b.Output(absl::StrCat("out", i), absl::StrCat("use", i));
  }
  b.options().mutable_emulate()->set_latency_s(0.010);
  b.options().set_overlap(overlap);
  return b;
}

TEST_CASE("predicted times of the three-sender test are the hand formulas") {
  const auto about = [](double s) { return Approx(s).epsilon(1e-6); };
  CHECK(PredictSeconds(Three(v1::OFF).CompileOk(), 20, 1) == about(0.060));
  CHECK(PredictSeconds(Three(v1::ON).CompileOk(), 20, 1) == about(0.040));
  CHECK(PredictSeconds(Three(v1::ON).CompileOk(), 20, 4) == about(0.030));
  CHECK(PredictSeconds(Three(v1::AUTO).CompileOk(), 20, 4) == about(0.030));
}

TEST_CASE("overlap off: transfers and computes wait for each other, also across executions") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p0", "a");
  b.Node("p1", "a");
  b.Node("q0", "b", {"p0"});
  b.Node("q1", "b", {"p1"});
  b.Comm("p0", "q0");
  b.Comm("p1", "q1");
  b.options().set_overlap(v1::OFF);
  const Plan plan = b.CompileOk();
  MustRun(plan);
  const auto waits = [&](const char* name) { return WaitsOf(plan, OpNamed(plan, name)); };
  // Program: p0 S0 p1 S1 on w0, R0 q0 R1 q1 on w1.
  CHECK(waits("COMPUTE p0") == "NO_OVERLAP SEND p1:0 -> q1:0 @1, BUFFER SEND p0:0 -> q0:0 @1");
  CHECK(waits("COMPUTE p1") == "NO_OVERLAP SEND p0:0 -> q0:0, BUFFER SEND p1:0 -> q1:0 @1");
  CHECK(waits("RECV p0:0 -> q0:0") == "NO_OVERLAP COMPUTE q1 @1, BUFFER COMPUTE q0 @1");
  CHECK(waits("RECV p1:0 -> q1:0") == "NO_OVERLAP COMPUTE q0, BUFFER COMPUTE q1 @1");
  CHECK(waits("SEND p0:0 -> q0:0") == "DATA COMPUTE p0");
  for (const PlanOp& op : plan.ops) CHECK(op.slots == 1);

  b.options().set_overlap(v1::ON);
  const Plan on = b.CompileOk();
  MustRun(on);
  for (const PlanOp& op : on.ops) {
    for (const PlanWait& w : op.waits) CHECK(w.reason != v1::PlanWait::NO_OVERLAP);
  }
  CHECK(WaitsOf(on, OpNamed(on, "RECV p1:0 -> q1:0")) == "BUFFER COMPUTE q1 @2");
}

TEST_CASE("overlap off for one node or one edge holds there alone") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p0", "a");
  b.Node("p1", "a");
  b.Node("q0", "b", {"p0"});
  b.Node("q1", "b", {"p1"}).set_overlap(v1::OFF);
  b.Comm("p0", "q0");
  b.Comm("p1", "q1");
  const Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(WaitsOf(plan, OpNamed(plan, "RECV p0:0 -> q0:0")) == "BUFFER COMPUTE q0 @2");
  CHECK(WaitsOf(plan, OpNamed(plan, "RECV p1:0 -> q1:0")) == "NO_OVERLAP COMPUTE q0, BUFFER COMPUTE q1 @1");
  CHECK(OpNamed(plan, "RECV p1:0 -> q1:0").slots == 1);
  CHECK(OpNamed(plan, "RECV p0:0 -> q0:0").slots == 2);
}

TEST_CASE("overlap off holds collectives too") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("g0", "a");
  b.Node("g1", "b");
  b.AllReduce("sum", {"g0", "g1"});
  b.Node("u0", "a", {"g0"});
  b.Node("u1", "b", {"+sum"});
  b.options().set_overlap(v1::OFF);
  const Plan off = b.CompileOk();
  MustRun(off);
  CHECK(WaitsOf(off, OpNamed(off, "COMPUTE u0")) == "DATA COMPUTE g0, NO_OVERLAP ALL_REDUCE sum");
  b.options().set_overlap(v1::ON);
  const Plan on = b.CompileOk();
  MustRun(on);
  CHECK(WaitsOf(on, OpNamed(on, "COMPUTE u0")) == "DATA COMPUTE g0");
}

// "Overlap micro-cases": P, x, C and S, R buffers. A slot of S is held from the start of the producing task to the end of the transfer.
TEST_CASE("one producer, one transfer, one consumer: known makespans") {
  const auto makespan = [](double p, double x, double c, int64_t m, v1::Overlap overlap) {
    GraphBuilder b;
    b.Actor("p", "w0", p / 1000).Actor("c", "w1", c / 1000);
    b.Node("make", "p");
    b.Node("take", "c", {"make"});
    b.options().set_overlap(overlap);
    b.options().mutable_emulate()->set_latency_s(x / 1000);
    SimOptions options;
    options.executions = m;
    options.in_flight = 1000;
    const auto result = Simulate(b.CompileOk(), CostModel::Default(), options);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    return static_cast<double>(result->makespan) / 1e6;
  };
  for (const auto& [p, x, c, m, off, on] : std::vector<std::array<double, 6>>{
           {10, 5, 10, 10, 160, 115}, {4, 5, 10, 10, 154, 109}, {5, 10, 5, 10, 155, 110}, {10, 10, 10, 20, 410, 220}}) {
    CHECK(makespan(p, x, c, static_cast<int64_t>(m), v1::OFF) == Approx(off));
    CHECK(makespan(p, x, c, static_cast<int64_t>(m), v1::ON) == Approx(on));
  }
}

TEST_CASE("overlap off over ipc: the producer waits for no consumer; a plan in which it does for ever is refused") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("p2", "a");
  b.Node("q", "b", {"p2"});
  b.Node("q2", "b", {"q", "p"});
  b.options().set_overlap(v1::OFF);
  b.Edge("p", "q2").set_transport(v1::IPC);
  b.Edge("p2", "q").set_transport(v1::IPC);
  Plan plan = b.CompileOk(TestCluster({"h0", "h0"}, "cuda"));
  MustRun(plan);
  CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE p2")) == "BUFFER WRITE p2:0 -> q:0 @1");
  // w1 takes p's value only after q, which needs p2's.
  for (PlanOp& op : plan.ops) {
    if (OpName(plan, op) == "COMPUTE p2") op.waits.push_back({OpNamed(plan, "WRITE p:0 -> q2:1").id, 0, v1::PlanWait::NO_OVERLAP});
    if (OpName(plan, op) == "READ p:0 -> q2:1") op.waits.push_back({OpNamed(plan, "COMPUTE q").id, 0, v1::PlanWait::NO_OVERLAP});
  }
  const absl::Status s = Verify(plan);
  CHECK(Contains(s, "V4"));
  CHECK(Contains(s, "which alone ends w0: WRITE p:0 -> q2:1"));
}

}  // namespace
}  // namespace weft
