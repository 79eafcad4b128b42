#include "driver/plan/cost_order.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "driver/plan/emit.h"
#include "driver/plan/graph_builder.h"
#include "driver/plan/quick_order.h"
#include "driver/simulate/predict.h"

namespace weft {
namespace {

Plan MustCompile(GraphBuilder* b, v1::Order order, const Cluster& cluster) {
  b->options().set_order(order);
  Plan plan = b->CompileOk(cluster);
  const absl::Status verified = Verify(plan);
  INFO(verified.message());
  REQUIRE(verified.ok());
  return plan;
}

double Seconds(const Plan& plan) {
  const auto p = Predict(plan, CostModel::Default(), {});
  INFO(p.status().message());
  REQUIRE(p.ok());
  return p->period_s;
}

// As the compiler compares: over so many executions as it looks at.
double Judged(const Plan& plan) {
  const auto r = Simulate(plan, CostModel::Default(), {2 * plan.options.max_in_flight() + 4, 0, false});
  REQUIRE(r.ok());
  return r->seconds_per_execution;
}

// Calls of random length on two to four workers, most of them after one or two others.
GraphBuilder RandomCalls(uint64_t seed, int nodes) {
  std::mt19937_64 rng(seed);
  const auto upto = [&](int n) { return static_cast<int>(rng() % n); };
  GraphBuilder b;
  const int workers = 2 + upto(3);
  for (int w = 0; w < workers; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
  for (int n = 0; n < nodes; ++n) {
    std::vector<std::string> args;
    for (int a = upto(3); a > 0 && n > 0; --a) args.push_back(absl::StrCat("n", upto(n)));
    v1::Node& node = b.Node(absl::StrCat("n", n), absl::StrCat("a", upto(workers)), args);
    node.mutable_config()->set_shape("[256]");
    node.mutable_config()->set_duration_s(0.001 * (1 + upto(9)));
    b.Output(absl::StrCat("out", n), absl::StrCat("n", n));
  }
  if (upto(2)) b.options().mutable_emulate()->set_latency_s(0.001 * upto(5));
  b.options().set_max_in_flight(1 + upto(3));
  return b;
}

TaskCosts Costs(GraphBuilder b) {
  const ResolvedGraph g = b.Resolve();
  const Cluster cluster = ClusterFromGraph(b.graph());
  const auto placement = Place(g, cluster);
  REQUIRE(placement.ok());
  const auto edges = ChooseTransports(g, *placement, cluster, v1::ON);
  REQUIRE(edges.ok());
  return CollectTaskCosts(g, *placement, *edges, EmitPlan(g, cluster, *placement, *edges, {}), CostModel::Default());
}

bool Stands(const TaskCosts& t, const NodeOrder& order) {
  std::vector<int32_t> at(t.cost.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) at[order[i]] = static_cast<int32_t>(i);
  bool good = static_cast<int32_t>(order.size()) == t.nodes;
  for (int32_t v = 0; v < t.nodes; ++v) good &= at[v] >= 0;
  for (int32_t v = 0; v < t.nodes; ++v) {
    for (int32_t k = t.next_at[v]; k < t.next_at[v + 1]; ++k) {
      if (t.next[k].to < t.nodes) good &= at[v] < at[t.next[k].to];
    }
  }
  return good;
}

}  // namespace

TEST_CASE("cost order: what is offered can be run, whatever is preferred") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const TaskCosts t = Costs(RandomCalls(seed, 1 + static_cast<int>(seed % 30)));
    CHECK(Stands(t, LongestWayOrder(t)));
    for (const Prefer prefer : {Prefer::kLongestWay, Prefer::kLongestWayBack, Prefer::kFile, Prefer::kNewest}) CHECK(Stands(t, ListOrder(t, prefer)));
    std::vector<int64_t> key(t.nodes);
    std::mt19937_64 rng(seed);
    for (int64_t& k : key) k = static_cast<int64_t>(rng() % 100);
    CHECK(Stands(t, OrderByKey(t, key)));
  }
}

TEST_CASE("cost order: never slower than the order of the file, the same at every compile") {
  int faster = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    GraphBuilder b = RandomCalls(seed, 5 + static_cast<int>(seed % 20));
    const Cluster cluster = ClusterFromGraph(b.graph());
    const double file = Judged(MustCompile(&b, v1::PROGRAM, cluster));
    const Plan found = MustCompile(&b, v1::COST, cluster);
    const double s = Judged(found);
    CHECK(s <= file);
    faster += s < file;
    CHECK(MustCompile(&b, v1::COST, cluster).hash == found.hash);
  }
  CHECK(faster > 20);
}

TEST_CASE("cost order: as fast as the best of all orders, where these can be counted") {
  int checked = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    GraphBuilder b = RandomCalls(seed, 6);
    b.options().set_max_in_flight(1);
    const TaskCosts t = Costs(b);
    const Cluster cluster = ClusterFromGraph(b.graph());
    // Every order is one of the file, if it is written so.
    double best = 1e9;
    const v1::Graph graph = b.graph();
    NodeOrder order(t.nodes);
    std::iota(order.begin(), order.end(), 0);
    do {
      if (!Stands(t, order)) continue;
      GraphBuilder written = b;
      for (int i = 0; i < t.nodes; ++i) *written.graph().mutable_node(i) = graph.node(order[i]);
      best = std::min(best, Seconds(MustCompile(&written, v1::PROGRAM, cluster)));
      ++checked;
    } while (std::next_permutation(order.begin(), order.end()));
    INFO("seed " << seed);
    CHECK(Seconds(MustCompile(&b, v1::COST, cluster)) <= best * (1 + 1e-9));
  }
  CHECK(checked > 100);
}

// p stages, one a worker; m microbatches; F, input gradient I and weight gradient W of one unit each, in the file as GPipe runs them.
GraphBuilder Pipeline(int p, int m, double f, double i, double w, double hop) {
  GraphBuilder b;
  for (int s = 0; s < p; ++s) b.Actor(absl::StrCat("stage", s), absl::StrCat("w", s));
  const auto node = [&](const std::string& name, int stage, const std::vector<std::string>& args, double seconds) {
    v1::Node& n = b.Node(name, absl::StrCat("stage", stage), args);
    n.mutable_config()->set_shape("[256]");
    n.mutable_config()->set_duration_s(seconds);
  };
  const auto name = [](char what, int s, int k) { return absl::StrCat(std::string(1, what), s, "_", k); };
  for (int k = 0; k < m; ++k) {
    for (int s = 0; s < p; ++s) node(name('F', s, k), s, s > 0 ? std::vector<std::string>{name('F', s - 1, k)} : std::vector<std::string>{}, f);
  }
  for (int k = 0; k < m; ++k) {
    for (int s = p - 1; s >= 0; --s) {
      std::vector<std::string> args = {name('F', s, k)};
      if (s + 1 < p) args.push_back(name('I', s + 1, k));
      node(name('I', s, k), s, args, i);
      node(name('W', s, k), s, {name('I', s, k)}, w);
      b.Output(absl::StrCat("out", s, "_", k), name('W', s, k));
    }
  }
  b.options().set_max_in_flight(1);
  b.options().set_prefetch_depth(4);
  if (hop > 0) b.options().mutable_emulate()->set_latency_s(hop);
  return b;
}

TEST_CASE("cost order: pipelines, without being told that they are some") {
  // With a barrier at the end of each iteration no schedule is faster than 3m + p - 1 units.
  for (const auto& [p, m] : {std::pair(2, 2), {2, 3}, {2, 4}, {4, 8}}) {
    GraphBuilder b = Pipeline(p, m, 1, 1, 1, 0);
    const Plan plan = MustCompile(&b, v1::COST, ClusterFromGraph(b.graph()));
    INFO(p << " stages, " << m << " microbatches");
    CHECK(Seconds(plan) == 3 * m + p - 1);
  }
  // Transfers count: 1F1B of p = 4, m = 8, c = 4 takes 383, with its backward passes split ZB-H1 takes 327 (reference).
  GraphBuilder b = Pipeline(4, 8, 10, 12, 7, 4);
  CHECK(Seconds(MustCompile(&b, v1::COST, ClusterFromGraph(b.graph()))) <= 327);
}

TEST_CASE("cost order: within the byte limit, or the error that the order of the file has") {
  GraphBuilder b = RandomCalls(3, 20);
  const Cluster cluster = ClusterFromGraph(b.graph());
  b.options().set_memory_limit_bytes(40 * 1024);
  const Plan plan = MustCompile(&b, v1::COST, cluster);
  for (const uint64_t peak : plan.peak_bytes) CHECK(peak <= 40 * 1024);
  b.options().set_memory_limit_bytes(1024);
  CHECK(b.TryCompile().status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("cost order: a search judges no more orders than it may, and needs one that can be used") {
  const TaskCosts t = Costs(RandomCalls(5, 12));
  int64_t judged = 0;
  const auto judge = [&](const NodeOrder&) -> absl::StatusOr<OrderScore> {
    ++judged;
    return OrderScore(1, 1);
  };
  // The coarse model agrees with itself: a search never ends worse than it began.
  for (const Prefer prefer : {Prefer::kFile, Prefer::kNewest}) {
    const NodeOrder from = ListOrder(t, prefer), to = QuickSearch(t, from, 500);
    CHECK(Stands(t, to));
    CHECK(QuickMakespan(t, to) <= QuickMakespan(t, from));
  }
  const auto found = SearchOrder(t, judge, 50);
  REQUIRE(found.ok());
  CHECK(judged <= 50);
  CHECK(judged > 5);
  CHECK(Stands(t, found->order));
  const auto none = SearchOrder(t, [](const NodeOrder&) { return absl::ResourceExhaustedError("too large"); }, 50);
  CHECK(none.status().message() == "too large");
}

}  // namespace weft
