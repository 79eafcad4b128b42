#include "worker/run/program.h"

#include <catch2/catch.hpp>

#include "worker/run/test_plan.h"

namespace weft {
namespace {

TestPlan Chain() {
  TestPlan t({"w0", "w1"});
  const int actor = t.Actor("x");
  const int in = t.Edge(1, 0);
  const int out = t.Edge(0, 1);
  const int read = t.Receive(in);
  const int a = t.Compute("a", actor, "m", {{read, 0}});
  const int b = t.Compute("b", actor, "m", {{a, 0}, {read, 0}, {read, 0}});
  t.Send(out, {b, 0});
  return t;
}

std::string ErrorOf(const TestPlan& t) { return std::string(BuildProgram(t.plan).status().message()); }

TEST_CASE("program: lanes, arguments and readers") {
  const TestPlan t = Chain();
  const auto p = BuildProgram(t.plan);
  REQUIRE(p.ok());
  CHECK(p->lanes.size() == 3);
  CHECK(p->ops[0].readers == std::vector<int>{1, 2});  // b reads it twice and counts once
  CHECK(p->ops[1].readers == std::vector<int>{2});
  CHECK(p->ops[2].readers == std::vector<int>{3});
  CHECK(p->ops[3].readers.empty());
}

TEST_CASE("program: what does not resolve is refused with the op's name") {
  TestPlan t = Chain();
  t.plan.ops[1].args[0].op = 2;
  CHECK(ErrorOf(t).find("COMPUTE a") != std::string::npos);
  t = Chain();
  t.plan.ops[2].args[0].output = 7;
  CHECK(ErrorOf(t).find("output 7") != std::string::npos);
  t = Chain();
  t.plan.ops[1].waits[0].op = 99;
  CHECK(ErrorOf(t).find("99") != std::string::npos);
  t = Chain();
  t.plan.ops[1].waits[0].distance = -1;
  CHECK(ErrorOf(t).find("negative") != std::string::npos);
  t = Chain();
  t.plan.ops[1].waits[0] = {3, 0, v1::PlanWait::BUFFER};
  CHECK(ErrorOf(t).find("later op") != std::string::npos);
  t = Chain();
  t.plan.ops[1].slots = 0;
  CHECK(ErrorOf(t).find("slots") != std::string::npos);
  t = Chain();
  t.plan.ops[1].lane = v1::LANE_SEND;
  CHECK(ErrorOf(t).find("lane") != std::string::npos);
  t = Chain();
  t.plan.ops[3].edge = 12;
  CHECK(ErrorOf(t).find("edge 12") != std::string::npos);
  t = Chain();
  std::swap(t.plan.edges[0].src_worker, t.plan.edges[0].dst_worker);
  CHECK(ErrorOf(t).find("does not end at this worker") != std::string::npos);
  t = Chain();
  t.plan.part_of = -1;
  CHECK_FALSE(ErrorOf(t).empty());
}

TEST_CASE("program: ops of other workers are left out") {
  TestPlan t = Chain();
  PlanOp foreign = t.plan.ops[1];
  foreign.id = 10;
  foreign.worker = 1;
  t.plan.ops.push_back(foreign);
  CHECK(BuildProgram(t.plan)->ops.size() == 4);
}

}  // namespace
}  // namespace weft
