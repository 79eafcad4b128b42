#include "driver/simulate/cost_file.h"

#include <random>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "driver/plan/test_plan.h"
#include "driver/simulate/cluster_file.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

using Catch::Contains;

constexpr Nanos kMs = 1'000'000;

std::string CostError(const std::string& text) {
  const auto costs = ParseCosts("c", text);
  REQUIRE_FALSE(costs.ok());
  CHECK(absl::IsInvalidArgument(costs.status()));
  return std::string(costs.status().message());
}

std::string ClusterError(const std::string& text) {
  const auto cluster = ParseCluster("k", text);
  REQUIRE_FALSE(cluster.ok());
  CHECK(absl::IsInvalidArgument(cluster.status()));
  return std::string(cluster.status().message());
}

v1::Costs Costs(const std::string& text) {
  const auto costs = ParseCosts("c", text);
  INFO(costs.status().ToString());
  REQUIRE(costs.ok());
  return *costs;
}

// w0: a, b (Delay of 5 ms) -> w1: c; a -> c by a link of 2 ms, b -> c buffered; collective g.
Plan Small() {
  TestPlan t(2);
  const int32_t a = t.Compute("a", 0), b = t.Compute("b", 0, {}, 0.005);
  t.plan().nodes[0].config.clear_duration_s();
  const auto ac = t.Transfer(a, 1, {2, true, 0.002});
  const auto bc = t.Transfer(b, 1, {2, false});
  const int32_t c = t.Compute("c", 1, {{ac.in}, {bc.in}});
  t.Reduce("g", {b, c});
  t.Output({c}, "y");
  t.plan().graph = "small";
  return t.Finish();
}

}  // namespace

TEST_CASE("costs: every number that cannot be is refused, with its field and what would do") {
  CHECK_THAT(CostError("node { node: \"a\" }"), Contains("c: node[0].time_s: is missing for node \"a\"; 0 is the smallest that works"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: -1 }"), Contains("c: node[0].time_s: -1 is negative: seconds from 0 to 1e+08 work"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: nan }"), Contains("node[0].time_s: nan is not a number"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: inf }"), Contains("node[0].time_s: inf is infinite"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: 1e9 }"), Contains("node[0].time_s: 1e+09 is too long"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: 1 first_s: -2 }"), Contains("node[0].first_s: -2 is negative"));
  CHECK_THAT(CostError("node { time_s: 1 }"), Contains("node[0]: names nothing"));
  CHECK_THAT(CostError("node { node: \"a\" method: \"run\" time_s: 1 }"), Contains("leave actor, class and method out"));
  CHECK_THAT(CostError("node { actor: \"a\" class: \"std.Gemm\" time_s: 1 }"), Contains("node[0].class"));
  CHECK_THAT(CostError("node { node: \"a\" time_s: 1 } node { node: \"a\" time_s: 1 }"), Contains("node[1]: says what node[0] says"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" }"), Contains("edge[0].time_s: is missing for \"a\" -> \"b\"; 0 is the smallest"));
  CHECK_THAT(CostError("edge { to: \"b\" time_s: 1 }"), Contains("edge[0].from: is missing"));
  CHECK_THAT(CostError("edge { from: \"b\" time_s: 1 }"), Contains("edge[0].to: is missing"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" output: -1 time_s: 1 }"), Contains("edge[0].output: -1 is negative; 0 is the smallest"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" time_s: 1 bandwidth: 1 }"), Contains("keep one"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" bandwidth: 0 }"), Contains("edge[0].bandwidth: 0 is too small: bytes per second from 0.001"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" latency_s: nan }"), Contains("edge[0].latency_s: nan"));
  CHECK_THAT(CostError("edge { from: \"a\" to: \"b\" read_s: -inf }"), Contains("edge[0].read_s: -inf is infinite"));
  CHECK_THAT(CostError("collective { collective: \"g\" }"), Contains("collective[0].time_s: is missing for \"g\""));
  CHECK_THAT(CostError("collective { time_s: 1 }"), Contains("collective[0].collective: is missing"));
  CHECK_THAT(CostError("contention { slowed: LANE_COMPUTE beside: LANE_RECV }"), Contains("contention[0].factor: is missing; 1 is the smallest"));
  CHECK_THAT(CostError("contention { slowed: LANE_COMPUTE factor: 2 }"), Contains("contention[0].beside: is missing"));
  CHECK_THAT(CostError("contention { slowed: LANE_COMPUTE beside: LANE_RECV factor: 0.5 }"), Contains("contention[0].factor: 0.5 is less than 1"));
  CHECK_THAT(CostError("contention { slowed: LANE_RECV node: \"a\" beside: LANE_COMPUTE factor: 2 }"), Contains("contention[0].node"));
  CHECK_THAT(CostError("contention { slowed: LANE_COMPUTE slowed_transport: NCCL beside: LANE_RECV factor: 2 }"), Contains("slowed_transport"));
  CHECK_THAT(CostError("default_node_s: -1"), Contains("c: default_node_s: -1 is negative"));
  CHECK_THAT(CostError("node { nod: \"a\" time_s: 1 }"), Contains("c:1:11") && Contains("no field named \"nod\"") && Contains("did you mean \"node\"?"));
  CHECK_THAT(CostError("{\"nodes\": []}"), Contains("c:1:2: the costs has no field \"nodes\""));
  // All at once.
  CHECK_THAT(CostError("node { node: \"a\" time_s: -1 } edge { from: \"a\" to: \"b\" time_s: -2 }"), Contains("node[0].time_s") && Contains("edge[0].time_s"));
  CHECK(ReadCostFile("/nonexistent/costs").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("costs: what is written is read back") {
  v1::Costs costs = Costs(R"(graph: "small" node { node: "a" time_s: 0.1 first_s: 1e-9 } node { class: "std.Delay" time_s: 0.3333333333333333 }
    edge { from: "a" output: 0 to: "c" time_s: 0 latency_s: 0.25 bytes: 18446744073709551615 }
    collective { collective: "g" time_s: 0.007 } contention { slowed: LANE_COMPUTE beside: LANE_RECV beside_transport: NCCL factor: 1.18 }
    default_node_s: 0 default_edge_s: 1 default_collective_s: 2)");
  const std::string text = CostsToText(costs, "measured\nby hand");
  INFO(text);
  CHECK_THAT(text, Catch::StartsWith("# measured\n# by hand\ngraph: \"small\"\nnode { node: \"a\" time_s: 0.1"));
  CHECK(Costs(text).SerializeAsString() == costs.SerializeAsString());
  CHECK(Costs(CostsToText(v1::Costs(), "")).SerializeAsString().empty());
}

TEST_CASE("any text at all is survived, and what is read gives times that can be used") {
  const std::string costs = R"(graph: "small" node { node: "a" time_s: 0.1 first_s: 1e-9 } node { class: "std.Delay" time_s: 0.33 }
edge { from: "a" output: 0 to: "c" bandwidth: 1e9 latency_s: 0.25 bytes: 100 } collective { collective: "g" time_s: 0.007 }
contention { slowed: LANE_COMPUTE beside: LANE_RECV beside_transport: SHM factor: 1.18 } default_node_s: 0)";
  const std::string cluster = R"(worker { name: "w0" host: "a" } worker { name: "w1" host: "b" device: "cuda" memory_bytes: 5 }
link { from: "w0" to: "w1" latency_s: 1 bandwidth: 3e9 } ipc_crossover_bytes: 7 client_host: "a")";
  const Plan plan = Small();
  std::mt19937 rng(3);
  int read = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = round % 2 == 0 ? costs : cluster;
    for (int h = 1 + static_cast<int>(rng() % 3); h > 0; --h) {
      const size_t at = rng() % text.size();
      switch (rng() % 4) {
        case 0:
          text[at] = static_cast<char>(rng());
          break;
        case 1:
          text.erase(at, rng() % 8);
          break;
        case 2:
          text.insert(at, text.substr(rng() % text.size(), rng() % 30));
          break;
        default:
          text[at] = "0123456789-e.naif"[rng() % 17];
      }
      if (text.empty()) text = " ";
    }
    std::vector<ClusterLink> links;
    v1::Costs parsed;
    if (round % 2 == 0) {
      const auto got = ParseCosts("c", text);
      if (!got.ok()) continue;
      parsed = *got;
      (void)CheckCosts("c", parsed, plan);
    } else {
      const auto got = ParseCluster("k", text);
      if (!got.ok()) continue;
      links = got->links;
      (void)CheckCluster(*got, plan);
    }
    ++read;
    const auto result = Simulate(plan, MakeCostModel(parsed, links), {3, 2, true});
    INFO(text << "\n" << result.status().message());
    CHECK(result.ok());
  }
  CHECK(read > 100);
}

TEST_CASE("costs must fit the plan, and every call needs one") {
  const Plan plan = Small();
  CHECK(CheckCosts("c", Costs("node { node: \"a\" time_s: 1 } node { node: \"c\" time_s: 0 }"), plan).ok());
  CHECK(CheckCosts("c", Costs("default_node_s: 0"), plan).ok());
  const auto error = [&](const std::string& text) { return std::string(CheckCosts("c", Costs(text), plan).message()); };
  CHECK_THAT(error(""), Contains("c: no cost for node \"a\" (std.Delay run): add node { node: \"a\" time_s: 0 }") && !Contains("node \"b\""));
  CHECK_THAT(error("graph: \"other\""), Contains("costs of graph \"other\", not of \"small\""));
  CHECK_THAT(error("default_node_s: 0 node { node: \"aa\" time_s: 1 }"), Contains("node[0].node: graph \"small\" has no node \"aa\""));
  CHECK_THAT(error("default_node_s: 0 node { actor: \"x\" time_s: 1 }"), Contains("no actor \"x\""));
  CHECK_THAT(error("default_node_s: 0 node { class: \"x\" time_s: 1 }"), Contains("no actor of class \"x\""));
  CHECK_THAT(error("default_node_s: 0 node { method: \"x\" time_s: 1 }"), Contains("no call of a method \"x\""));
  CHECK_THAT(error("default_node_s: 0 edge { from: \"a\" to: \"x\" time_s: 1 }"), Contains("edge[0].to: graph \"small\" has no node or output \"x\""));
  CHECK_THAT(error("default_node_s: 0 collective { collective: \"x\" time_s: 1 }"), Contains("no collective \"x\""));
  CHECK_THAT(error("default_node_s: 0 contention { slowed: LANE_COMPUTE node: \"x\" beside: LANE_RECV factor: 2 }"), Contains("contention[0].node"));
}

TEST_CASE("costs: the entry that says most about a call holds") {
  const Plan plan = Small();
  const auto of = [&](const std::string& text) {
    const CostModel m = MakeCostModel(Costs(text), {});
    std::vector<int64_t> ms;
    for (const PlanNode& n : plan.nodes) ms.push_back(m.compute(plan, n) / kMs);
    return ms;
  };
  using V = std::vector<int64_t>;
  CHECK(of("") == V{0, 5, 0});
  // b and c have a duration of their own in the plan.
  CHECK(of("default_node_s: 0.001") == V{1, 5, 0});
  CHECK(of("node { method: \"run\" time_s: 0.001 }") == V{1, 1, 1});
  CHECK(of("node { method: \"run\" time_s: 0.001 } node { class: \"std.Delay\" time_s: 0.002 }") == V{2, 2, 2});
  CHECK(of("node { class: \"std.Delay\" time_s: 0.002 } node { class: \"std.Delay\" method: \"run\" time_s: 0.003 }") == V{3, 3, 3});
  CHECK(of("node { class: \"std.Delay\" method: \"run\" time_s: 0.003 } node { actor: \"actor1\" time_s: 0.004 }") == V{3, 3, 4});
  CHECK(of("node { actor: \"actor1\" time_s: 0.004 } node { actor: \"actor1\" method: \"run\" time_s: 0.006 }") == V{0, 5, 6});
  CHECK(of("node { actor: \"actor0\" method: \"run\" time_s: 0.006 } node { node: \"b\" time_s: 0.007 }") == V{6, 7, 0});
}

TEST_CASE("costs of edges: entry, emulated link, cluster's link, default") {
  Plan plan = Small();
  plan.edges[1].bytes = 1000;
  const auto of = [&](const std::string& text, const std::vector<ClusterLink>& links) {
    const CostModel m = MakeCostModel(Costs(text), links);
    std::vector<int64_t> ms;
    for (int e : {0, 1}) ms.push_back(m.transfer(plan, plan.edges[e]) / kMs), ms.push_back(m.latency(plan, plan.edges[e]) / kMs);
    return ms;
  };
  using V = std::vector<int64_t>;
  const ClusterLink all{"", "", "", "", v1::TRANSPORT_UNSPECIFIED, false, 0.003, 100'000, 0};
  CHECK(of("", {}) == V{2, 0, 0, 0});
  CHECK(of("default_edge_s: 0.009", {}) == V{2, 0, 9, 0});
  CHECK(of("default_edge_s: 0.009", {all}) == V{2, 0, 10, 3});
  // A stated time is all of it; what else the entry sets, holds.
  CHECK(of("edge { from: \"b\" to: \"c\" time_s: 0.004 }", {all}) == V{2, 0, 4, 0});
  CHECK(of("edge { from: \"b\" to: \"c\" bandwidth: 1000000 }", {all}) == V{2, 0, 1, 3});
  CHECK(of("edge { from: \"b\" to: \"c\" bytes: 2000 latency_s: 0.001 }", {all}) == V{2, 0, 20, 1});
  CHECK(of("edge { from: \"b\" to: \"c\" time_s: 0.004 } edge { from: \"b\" output: 0 to: \"c\" time_s: 0.006 }", {}) == V{2, 0, 6, 0});
  // Over a link by rendezvous the latency is part of the time.
  CHECK(of("edge { from: \"a\" to: \"c\" time_s: 0.004 latency_s: 0.001 }", {}) == V{5, 0, 0, 0});
  const CostModel rest = MakeCostModel(Costs("edge { from: \"b\" to: \"c\" read_s: 0.002 first_s: 0.003 } collective { collective: \"g\" time_s: 1 first_s: 2 }"), {all});
  CHECK(rest.read(plan, plan.edges[1]) == 2 * kMs);
  CHECK(rest.first_transfer(plan, plan.edges[1]) == 3 * kMs);
  CHECK(rest.collective(plan, plan.groups[0]) == 1000 * kMs);
  CHECK(rest.first_collective(plan, plan.groups[0]) == 2000 * kMs);
}

TEST_CASE("cluster files") {
  const auto good = ParseCluster("k", R"(worker { name: "w0" host: "a" } worker { name: "w1" host: "b" device: "cuda" memory_bytes: 5 }
    link { from: "w0" to: "w1" latency_s: 1 } link { from: "client" first_s: 2 } link { from_host: "a" to_host: "b" transport: NCCL bandwidth: 3 }
    ipc_crossover_bytes: 7)");
  INFO(good.status().ToString());
  REQUIRE(good.ok());
  CHECK(good->workers[1].host_id == "b");
  CHECK(good->workers[1].device == "cuda");
  CHECK(good->workers[1].memory_bytes == 5);
  CHECK(good->client_host_id == "a");
  CHECK(good->ipc_crossover_bytes == 7);
  CHECK(good->links.size() == 3);
  CHECK_THAT(ClusterError(""), Contains("k: worker: there is none"));
  CHECK_THAT(ClusterError("worker { name: \"a b\" }"), Contains("k: worker[0].name: \"a b\" is no name"));
  CHECK_THAT(ClusterError("worker { name: \"client\" }"), Contains("worker[0].name: \"client\" stands for the client"));
  CHECK_THAT(ClusterError("worker { name: \"w\" } worker { name: \"w\" }"), Contains("worker[1].name: there are two"));
  CHECK_THAT(ClusterError("worker { name: \"w\" device: \"tpu\" }"), Contains("worker[0].device: \"tpu\" is neither"));
  const std::string w = "worker { name: \"w\" } ";
  CHECK_THAT(ClusterError(w + "link { from: \"x\" }"), Contains("link[0].from: no worker is named \"x\""));
  CHECK_THAT(ClusterError(w + "link { to_host: \"x\" }"), Contains("link[0].to_host: no worker is on host \"x\""));
  CHECK_THAT(ClusterError(w + "link { latency_s: -1 }"), Contains("link[0].latency_s: -1 is negative"));
  CHECK_THAT(ClusterError(w + "link { bandwidth: -1 }"), Contains("link[0].bandwidth: -1 is negative") && Contains("0 is unlimited"));
  CHECK_THAT(ClusterError(w + "link { transport: LOCAL }"), Contains("link[0].transport"));
  CHECK_THAT(ClusterError(w + "links { }"), Contains("no field named \"links\""));
}

TEST_CASE("cluster: the first link that fits, in either direction") {
  Plan plan = Small();
  plan.workers[0].host_id = "a", plan.workers[1].host_id = "b";
  const PlanEdge& e = plan.edges[0];  // w0 -> w1
  const auto fits = [&](ClusterLink l) { return FindLink({l}, plan, e) != nullptr; };
  CHECK(fits({}));
  CHECK(fits({"w0", "w1"}));
  CHECK(fits({"w1", "w0"}));
  CHECK(fits({"w0", ""}));
  CHECK_FALSE(fits({"client", ""}));
  CHECK(fits({"", "", "a", "b"}));
  CHECK_FALSE(fits({"", "", "a", "a"}));
  CHECK(fits({"", "", "", "", v1::SHM}));
  CHECK_FALSE(fits({"", "", "", "", v1::NCCL}));
  CHECK_FALSE(fits({"w1", "w0", "", "", v1::SHM, true}));
  CHECK(fits({"w0", "w1", "", "", v1::SHM, true}));
  const std::vector<ClusterLink> two = {{"w1", "client"}, {"", ""}};
  CHECK(FindLink(two, plan, e) == &two[1]);
  CHECK(FindLink(two, plan, plan.edges.back()) == &two[0]);  // c -> y
}

TEST_CASE("cluster: a plan made elsewhere must fit it") {
  const Plan plan = Small();
  const auto error = [&](const std::string& text) { return std::string(CheckCluster(*ParseCluster("k", text), plan).message()); };
  CHECK(error("worker { name: \"w0\" } worker { name: \"w1\" } worker { name: \"w2\" }").empty());
  CHECK_THAT(error("worker { name: \"w0\" }"), Contains("worker w1 of the plan is not in the cluster"));
  CHECK_THAT(error("worker { name: \"w0\" } worker { name: \"w1\" device: \"cuda\" }"), Contains("worker w1 is planned for cpu, in the cluster it has cuda"));
  CHECK_THAT(error("worker { name: \"w0\" } worker { name: \"w1\" host: \"b\" }"), Contains("worker w1 shares its host"));
  CHECK_THAT(error("worker { name: \"w0\" memory_bytes: 1 } worker { name: \"w1\" }"), Contains("worker w0: the plan needs"));
}

}  // namespace weft
