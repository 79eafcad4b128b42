#include "driver/plan/compiler.h"

#include <chrono>
#include <random>

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

TEST_CASE("the cluster of a graph alone: its workers in natural order on one host") {
  GraphBuilder b;
  CHECK(ClusterFromGraph(b.graph()).workers.size() == 1);
  CHECK(ClusterFromGraph(b.graph()).workers[0].name == "w0");
  for (const char* w : {"w10", "w9", "w1", "", "gpu", "w9", "w01"}) b.Actor(absl::StrCat("a", b.graph().actor_size()), w);
  const Cluster c = ClusterFromGraph(b.graph());
  std::vector<std::string> names;
  for (const ClusterWorker& w : c.workers) {
    names.push_back(w.name);
    CHECK(w.host_id == c.client_host_id);
  }
  CHECK(names == std::vector<std::string>{"gpu", "w01", "w1", "w9", "w10"});
}

// Every way of moving values and of overlapping them.
void ForAllWays(const std::function<GraphBuilder()>& make, const std::vector<std::pair<std::string, std::string>>& edges) {
  for (const v1::Overlap overlap : {v1::ON, v1::OFF, v1::AUTO}) {
    for (int ways = 0; ways < 1 << edges.size(); ++ways) {
      for (const int depth : {0, 1, 3}) {
        GraphBuilder b = make();
        b.options().set_overlap(overlap);
        b.options().set_prefetch_depth(depth);
        for (size_t e = 0; e < edges.size(); ++e) {
          if (ways >> e & 1) b.Comm(edges[e].first, edges[e].second);
        }
        MustRun(b.CompileOk());
      }
    }
  }
}

TEST_CASE("a receive never has to complete before a compute on which its producer depends through another transport") {
  ForAllWays(
      [] {
        GraphBuilder b;
        b.Actor("a", "w0").Actor("b", "w1");
        b.Node("a0", "a");
        b.Node("b0", "b", {"a0"});
        b.Node("a1", "a", {"b0"});
        b.Node("b1", "b", {"a1"});
        b.Output("y", "b1");
        return b;
      },
      {{"a0", "b0"}, {"b0", "a1"}, {"a1", "b1"}});
}

TEST_CASE("two values of one remote actor, taken in the opposite order of their making: sends and receives match") {
  ForAllWays(
      [] {
        GraphBuilder b;
        b.Actor("a", "w0").Actor("b", "w1");
        b.Node("p", "a");
        b.Node("q", "a");
        b.Node("u", "b", {"q", "p"});
        b.Output("y", "u");
        return b;
      },
      {{"p", "u"}, {"q", "u"}});
}

TEST_CASE("two actors that each send first and receive second: it runs") {
  const auto make = [] {
    GraphBuilder b;
    b.Actor("a", "w0").Actor("b", "w1");
    b.Node("a0", "a");
    b.Node("b0", "b");
    b.Node("b1", "b", {"a0"});
    b.Node("a1", "a", {"b0"});
    b.Output("y", "a1").Output("z", "b1");
    return b;
  };
  ForAllWays(make, {{"a0", "b1"}, {"b0", "a1"}});
}

TEST_CASE("a -> {b, c} together with b -> c does not deadlock") {
  ForAllWays(
      [] {
        GraphBuilder b;
        b.Actor("a", "w0").Actor("b", "w1").Actor("c", "w2");
        b.Node("a0", "a");
        b.Node("b0", "b", {"a0"});
        b.Node("c0", "c", {"a0", "b0"});
        b.Output("y", "c0");
        return b;
      },
      {{"a0", "b0"}, {"a0", "c0"}, {"b0", "c0"}});
}

TEST_CASE("collectives in opposite program orders on two workers: one order is found") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("a0", "a");
  b.Node("a1", "a");
  b.Node("b0", "b");
  b.Node("b1", "b");
  b.AllReduce("first", {"a0", "b1"});
  b.AllReduce("second", {"a1", "b0"});
  b.Node("u", "a", {"+first", "+second"});
  b.Output("y", "u").Output("z", "+second");
  for (const v1::Overlap overlap : {v1::ON, v1::OFF}) {
    b.options().set_overlap(overlap);
    MustRun(b.CompileOk());
  }
}

TEST_CASE("a member takes part right after its `after`, and waits for it") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("g0", "a");
  b.Node("later", "a");
  b.Node("g1", "b");
  b.AllReduce("sum", {"g0", "g1"}).mutable_member(0)->set_after("later");
  b.Output("y", "+sum");
  const Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(WaitsOf(plan, OpNamed(plan, "ALL_REDUCE sum", 0)) == "DATA COMPUTE g0, CONTROL COMPUTE later, BUFFER WRITE sum:0 -> y @2");
}

TEST_CASE("control edges: a CONTROL wait, at the receiving end on READ or RECV") {
  for (const bool comm : {false, true}) {
    GraphBuilder b;
    b.Actor("a", "w0").Actor("b", "w1");
    b.Node("p", "a");
    b.Node("q", "b").add_after("p");
    b.Node("r", "a").add_after("p");
    if (comm) b.options().mutable_emulate()->set_latency_s(0.001);
    const Plan plan = b.CompileOk();
    MustRun(plan);
    const std::string in = comm ? "RECV p -> q (after)" : "READ p -> q (after)";
    CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE q")) == "CONTROL " + in);
    CHECK(OpNamed(plan, "COMPUTE q").args.empty());
    CHECK(WaitsOf(plan, OpNamed(plan, comm ? "SEND p -> q (after)" : "WRITE p -> q (after)")) == "CONTROL COMPUTE p");
    CHECK(WaitsOf(plan, OpNamed(plan, "COMPUTE r")) == "CONTROL COMPUTE p");
  }
}

TEST_CASE("lanes: all transfers of an ordered pair share one at each end, pairs are spread") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1").Actor("c", "w2");
  b.Node("p", "a");
  b.Node("q", "a");
  b.Node("u", "b", {"p", "q"});
  b.Node("v", "c", {"p", "q"});
  b.Output("y", "u").Output("z", "v");
  for (const char* from : {"p", "q"}) {
    for (const char* to : {"u", "v"}) b.Comm(from, to);
  }
  b.options().set_send_lanes(2);
  b.options().set_recv_lanes(3);
  const Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(OpNamed(plan, "SEND p:0 -> u:0").lane_index == OpNamed(plan, "SEND q:0 -> u:1").lane_index);
  CHECK(OpNamed(plan, "SEND p:0 -> v:0").lane_index == OpNamed(plan, "SEND q:0 -> v:1").lane_index);
  CHECK(OpNamed(plan, "SEND p:0 -> u:0").lane_index != OpNamed(plan, "SEND p:0 -> v:0").lane_index);
}

TEST_CASE("order COST runs what has the longest way to go first, and frees actors from the order of the file") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  // In the order of the file w1 would idle while "idle" runs; and "late" stands before what it needs.
  b.Node("idle", "a").mutable_config()->set_duration_s(0.010);
  b.Node("late", "a", {"far"});
  b.Node("first", "a").mutable_config()->set_duration_s(0.010);
  b.Node("far", "b", {"first"}).mutable_config()->set_duration_s(0.020);
  b.Output("y", "late").Output("z", "idle");
  b.options().set_max_in_flight(1);
  for (v1::Actor& a : *b.graph().mutable_actor()) a.mutable_config()->set_duration_s(0);
  b.options().set_order(v1::COST);
  const Plan plan = b.CompileOk();
  MustRun(plan);
  CHECK(PredictSeconds(plan, 10, 1) == Approx(0.030));
  CHECK(OpNamed(plan, "COMPUTE first").id < OpNamed(plan, "COMPUTE idle").id);
  b.options().set_order(v1::PROGRAM);
  CHECK(b.TryCompile().status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("overlap AUTO keeps whichever is predicted to be faster") {
  GraphBuilder b;
  b.Actor("a", "w0", 0.01).Actor("b", "w1", 0.01);
  b.Node("p", "a");
  b.Node("q", "b", {"p"});
  b.Output("y", "q");
  b.options().mutable_emulate()->set_latency_s(0.01);
  const auto with = [&](v1::Overlap overlap) {
    b.options().set_overlap(overlap);
    return b.CompileOk();
  };
  const auto seconds = [&](v1::Overlap overlap) { return PredictSeconds(with(overlap), 12, 4); };
  CHECK(seconds(v1::ON) < seconds(v1::OFF));
  CHECK(seconds(v1::AUTO) == seconds(v1::ON));
  const Plan plan = with(v1::AUTO);
  CHECK(OpNamed(plan, "RECV p:0 -> q:0").slots == 2);
  CHECK(plan.options.overlap() == v1::AUTO);
}

TEST_CASE("plans carry their hash, and equal graphs give equal plans") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("q", "b", {"p"});
  b.Output("y", "q");
  CompileTimes times;
  const auto plan = Compile(b.graph(), ClassTable::Std(), ClusterFromGraph(b.graph()), &times);
  REQUIRE(plan.ok());
  CHECK(plan->hash.size() == 16);
  CHECK(plan->hash == HashPlan(*plan));
  CHECK(PlanToText(*plan) == PlanToText(b.CompileOk()));
  std::vector<std::string> passes;
  for (const auto& [name, s] : times.passes) {
    passes.push_back(name);
    CHECK(s >= 0);
  }
  CHECK(passes == std::vector<std::string>{"validate", "place", "transport", "lower", "order", "emit", "overlap", "memory", "launch", "hash", "verify"});
  b.options().set_prefetch_depth(2);
  CHECK(b.CompileOk().hash != plan->hash);
}

TEST_CASE("a plan above the limit of ops is refused before it is built") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  v1::Node& n = b.Node("q", "b", {"p"});
  for (int i = 0; i < 1'000'000; ++i) *n.add_arg() = n.arg(0);
  const absl::Status status = b.TryCompile().status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Contains(status, "at most 2000000"));
}

TEST_CASE("random graphs compile, verify and run to their end in the simulator") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 rng(seed);
    const auto upto = [&](int n) { return static_cast<int>(rng() % n); };
    GraphBuilder b;
    const int workers = 1 + upto(5), actors = workers + upto(4), nodes = 1 + upto(40);
    for (int a = 0; a < actors; ++a) {
      b.Actor(absl::StrCat("a", a), a < workers ? absl::StrCat("w", a) : absl::StrCat("w", upto(workers)), upto(3) * 0.001);
    }
    b.Input("x");
    int collectives = 0;
    std::vector<std::vector<std::string>> results(workers);  // collectives with a member there
    for (int n = 0; n < nodes; ++n) {
      const int actor = upto(actors);
      const int w = b.graph().actor(actor).worker()[1] - '0';
      std::vector<std::string> args;
      for (int k = upto(4); k > 0 && n > 0; --k) args.push_back(absl::StrCat("n", upto(n)));
      if (upto(6) == 0) args.push_back("<x");
      if (upto(3) == 0 && !results[w].empty()) args.push_back(absl::StrCat("+", results[w][upto(results[w].size())]));
      v1::Node& node = b.Node(absl::StrCat("n", n), absl::StrCat("a", actor), args);
      if (n > 0 && upto(6) == 0) node.add_after(absl::StrCat("n", upto(n)));
      if (upto(8) == 0) node.set_overlap(upto(2) ? v1::ON : v1::OFF);
      if (upto(5) == 0) b.Output(absl::StrCat("o", n), absl::StrCat("n", n));
      if (upto(6) == 0) {
        std::vector<std::string> last(workers);
        for (int m = 0; m <= n; ++m) {
          for (const v1::Actor& a : b.graph().actor()) {
            if (a.name() == b.graph().node(m).actor()) last[a.worker()[1] - '0'] = absl::StrCat("n", m);
          }
        }
        std::vector<std::string> members;
        const std::string name = absl::StrCat("c", collectives);
        for (int v = 0; v < workers; ++v) {
          if (last[v].empty() || upto(4) == 0) continue;
          members.push_back(last[v]);
          results[v].push_back(name);
        }
        if (members.empty()) continue;
        ++collectives;
        b.AllReduce(name, members);
      }
    }
    for (auto& n : *b.graph().mutable_node()) n.mutable_config()->set_shape("[256]");
    b.options().set_prefetch_depth(upto(4));
    b.options().set_overlap(upto(2) ? v1::ON : v1::OFF);
    b.options().set_recv_lanes(1 + upto(3));
    b.options().set_send_lanes(1 + upto(3));
    b.options().set_collective_lanes(1 + upto(2));
    if (upto(2)) b.options().mutable_emulate()->set_latency_s(0.001);
    if (upto(4) == 0) b.options().set_order(v1::COST);
    Cluster cluster = ClusterFromGraph(b.graph());
    if (upto(2)) {
      for (size_t w = 0; w < cluster.workers.size(); ++w) cluster.workers[w].host_id = absl::StrCat("h", upto(3));
    }
    INFO("seed " << seed);
    const Plan plan = b.CompileOk(cluster);
    MustRun(plan);
    const auto back = PlanFromText(PlanToText(plan));
    INFO(back.status().ToString());
    REQUIRE(back.ok());
    CHECK(PlanToText(*back) == PlanToText(plan));
    const auto wire = PlanFromProto(PlanToProto(plan));
    REQUIRE(wire.ok());
    CHECK(PlanToText(*wire) == PlanToText(plan));
  }
}

// The order of a worker's ops, without client edges.
std::string ListOf(const Plan& plan, int32_t worker) {
  std::vector<std::string> list;
  for (const PlanOp& op : plan.ops) {
    if (op.worker == worker && (op.edge < 0 || plan.edges[op.edge].dst_worker != kClient)) list.push_back(OpName(plan, op));
  }
  return absl::StrJoin(list, ", ");
}

TEST_CASE("a send before a collective is received before it, in whatever order the workers stand in the file") {
  for (const bool y_first : {false, true}) {
    GraphBuilder b;
    b.Actor("a", "w0").Actor("b", "w1");
    if (y_first) b.Node("y", "b");
    b.Node("x", "a");
    b.Node("t", "a");
    if (!y_first) b.Node("y", "b");
    v1::Collective& sum = b.AllReduce("sum", {"x", "y"});
    sum.mutable_member(0)->set_after("t");
    b.Node("recv", "b", {"t"});
    b.Comm("t", "recv");
    b.Output("out", "recv").Output("total", "+sum");
    const Plan plan = b.CompileOk();
    MustRun(plan);
    CHECK(ListOf(plan, 1) == "COMPUTE y, RECV t:0 -> recv:0, ALL_REDUCE sum, COMPUTE recv");
  }
}

TEST_CASE("workers of one program get identical lists") {
  for (const int workers : {2, 4}) {
    GraphBuilder b;
    std::vector<std::string> first, second;
    for (int w = 0; w < workers; ++w) {
      b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
      b.Node(absl::StrCat("bwd0-", w), absl::StrCat("a", w));
      b.Node(absl::StrCat("bwd1-", w), absl::StrCat("a", w), {absl::StrCat("bwd0-", w)});
      first.push_back(absl::StrCat("bwd0-", w));
      second.push_back(absl::StrCat("bwd1-", w));
    }
    b.AllReduce("grad0", first);
    b.AllReduce("grad1", second);
    const Plan plan = b.CompileOk();
    MustRun(plan);
    for (int w = 0; w < workers; ++w) {
      CHECK(ListOf(plan, w) == absl::StrCat("COMPUTE bwd0-", w, ", ALL_REDUCE grad0, COMPUTE bwd1-", w, ", ALL_REDUCE grad1"));
    }
  }
}

// Run by name: prints what each pass takes.
TEST_CASE("timing of a million ops", "[.timing]") {
  GraphBuilder b;
  constexpr int kNodes = 340'000, kWorkers = 8;
  for (int w = 0; w < kWorkers; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
  for (int n = 0; n < kNodes; ++n) {
    std::vector<std::string> args;
    if (n > 0) args.push_back(absl::StrCat("n", n - 1));
    b.Node(absl::StrCat("n", n), absl::StrCat("a", n % kWorkers), args);
  }
  b.Output("y", absl::StrCat("n", kNodes - 1));
  CompileTimes times;
  const auto plan = Compile(b.graph(), ClassTable::Std(), ClusterFromGraph(b.graph()), &times);
  REQUIRE(plan.ok());
  std::string text = absl::StrCat(plan->ops.size(), " ops");
  for (const auto& [name, s] : times.passes) absl::StrAppend(&text, "\n", name, " ", s, " s");
  WARN(text);
}

TEST_CASE("a graph of a hundred thousand nodes compiles in seconds") {
  GraphBuilder b;
  constexpr int kNodes = 100'000, kWorkers = 8;
  for (int w = 0; w < kWorkers; ++w) b.Actor(absl::StrCat("a", w), absl::StrCat("w", w));
  for (int n = 0; n < kNodes; ++n) {
    std::vector<std::string> args;
    if (n > 0) args.push_back(absl::StrCat("n", n - 1));
    if (n >= kWorkers) args.push_back(absl::StrCat("n", n - kWorkers));
    b.Node(absl::StrCat("n", n), absl::StrCat("a", n % kWorkers), args);
  }
  b.Output("y", absl::StrCat("n", kNodes - 1));
  CompileTimes times;
  const auto start = std::chrono::steady_clock::now();
  const auto plan = Compile(b.graph(), ClassTable::Std(), ClusterFromGraph(b.graph()), &times);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE(plan.ok());
  for (const auto& [name, t] : times.passes) UNSCOPED_INFO(name << " " << t);
  CHECK(plan->ops.size() == 3 * (kNodes - 1) + 1 + 1);
  CHECK(s < 20);  // takes about 1 s; anything quadratic would take minutes
}

}  // namespace
}  // namespace weft
