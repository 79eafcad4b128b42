// What is predicted is what runs: workers' loops and the client's session under a virtual clock end every op at the very nanosecond that
// the simulator says, whatever the graph, the overlap and the number in flight.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/simulate/predict.h"
#include "driver/simulate/simulator.h"
#include "tests/integration/random_graph.h"
#include "tests/integration/virtual_time.h"

namespace weft {
namespace {

constexpr int kGraphs = 90;
constexpr int64_t kExecutions = 12;

Tensor MakeInput(const std::string&, int64_t execution) {
  Tensor t = *Tensor::OnHost(v1::F32, {12});
  for (int i = 0; i < 12; ++i) t.as<float>()[i] = static_cast<float>(execution * 100 + i) / 7;
  return t;
}

// Some take no time, most take some, a few take long.
Nanos Cost(uint64_t seed, const std::string& of) {
  const uint64_t h = std::hash<std::string>()(std::to_string(seed) + of) % 100;
  return h < 20 ? 0 : h < 90 ? static_cast<Nanos>(h) * 100 : static_cast<Nanos>(h) * 1000;
}

CostModel RandomCosts(uint64_t seed) {
  CostModel m;
  m.compute = [seed](const Plan&, const PlanNode& n) { return Cost(seed, n.name); };
  m.transfer = [seed](const Plan& p, const PlanEdge& e) { return Cost(seed, EdgeName(p, e)); };
  m.collective = [seed](const Plan&, const PlanGroup& g) { return Cost(seed, g.name); };
  return m;
}

// Compares all that both know of a run.
void CheckEqual(const Plan& plan, const SimResult& sim, const VirtualRun& run) {
  CHECK(sim.admitted == run.admitted);
  CHECK(sim.done == run.done);
  REQUIRE(sim.events.size() == run.events.size());
  std::map<std::pair<int32_t, int64_t>, const SimEvent*> at;
  for (const SimEvent& e : run.events) at[{e.op, e.execution}] = &e;
  for (const SimEvent& e : sim.events) {
    const SimEvent* ran = at[{e.op, e.execution}];
    REQUIRE(ran != nullptr);
    const PlanOp& op = plan.ops[e.op];
    // A transfer or collective is issued when its own end is ready, and starts when all are.
    const bool same = e.end == ran->end && (op.kind == v1::COMPUTE ? e.start == ran->start : e.start >= ran->start);
    if (same) continue;
    FAIL(OpName(plan, op) << " on " << WorkerName(plan, op.worker) << ", execution " << e.execution << ": predicted " << e.start << " to "
                          << e.end << ", ran " << ran->start << " to " << ran->end);
  }
}

TEST_CASE("predict: equal to what runs, op by op, over random graphs, with 1 to 8 in flight and overlap on and off") {
  RandomGraphOptions options;
  options.failures = false;
  int steady = 0, runs = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    v1::Graph graph = RandomGraph(seed, options);
    // Tasks on which no output depends run by credits alone, and links make control edges too a rendezvous.
    if (seed % 2 == 0) graph.mutable_output()->DeleteSubrange(0, static_cast<int>(seed) % (graph.output_size() + 1));
    if (seed % 3 == 0) graph.mutable_options()->mutable_emulate()->set_latency_s(1e-6);
    for (const v1::Overlap overlap : {v1::ON, v1::OFF}) {
      graph.mutable_options()->set_overlap(overlap);
      for (const int in_flight : {1, 2, 3, 8}) {
        graph.mutable_options()->set_max_in_flight(in_flight);
        INFO("seed " << seed << " overlap " << overlap << " in flight " << in_flight << "\n" << graph.DebugString());
        const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph));
        if (!plan.ok()) FAIL(plan.status().ToString());
        const CostModel costs = RandomCosts(seed);
        const auto sim = Simulate(*plan, costs, {kExecutions, 0, true});
        if (!sim.ok()) FAIL(sim.status().ToString());
        const auto run = RunInVirtualTime(*plan, costs, kExecutions, seed * 7 + in_flight, MakeInput);
        if (!run.ok()) FAIL(run.status().ToString());
        CheckEqual(*plan, *sim, *run);
        const auto p = Predict(*plan, costs, {0, kExecutions});
        if (!p.ok()) FAIL(p.status().ToString());
        CHECK(p->makespan == run->done.back());
        CHECK(p->first_latency == run->done[0] - run->admitted[0]);
        ++runs;
        if (!p->steady || p->warm_up + 2 * p->cycle > kExecutions) continue;
        ++steady;
        for (int64_t k = p->warm_up + p->cycle; k < kExecutions; ++k) {
          CHECK(run->done[k] - run->done[k - p->cycle] == p->cycle_time);
          CHECK(run->done[k] - run->admitted[k] <= p->max_latency);
        }
      }
    }
  }
  CHECK(steady > runs / 2);  // else the period has hardly been compared
}

// "late" on w1 comes after "early" on w0, over a link of 500 ns by which only that is told. Nothing else holds w0 back.
v1::Graph Controlled() {
  v1::Graph g;
  g.set_name("controlled");
  for (const char* name : {"early", "late"}) {
    const bool late = std::string(name) == "late";
    v1::Actor* a = g.add_actor();
    a->set_name(name);
    a->set_class_("std.Delay");
    a->set_worker(late ? "w1" : "w0");
    v1::Node* n = g.add_node();
    n->set_name(name);
    n->set_actor(name);
    if (late) n->add_after("early");
    n->mutable_config()->set_shape("[4]");
    n->mutable_config()->set_duration_s(1e-6);
  }
  g.mutable_options()->mutable_emulate()->set_latency_s(500e-9);
  g.mutable_options()->set_max_in_flight(8);
  return g;
}

TEST_CASE("predict: a control edge's receive waits until those that an earlier one let go are done, `slots` executions ago") {
  const auto plan = Compile(Controlled(), ClassTable::Std(), ClusterFromGraph(Controlled()));
  if (!plan.ok()) FAIL(plan.status().ToString());
  REQUIRE(plan->edges.size() == 1);
  REQUIRE(plan->edges[0].control);
  REQUIRE(plan->edges[0].rendezvous);
  const int64_t slots = plan->edges[0].slots;
  REQUIRE(slots >= 1);
  REQUIRE(slots < 8);
  CostModel costs = CostModel::Default();
  costs.compute = [](const Plan&, const PlanNode& n) -> Nanos { return n.name == "late" ? 5000 : 1000; };
  const auto sim = Simulate(*plan, costs, {kExecutions, 0, true});
  if (!sim.ok()) FAIL(sim.status().ToString());
  // Received at 1500; "late" runs without a break from then on. What comes before a credit is needed comes as fast as "early" makes it.
  int64_t held = 0;
  for (const SimEvent& e : sim->events) {
    if (plan->ops[e.op].kind != v1::RECV) continue;
    const Nanos free = e.execution < slots ? 0 : 1500 + 5000 * (e.execution - slots + 1);
    INFO("execution " << e.execution << ", " << slots << " slots");
    CHECK(e.end == std::max<Nanos>(1000 * (e.execution + 1), free) + 500);
    held += free > 1000 * (e.execution + 1);
  }
  CHECK(held == kExecutions - slots);
  const auto run = RunInVirtualTime(*plan, costs, kExecutions, 1, MakeInput);
  if (!run.ok()) FAIL(run.status().ToString());
  CheckEqual(*plan, *sim, *run);
}

}  // namespace
}  // namespace weft
