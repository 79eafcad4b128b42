// Where workers share a GPU, large values go one at a time to each of them and their senders wait to be told; nothing else changes: any graph
// comes to the same bits, and nobody waits for ever.

#include <catch2/catch.hpp>
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/channel/nccl/nccl_link.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "tests/integration/gpu_cluster.h"
#include "tests/integration/random_graph.h"

namespace weft {
namespace {

constexpr int64_t kExecutions = 8;

Value Made(const std::string&, int64_t k) {
  Value v;
  v.tensor = *Tensor::OnHost(v1::F32, {12});
  for (int i = 0; i < 12; ++i) v.tensor.as<float>()[i] = static_cast<float>(k * 100 + i) / 7;
  return v;
}

std::vector<InProcessResult> RunAll(const Plan& plan, int in_flight, const GpuCluster::Options& options) {
  GpuCluster cluster(plan, options);
  const absl::Status started = cluster.Start();
  INFO(started.ToString());
  REQUIRE(started.ok());
  auto results = cluster.Run(kExecutions, in_flight, Made);
  INFO(results.status().ToString());
  REQUIRE(results.ok());
  return *std::move(results);
}

Cluster AllByNccl(const v1::Graph& graph) {
  Cluster cluster = ClusterFromGraph(graph);
  cluster.ipc_crossover_bytes = uint64_t{1} << 40;
  for (auto& w : cluster.workers) w.device = "cuda";
  return cluster;
}

TEST_CASE("shared gpu: random graphs of large and small values give the bits of workers with GPUs of their own, with overlap on and off") {
  constexpr int kGraphs = 40;
  int with_large = 0, with_errors = 0, with_collectives = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    RandomGraphOptions o;
    o.max_workers = 4;
    o.max_nodes = 24;
    o.gloo_edges = o.emulated_links = false;
    o.collectives = seed % 3 == 0;
    o.sizes = {12, 18000, 18000, 18000};
    v1::Graph graph = RandomGraph(seed, o);
    graph.set_name("g");
    graph.mutable_options()->set_max_in_flight(4);
    graph.mutable_options()->set_send_lanes(1 + static_cast<int>(seed % 2));
    graph.mutable_options()->set_recv_lanes(1 + static_cast<int>(seed % 3));
    for (const v1::Overlap overlap : {v1::ON, v1::OFF}) {
      graph.mutable_options()->set_overlap(overlap);
      const auto plan = Compile(graph, ClassTable::Std(), AllByNccl(graph));
      if (!plan.ok()) FAIL(std::string(plan.status().message()));
      with_large += std::any_of(plan->edges.begin(), plan->edges.end(), [](const PlanEdge& e) {
        return e.transport == v1::NCCL && e.bytes >= NcclLink::kLateBytes;
      });
      with_collectives += !plan->groups.empty();
      GpuCluster::Options options;
      options.fakes.nccl.launch_polls = seed % 2 == 0 ? 2 : 0;
      const std::vector<InProcessResult> own = RunAll(*plan, 3, options);
      for (const InProcessResult& r : own) {
        for (const auto& [name, v] : r) with_errors += !v.error.empty();
      }
      // All, and all but the last, whose GPU is its own.
      const int32_t workers = static_cast<int32_t>(plan->workers.size());
      for (const int32_t share : {workers, workers - 1}) {
        for (const int in_flight : {1, 4}) {
          INFO("seed " << seed << ", overlap " << overlap << ", " << share << " of " << workers << " share, " << in_flight << " in flight\n"
                       << graph.DebugString());
          options.share_gpu_below = share;
          const std::string difference = Differ(own, RunAll(*plan, in_flight, options));
          if (!difference.empty()) FAIL(difference);
        }
      }
    }
  }
  // The generator must reach what the test is about.
  CHECK(with_large > kGraphs);
  CHECK(with_errors > kGraphs / 10);
  CHECK(with_collectives > kGraphs / 10);
}

TEST_CASE("shared gpu: re-planned between executions, values come to the same bits") {
  int changed = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomGraphOptions o;
    o.max_workers = 4;
    o.max_nodes = 24;
    o.gloo_edges = o.emulated_links = false;
    o.sizes = {12, 18000, 18000, 18000};
    v1::Graph graph = RandomGraph(seed, o);
    graph.set_name("g");
    graph.mutable_options()->set_max_in_flight(4);
    graph.mutable_options()->set_order(v1::COST);
    INFO("seed " << seed << "\n" << graph.DebugString());
    const auto plan = Compile(graph, ClassTable::Std(), AllByNccl(graph), nullptr, CostModel());
    if (!plan.ok()) FAIL(std::string(plan.status().message()));
    CostModel costs = CostModel::Default();
    costs.compute = [seed](const Plan&, const PlanNode& n) { return static_cast<Nanos>((n.id * 7919 + seed * 31) % 97); };
    const auto next = Compile(graph, ClassTable::Std(), AllByNccl(graph), nullptr, costs, &*plan);
    if (!next.ok()) FAIL(std::string(next.status().message()));
    changed += next->hash != plan->hash;
    GpuCluster::Options options;
    GpuCluster own(*plan, options);
    options.share_gpu_below = static_cast<int32_t>(plan->workers.size());
    GpuCluster shared(*plan, options);
    for (GpuCluster* const cluster : {&own, &shared}) {
      const absl::Status started = cluster->Start();
      INFO(started.ToString());
      REQUIRE(started.ok());
    }
    for (int round = 0; round < 4; ++round) {
      const auto expected = own.Run(3, 3, Made), results = shared.Run(3, 3, Made);
      INFO(expected.status().ToString() << "\n" << results.status().ToString());
      REQUIRE(expected.ok());
      REQUIRE(results.ok());
      const std::string difference = Differ(*expected, *results);
      if (!difference.empty()) FAIL(difference);
      const absl::Status replanned = shared.Replan(round % 2 == 0 ? *next : *plan);
      INFO(replanned.ToString());
      REQUIRE(replanned.ok());
    }
  }
  CHECK(changed > 5);
}

TEST_CASE("shared gpu: a worker that goes at any moment leaves nobody waiting, and every view says what it waits for") {
  constexpr int kGraphs = 60;
  int cut_short = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    RandomGraphOptions o;
    o.min_nodes = 12;
    o.max_nodes = 24;
    o.max_workers = 4;
    o.gloo_edges = o.emulated_links = o.inputs = false;
    o.collectives = seed % 3 == 0;
    o.sizes = {12, 18000, 18000, 18000};
    v1::Graph graph = RandomGraph(seed, o);
    graph.set_name("g");
    graph.mutable_options()->set_max_in_flight(4);
    const auto plan = Compile(graph, ClassTable::Std(), AllByNccl(graph));
    if (!plan.ok()) FAIL(std::string(plan.status().message()));
    INFO("seed " << seed << "\n" << graph.DebugString());
    const int workers = static_cast<int>(plan->workers.size());
    GpuCluster::Options options;
    options.fakes.nccl.launch_polls = seed % 2 == 0 ? 2 : 0;
    options.share_gpu_below = workers - static_cast<int>(seed % 3 == 1);
    GpuCluster cluster(*plan, options);
    const absl::Status started = cluster.Start();
    INFO(started.ToString());
    REQUIRE(started.ok());
    std::set<int> here;  // with something to do
    for (const PlanOp& op : plan->ops) {
      if (op.worker != kClient) here.insert(op.worker);
    }
    const auto each = [&](const std::function<void(GraphRun*)>& f) {
      for (const int w : here) f(cluster.run(w));
    };
    cluster.Admit(kExecutions - 1);
    for (uint64_t step = 0; step < seed * seed % 97; ++step) {
      cluster.StepWorkers();
      each([](GraphRun* run) {
        const v1::WorkerView view = run->Inspect();
        for (const v1::LaneView& l : view.lane()) CHECK((l.state() != "waiting" || !l.waits_for().empty()));
      });
    }
    bool done = true;
    each([&](GraphRun* run) { done &= run->completed() == kExecutions; });
    cut_short += !done;
    const absl::Status why = absl::UnavailableError("w0 has died");
    cluster.CloseLinks(*here.begin(), why);
    for (uint64_t step = 0; step < seed % 7; ++step) cluster.StepWorkers();
    each([&](GraphRun* run) { run->Fail(why); });  // as the driver has it
    const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
    bool quiet = false;
    while (!quiet && Clock::Real()->Now() < limit) {
      cluster.StepWorkers();
      quiet = true;
      each([&](GraphRun* run) { quiet &= run->Quiescent(); });
    }
    REQUIRE(quiet);
  }
  CHECK(cut_short > kGraphs / 2);
}

}  // namespace
}  // namespace weft
