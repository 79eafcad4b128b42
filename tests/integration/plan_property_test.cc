// Ten thousand random graphs: each compiles, is verified, and is simulated to its end with the costs of its parts drawn by lot, once placed as
// it says, and once with every worker on a host of its own. Then every transfer between workers is a rendezvous: it starts only when both
// its ends are at the heads of their lanes, with nothing buffered between them. With overlap no execution ends later than without.

#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/plan/verify.h"
#include "driver/simulate/bytes_over_time.h"
#include "driver/simulate/simulator.h"
#include "tests/integration/random_graph.h"

namespace weft {
namespace {

constexpr uint64_t kGraphs = 10'000;
// Of as many executions as the compiler compares by: 2 * max_in_flight + 4.
constexpr int64_t kExecutions = 20;

uint64_t Hash(uint64_t seed, const std::string& text) {
  uint64_t h = seed * 0x9E3779B97F4A7C15u + 0xCBF29CE484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  h ^= h >> 29;
  return h * 0xBF58476D1CE4E5B9u >> 33;
}

// Times below a microsecond, a third of them 0; the same for the same name.
CostModel RandomCosts(uint64_t seed) {
  const auto draw = [seed](const std::string& name) {
    const uint64_t h = Hash(seed, name);
    return static_cast<Nanos>(h % 3 == 0 ? 0 : h / 3 % 1000);
  };
  CostModel c;
  c.compute = [draw](const Plan&, const PlanNode& n) { return draw(n.name); };
  c.transfer = [draw](const Plan&, const PlanEdge& e) { return draw(absl::StrCat(e.src, ":", e.src_output, " ", e.dst, ":", e.dst_arg)); };
  c.collective = [draw](const Plan&, const PlanGroup& g) { return draw(g.name); };
  return c;
}

v1::Graph WithOverlap(v1::Graph g, v1::Overlap overlap) {
  g.mutable_options()->set_overlap(overlap);
  if (overlap == v1::OFF) {
    // An edge with a word of its own on overlap keeps it, and so its transfer: it is no part of a broadcast.
    for (v1::Edge& e : *g.mutable_edge()) {
      if (e.overlap() != v1::OVERLAP_UNSPECIFIED) e.set_overlap(v1::OFF);
    }
  }
  return g;
}

// Every worker on a host of its own, transports as the compiler chooses.
void SetApart(v1::Graph* g, Cluster* cluster) {
  for (size_t w = 0; w < cluster->workers.size(); ++w) cluster->workers[w].host_id = absl::StrCat("host", w);
  cluster->client_host_id = "host0";
  for (v1::Edge& e : *g->mutable_edge()) e.clear_transport(), e.clear_emulate();
}

struct Run {
  Plan plan;
  SimResult result;
};

Run CompileAndSimulate(const v1::Graph& graph, const Cluster& cluster, const CostModel& costs) {
  auto plan = Compile(graph, ClassTable::Std(), cluster, nullptr, costs);
  if (!plan.ok()) FAIL(std::string(plan.status().message()));
  const absl::Status verified = Verify(*plan);
  if (!verified.ok()) FAIL(std::string(verified.message()));
  auto result = Simulate(*plan, costs, {kExecutions, 0, false});
  if (!result.ok()) FAIL(std::string(result.status().message()));
  return {*std::move(plan), *std::move(result)};
}

int64_t Compare(const v1::Graph& graph, const Cluster& cluster, const CostModel& costs) {
  const Run on = CompileAndSimulate(WithOverlap(graph, v1::ON), cluster, costs), off = CompileAndSimulate(WithOverlap(graph, v1::OFF), cluster, costs);
  bool never_later = on.result.makespan <= off.result.makespan;
  for (int64_t k = 0; k < kExecutions; ++k) never_later &= on.result.execution_end[k] <= off.result.execution_end[k];
  if (!never_later) FAIL("with overlap " << on.result.makespan << ", without " << off.result.makespan);
  int64_t buffered = 0;
  for (const PlanEdge& e : on.plan.edges) buffered += !e.rendezvous && e.src_worker != kClient && e.dst_worker != kClient;
  return buffered;
}

}  // namespace

TEST_CASE("ten thousand random graphs: verified, run to the end with nothing buffered, never slower with overlap") {
  int64_t buffered = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    v1::Graph graph = RandomGraph(seed, RandomGraphOptions());
    INFO("seed " << seed);
    Cluster cluster = ClusterFromGraph(graph);
    const CostModel costs = RandomCosts(seed);
    buffered += Compare(graph, cluster, costs);
    SetApart(&graph, &cluster);
    const int64_t apart = Compare(graph, cluster, costs);
    if (apart != 0) FAIL(apart << " transfers are buffered");
  }
  CHECK(buffered > static_cast<int64_t>(kGraphs));  // the other placement has both kinds
}

TEST_CASE("random graphs: values never take more bytes than the plan reserves") {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const v1::Graph graph = RandomGraph(seed, RandomGraphOptions());
    INFO("seed " << seed);
    const CostModel costs = RandomCosts(seed);
    const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph), nullptr, costs);
    REQUIRE(plan.ok());
    const auto result = Simulate(*plan, costs, {6, 0, true});
    REQUIRE(result.ok());
    const std::vector<WorkerBytes> bytes = BytesOverTime(*plan, *result);
    for (size_t w = 0; w < bytes.size(); ++w) {
      CHECK(bytes[w].peak <= plan->peak_bytes[w]);
      CHECK(bytes[w].curve.back().bytes == 0);
    }
  }
}

}  // namespace weft
