// The graph of a schedule, compiled: the plan's simulation says what the schedule's own times say.

#include "driver/schedules/graph.h"

#include <catch2/catch.hpp>

#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

PipelinePlan MakePlan(const std::string& name, int32_t p, int32_t m, const std::string& cost, const std::string& hop) {
  PipelineRequest r;
  r.schedule = name;
  r.workers = p;
  r.microbatches = m;
  r.costs = *ParseCosts(cost, false);
  r.costs.hop = *ParseDecimal("hop", hop);
  const auto plan = PlanPipeline(r);
  INFO(name << ": " << plan.status().message());
  REQUIRE(plan.ok());
  return *plan;
}

// Start of every pass by the simulator of plans, and the end of the last.
SimResult SimulateGraph(const PipelinePlan& pipeline, Plan* plan) {
  const v1::Graph graph = PipelineGraph(pipeline, "pipeline");
  const auto compiled = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph));
  INFO(pipeline.schedule.name << ": " << compiled.status().message());
  REQUIRE(compiled.ok());
  CHECK(Verify(*compiled).ok());
  *plan = *compiled;
  const auto result = Simulate(*plan, CostModel::Default(), {1, 1, true});
  INFO(result.status().message());
  REQUIRE(result.ok());
  return *result;
}

}  // namespace

TEST_CASE("graph: every schedule compiles, and both simulators agree on every start") {
  for (const std::string& name : PipelineScheduleNames()) {
    for (const auto& [p, m] : std::vector<std::pair<int32_t, int32_t>>{{1, 2}, {2, 4}, {4, 8}}) {
      for (const std::string cost : {"F=1,I=1,W=1", "F=10ms,I=12ms,W=7ms,FB=0.8"}) {
        const PipelinePlan pipeline = MakePlan(name, p, m, cost, "0");
        Plan plan;
        const SimResult result = SimulateGraph(pipeline, &plan);
        INFO(name << " p " << p << " m " << m << " " << cost);
        CHECK(result.makespan == FromSeconds(pipeline.makespan));
        std::vector<size_t> next(p, 0);
        for (const SimEvent& e : result.events) {
          const PlanOp& op = plan.ops[e.op];
          if (op.kind != v1::COMPUTE) continue;
          REQUIRE(next[op.worker] < pipeline.times.start[op.worker].size());
          CHECK(e.start == FromSeconds(pipeline.costs.ToUnits(pipeline.times.start[op.worker][next[op.worker]++])));
        }
        for (int32_t w = 0; w < p; ++w) CHECK(next[w] == pipeline.schedule.orders[w].size());
      }
    }
  }
}

TEST_CASE("graph: with hops, over emulated links") {
  for (const std::string& name : PipelineScheduleNames()) {
    for (const auto& [p, m] : std::vector<std::pair<int32_t, int32_t>>{{2, 4}, {4, 8}}) {
      for (const std::string hop : {"0.1", "1", "4"}) {
        const PipelinePlan pipeline = MakePlan(name, p, m, "F=10,I=12,W=7", hop);
        Plan plan;
        const SimResult result = SimulateGraph(pipeline, &plan);
        INFO(name << " p " << p << " m " << m << " hop " << hop << ": " << ToSeconds(result.makespan) << " by the links, "
                  << pipeline.makespan << " without lanes");
        CHECK(ToSeconds(result.makespan) >= pipeline.makespan - 1e-9);
        // Two stages a worker send both kinds of values to one neighbour, over one lane, and a pair makes two for it at one time: one
        // waits.
        const double waits = pipeline.chunks == 1 ? 1 : name == "dualpipe-v" ? 1.08 : 1.03;
        CHECK(ToSeconds(result.makespan) <= pipeline.makespan * waits + 1e-9);
      }
    }
  }
}

TEST_CASE("graph: fields") {
  const v1::Graph graph = PipelineGraph(MakePlan("zb-h1", 3, 4, "F=10ms,I=12ms,W=7ms", "0.002"), "zb");
  CHECK(graph.name() == "zb");
  CHECK(graph.actor_size() == 3);
  CHECK(graph.node_size() == 3 * 3 * 4);
  CHECK(graph.output_size() == 3);
  CHECK(graph.node(0).config().duration_s() == 0.010);
  CHECK(graph.options().emulate().latency_s() == 0.002);
  CHECK(graph.options().max_in_flight() == 1);
  CHECK_FALSE(PipelineGraph(MakePlan("zb-h1", 3, 4, "F=10ms,I=12ms,W=7ms", "0"), "zb").options().has_emulate());
}

}  // namespace weft
