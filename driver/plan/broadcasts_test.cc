#include "driver/plan/broadcasts.h"

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

int Broadcasts(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.groups.begin(), plan.groups.end(), [](const PlanGroup& g) { return g.op == v1::BROADCAST; }));
}

int Sends(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.ops.begin(), plan.ops.end(), [](const PlanOp& o) { return o.kind == v1::SEND; }));
}

CostModel Costs(Nanos transfer) {
  CostModel m = CostModel::Default();
  m.transfer = [transfer](const Plan&, const PlanEdge& e) { return e.transport == v1::GLOO ? transfer : 0; };
  return m;
}

Plan MustCompile(const GraphBuilder& b, const CostModel& costs) {
  v1::Graph graph = const_cast<GraphBuilder&>(b).graph();
  const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph), nullptr, costs);
  INFO(plan.status().message());
  REQUIRE(plan.ok());
  const absl::Status verified = Verify(*plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  const auto back = PlanFromText(PlanToText(*plan));
  REQUIRE(back.ok());
  CHECK(PlanToText(*back) == PlanToText(*plan));
  return *plan;
}

// One value of w0 for one call on each of `workers` others, over Gloo.
GraphBuilder FanOut(int workers) {
  GraphBuilder b;
  b.Actor("a", "w0", 0.001);
  b.Node("make", "a").mutable_config()->set_shape("[256]");
  for (int w = 1; w <= workers; ++w) {
    b.Actor(absl::StrCat("b", w), absl::StrCat("w", w), 0.001);
    b.Node(absl::StrCat("use", w), absl::StrCat("b", w), {"make"});
    b.Comm("make", absl::StrCat("use", w));
    b.Output(absl::StrCat("y", w), absl::StrCat("use", w));
  }
  return b;
}

}  // namespace

TEST_CASE("broadcasts: where a tree is lower than the sends are many, and only if transfers take time") {
  CHECK(Broadcasts(MustCompile(FanOut(5), Costs(0))) == 0);
  CHECK(Broadcasts(MustCompile(FanOut(1), Costs(4'000'000))) == 0);
  CHECK(Broadcasts(MustCompile(FanOut(2), Costs(4'000'000))) == 0);  // two steps instead of two sends
  for (const int n : {3, 5, 7}) {
    INFO(n << " receivers");
    const Plan plan = MustCompile(FanOut(n), Costs(4'000'000));
    REQUIRE(Broadcasts(plan) == 1);
    CHECK(Sends(plan) == 0);
    const PlanGroup& g = plan.groups[0];
    CHECK(g.name == "broadcast+make:0");
    CHECK(g.transport == v1::GLOO);
    CHECK(g.members.size() == static_cast<size_t>(n) + 1);
    CHECK(g.root_rank == 0);
    CHECK(g.member_nodes[0] == "make");
    CHECK(g.member_nodes[1] == "room+make:0+use1");
    const int high = n == 3 ? 2 : 3;
    CHECK(CollectiveCost(Costs(4'000'000), plan, g) == high * 4'000'000);
    // Faster, as predicted, than with sends.
    GraphBuilder apart = FanOut(n);
    for (v1::Edge& e : *apart.graph().mutable_edge()) e.set_broadcast(false);
    const Plan sends = MustCompile(apart, Costs(4'000'000));
    CHECK(Broadcasts(sends) == 0);
    CHECK(Sends(sends) == n);
    const auto with = Simulate(plan, Costs(4'000'000), {8, 0, false}), without = Simulate(sends, Costs(4'000'000), {8, 0, false});
    REQUIRE(with.ok());
    REQUIRE(without.ok());
    CHECK(with->makespan < without->makespan);
  }
}

TEST_CASE("broadcasts: edge by edge they can be had and left out") {
  GraphBuilder b = FanOut(5);
  b.graph().mutable_edge(2)->set_broadcast(false);
  b.graph().mutable_edge(3)->set_overlap(v1::OFF);  // which a broadcast could not keep to
  const Plan some = MustCompile(b, Costs(4'000'000));
  REQUIRE(Broadcasts(some) == 1);
  CHECK(some.groups[0].members == std::vector<int32_t>{0, 1, 2, 5});
  CHECK(Sends(some) == 2);
  // Wanted though nothing says that it is cheaper.
  GraphBuilder forced = FanOut(3);
  forced.graph().mutable_edge(0)->set_broadcast(true);
  CHECK(Broadcasts(MustCompile(forced, Costs(0))) == 0);  // one alone is none
  forced.graph().mutable_edge(2)->set_broadcast(true);
  const Plan two = MustCompile(forced, Costs(0));
  REQUIRE(Broadcasts(two) == 1);
  CHECK(two.groups[0].members == std::vector<int32_t>{0, 1, 3});
  CHECK(Sends(two) == 1);
}

TEST_CASE("broadcasts: between GPU workers over NCCL as over Gloo, and edge by edge where a value goes both ways") {
  const auto compile = [](GraphBuilder b, const Cluster& cluster, Nanos transfer) {
    CostModel costs = CostModel::Default();
    costs.transfer = [transfer](const Plan&, const PlanEdge& e) { return e.transport == v1::NCCL ? transfer : 0; };
    const auto plan = Compile(b.graph(), ClassTable::Std(), cluster, nullptr, costs);
    INFO(plan.status().message());
    REQUIRE(plan.ok());
    MustRun(*plan);
    return *plan;
  };
  const auto over = [](v1::Transport t) {
    GraphBuilder b = FanOut(5);
    for (v1::Edge& e : *b.graph().mutable_edge()) e.set_transport(t);
    return b;
  };
  const Cluster gpus = TestCluster(std::vector<std::string>(6, "h0"), "cuda");
  CHECK(Broadcasts(compile(over(v1::NCCL), gpus, 0)) == 0);
  CHECK(Broadcasts(compile(over(v1::IPC), gpus, 4'000'000)) == 0);
  const Plan plan = compile(over(v1::NCCL), gpus, 4'000'000);
  REQUIRE(Broadcasts(plan) == 1);
  CHECK(Sends(plan) == 0);
  CHECK(plan.groups[0].transport == v1::NCCL);
  CHECK(plan.groups[0].members.size() == 6);
  // Gloo between GPU workers stays as it is: no communicator joins them so.
  GraphBuilder gloo = over(v1::GLOO);
  for (v1::Edge& e : *gloo.graph().mutable_edge()) e.set_broadcast(true);
  CHECK(Broadcasts(compile(gloo, gpus, 4'000'000)) == 0);
  // Captured too; and CPU workers that take the value keep their edges.
  GraphBuilder captured = over(v1::NCCL);
  for (v1::Edge& e : *captured.graph().mutable_edge()) e.set_broadcast(true);
  captured.options().set_launch(v1::GRAPH);
  CHECK(Broadcasts(compile(captured, gpus, 0)) == 1);
  GraphBuilder mixed = over(v1::NCCL);
  mixed.graph().mutable_edge(1)->set_transport(v1::SHM);
  Cluster some = gpus;
  some.workers[2].device = "cpu";
  const Plan both = compile(mixed, some, 4'000'000);
  REQUIRE(Broadcasts(both) == 1);
  CHECK(both.groups[0].members == std::vector<int32_t>{0, 1, 3, 4, 5});
}

TEST_CASE("broadcasts: not over other transports, not of values without a fixed size") {
  GraphBuilder b = FanOut(5);
  for (v1::Edge& e : *b.graph().mutable_edge()) e.set_transport(v1::SHM);
  CHECK(Broadcasts(MustCompile(b, Costs(4'000'000))) == 0);
  GraphBuilder bounded;
  bounded.Input("x", "[?<=256]");
  bounded.Actor("a", "w0", 0.001);
  bounded.Node("make", "a", {"<x"});
  for (int w = 1; w <= 5; ++w) {
    bounded.Actor(absl::StrCat("b", w), absl::StrCat("w", w), 0.001);
    bounded.Node(absl::StrCat("use", w), absl::StrCat("b", w), {"make"});
    bounded.Comm("make", absl::StrCat("use", w));
    bounded.Output(absl::StrCat("y", w), absl::StrCat("use", w));
  }
  CHECK(Broadcasts(MustCompile(bounded, Costs(4'000'000))) == 0);
}

}  // namespace weft
