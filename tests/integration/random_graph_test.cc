// Any valid graph compiles, verifies, simulates to the end, and runs to the same bits whatever the overlap and the number in flight.

#include <catch2/catch.hpp>

#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"
#include "tests/integration/in_process.h"
#include "tests/integration/random_graph.h"

namespace weft {
namespace {

constexpr int kGraphs = 500;
constexpr int64_t kExecutions = 6;

Tensor MakeInput(const std::string&, int64_t execution) {
  Tensor t = *Tensor::OnHost(v1::F32, {12});
  for (int i = 0; i < 12; ++i) t.as<float>()[i] = static_cast<float>(execution * 100 + i) / 7;
  return t;
}

absl::StatusOr<std::vector<InProcessResult>> CompileAndRun(v1::Graph graph, v1::Overlap overlap, const InProcessOptions& options) {
  graph.mutable_options()->set_overlap(overlap);
  for (v1::Edge& e : *graph.mutable_edge()) {
    if (overlap == v1::OFF) e.clear_overlap();
  }
  absl::StatusOr<Plan> plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph));
  if (!plan.ok()) return plan.status();
  absl::StatusOr<SimResult> sim = Simulate(*plan, CostModel::Default(), {kExecutions, options.in_flight, false});
  if (!sim.ok()) return sim.status();
  return RunInProcess(*plan, options, MakeInput);
}

TEST_CASE("random graphs: same bits with overlap on and off, with 1 and 8 in flight, on both kinds of device") {
  int with_collectives = 0, with_errors = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const v1::Graph graph = RandomGraph(seed, RandomGraphOptions());
    INFO("seed " << seed << "\n" << graph.DebugString());
    with_collectives += graph.collective_size() > 0;
    const auto base = CompileAndRun(graph, v1::OFF, {seed, kExecutions, 1, false});
    if (!base.ok()) FAIL(std::string(base.status().message()));
    for (const InProcessResult& r : *base) {
      for (const auto& [name, v] : r) with_errors += !v.error.empty();
    }
    for (const auto& [overlap, in_flight, queueing] :
         {std::tuple(v1::ON, 1, false), std::tuple(v1::ON, 8, false), std::tuple(v1::OFF, 8, false), std::tuple(v1::ON, 8, true)}) {
      INFO("overlap " << overlap << " in flight " << in_flight << " queueing device " << queueing);
      const auto other = CompileAndRun(graph, overlap, {seed * 7 + in_flight, kExecutions, in_flight, queueing});
      if (!other.ok()) FAIL(std::string(other.status().message()));
      const std::string difference = Differ(*base, *other);
      if (!difference.empty()) FAIL(difference);
    }
  }
  // The generator must reach what the test is about.
  CHECK(with_collectives > kGraphs / 10);
  CHECK(with_errors > kGraphs / 10);
}

TEST_CASE("random graphs: re-planned between two executions, each runs once and to the same bits") {
  int changed = 0;
  for (uint64_t seed = 1; seed <= kGraphs / 2; ++seed) {
    v1::Graph graph = RandomGraph(seed, RandomGraphOptions());
    graph.mutable_options()->set_max_in_flight(3);
    INFO("seed " << seed << "\n" << graph.DebugString());
    graph.mutable_options()->set_order(v1::COST);
    const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph), nullptr, CostModel());  // nothing takes time: as in the file
    if (!plan.ok()) FAIL(std::string(plan.status().message()));
    CostModel costs = CostModel::Default();
    costs.compute = [seed](const Plan&, const PlanNode& n) { return static_cast<Nanos>((n.id * 7919 + seed * 31) % 97); };
    const auto next = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph), nullptr, costs, &*plan);
    if (!next.ok()) FAIL(std::string(next.status().message()));
    changed += next->hash != plan->hash;
    const auto base = RunInProcess(*plan, {seed, kExecutions, 3, false}, MakeInput);
    if (!base.ok()) FAIL(std::string(base.status().message()));
    for (const bool queueing : {false, true}) {
      const auto other = RunInProcess(*plan, {seed * 3, kExecutions, 3, queueing, &*next, 3}, MakeInput);
      if (!other.ok()) FAIL(std::string(other.status().message()));
      const std::string difference = Differ(*base, *other);
      if (!difference.empty()) FAIL(difference);
    }
  }
  CHECK(changed > kGraphs / 10);
}

TEST_CASE("random graphs: fused reductions give the same bits, with overlap on and off, one and several in flight") {
  int fused = 0;
  RandomGraphOptions options;
  options.failures = false;  // an error in a bucket is that of all its results
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    v1::Graph graph = RandomGraph(seed, options);
    if (graph.collective_size() < 2) continue;
    INFO("seed " << seed << "\n" << graph.DebugString());
    const auto base = CompileAndRun(graph, v1::ON, {seed, kExecutions, 3, false});
    if (!base.ok()) FAIL(std::string(base.status().message()));
    graph.mutable_options()->set_bucket_bytes(1 << 20);
    const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph));
    if (!plan.ok()) FAIL(std::string(plan.status().message()));
    fused += static_cast<int>(plan->groups.size()) < graph.collective_size();
    for (const auto& [overlap, in_flight] : {std::pair(v1::ON, 1), {v1::ON, 3}, {v1::OFF, 3}}) {
      const auto other = CompileAndRun(graph, overlap, {seed * 5 + in_flight, kExecutions, in_flight, false});
      if (!other.ok()) FAIL(std::string(other.status().message()));
      const std::string difference = Differ(*base, *other);
      if (!difference.empty()) FAIL(difference);
    }
  }
  CHECK(fused > 0);
}

TEST_CASE("random graphs: values that go by broadcast arrive as they do one by one, errors too") {
  int lowered = 0;
  CostModel costs = CostModel::Default();
  costs.transfer = [](const Plan&, const PlanEdge& e) -> Nanos { return e.transport == v1::GLOO ? 1'000'000 : 0; };
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    v1::Graph graph = RandomGraph(seed, RandomGraphOptions());
    Cluster cluster = ClusterFromGraph(graph);
    for (size_t w = 0; w < cluster.workers.size(); ++w) cluster.workers[w].host_id = "h" + std::to_string(w);  // so that edges go over Gloo
    for (v1::Edge& e : *graph.mutable_edge()) e.clear_emulate();
    graph.mutable_options()->clear_emulate();
    INFO("seed " << seed << "\n" << graph.DebugString());
    const auto apart = Compile(graph, ClassTable::Std(), cluster), together = Compile(graph, ClassTable::Std(), cluster, nullptr, costs);
    if (!apart.ok()) continue;  // an edge of this graph insists on shared memory
    if (!together.ok()) FAIL(std::string(together.status().message()));
    if (together->groups.size() == apart->groups.size()) continue;
    ++lowered;
    const auto base = RunInProcess(*apart, {seed, kExecutions, 3, false}, MakeInput);
    if (!base.ok()) FAIL(std::string(base.status().message()));
    const auto other = RunInProcess(*together, {seed * 5, kExecutions, 3, false}, MakeInput);
    if (!other.ok()) FAIL(std::string(other.status().message()));
    const std::string difference = Differ(*base, *other);
    if (!difference.empty()) FAIL(difference);
  }
  CHECK(lowered > 0);
}

}  // namespace
}  // namespace weft
