#include "driver/plan/transport.h"

#include <functional>

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

// What validation would refuse already can be had by `change`.
absl::StatusOr<Edges> Choose(const GraphBuilder& b, const Cluster& c, v1::Overlap auto_as = v1::ON,
                             const std::function<void(ResolvedGraph*)>& change = nullptr) {
  ResolvedGraph g = b.Resolve();
  if (change != nullptr) change(&g);
  const auto p = Place(g, c);
  REQUIRE(p.ok());
  return ChooseTransports(g, *p, c, auto_as);
}

// "p:0->q:0 SHM": all edges.
std::vector<std::string> Listed(const absl::StatusOr<Edges>& e) {
  INFO(e.status().ToString());
  REQUIRE(e.ok());
  std::vector<std::string> out;
  for (const PlanEdge& edge : e->edges) out.push_back(absl::StrCat(edge.src, "->", edge.dst, " ", v1::Transport_Name(edge.transport)));
  return out;
}

// p on w0, q on w1, r on w0 too; input x to p, q to the output y.
GraphBuilder Small() {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1").Input("x");
  b.Node("p", "a", {"<x"});
  b.Node("q", "b", {"p"});
  b.Node("r", "a", {"p"});
  b.Output("y", "q");
  return b;
}

TEST_CASE("each edge gets the channel that fits its ends; values within a worker get none") {
  const GraphBuilder b = Small();
  CHECK(Listed(Choose(b, TestCluster({"h0", "h0"}))) == std::vector<std::string>{"x->p SHM", "p->q SHM", "q->y SHM"});
  CHECK(Listed(Choose(b, TestCluster({"h0", "h1"}))) == std::vector<std::string>{"x->p SHM", "p->q GLOO", "q->y REMOTE"});
  CHECK(Listed(Choose(b, TestCluster({"h1", "h1"}))) == std::vector<std::string>{"x->p REMOTE", "p->q SHM", "q->y REMOTE"});
  CHECK(Listed(Choose(b, TestCluster({"h0", "h1"}, "cuda"))) == std::vector<std::string>{"x->p SHM", "p->q NCCL", "q->y REMOTE"});
  Cluster one_host = TestCluster({"h0", "h0"}, "cuda");
  CHECK(Listed(Choose(b, one_host)) == std::vector<std::string>{"x->p SHM", "p->q NCCL", "q->y SHM"});
  one_host.ipc_crossover_bytes = 1024;  // p's F32[256]
  CHECK(Listed(Choose(b, one_host)) == std::vector<std::string>{"x->p SHM", "p->q IPC", "q->y SHM"});
  one_host.workers[1].device = "cpu";
  CHECK(Listed(Choose(b, one_host)) == std::vector<std::string>{"x->p SHM", "p->q SHM", "q->y SHM"});

  const auto e = Choose(b, TestCluster({"h0", "h1"}));
  CHECK(e->edges[1].rendezvous);
  CHECK_FALSE(e->edges[0].rendezvous);
  CHECK_FALSE(e->edges[2].rendezvous);
  CHECK(e->edges[1].bytes == 1024);
  CHECK(e->arg_edge == std::vector<int32_t>{0, 1, -1});
}

TEST_CASE("impossible overrides name both ends, both workers, and why") {
  const auto refused = [](const Cluster& c, const char* from, const char* to, v1::Transport t) {
    GraphBuilder b = Small();
    b.Edge(from, to);
    const auto e = Choose(b, c, v1::ON, [t](ResolvedGraph* g) { g->overrides[0].edge.set_transport(t); });
    REQUIRE(e.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(e.status().message());
  };
  const Cluster near = TestCluster({"h0", "h0"}), far = TestCluster({"h0", "h1"});
  CHECK(refused(far, "p", "q", v1::SHM).find("edge p:0 (w0) -> q (w1): transport SHM is impossible: the ends are on different hosts") == 0);
  CHECK(refused(near, "p", "q", v1::NCCL).find("both ends must be CUDA workers") != std::string::npos);
  CHECK(refused(near, "p", "q", v1::IPC).find("both ends must be CUDA workers") != std::string::npos);
  CHECK(refused(TestCluster({"h0", "h1"}, "cuda"), "p", "q", v1::IPC).find("different hosts") != std::string::npos);
  CHECK(refused(near, "p", "q", v1::LOCAL).find("two places") != std::string::npos);
  CHECK(refused(near, "p", "q", v1::REMOTE).find("only goes to and from the client") != std::string::npos);
  CHECK(refused(near, "p", "r", v1::SHM).find("edge p:0 (w0) -> r (w0)") == 0);
  CHECK(refused(near, "x", "p", v1::GLOO).find("edge x (client) -> p (w0): transport GLOO is impossible") == 0);
  CHECK(refused(far, "q", "y", v1::SHM).find("edge q:0 (w1) -> y (client)") == 0);
}

TEST_CASE("possible overrides hold") {
  GraphBuilder b = Small();
  b.Edge("p", "q").set_transport(v1::GLOO);
  b.Edge("p", "r").set_transport(v1::LOCAL);
  b.Edge("x", "p").set_transport(v1::REMOTE);
  CHECK(Listed(Choose(b, TestCluster({"h0", "h0"}))) == std::vector<std::string>{"x->p REMOTE", "p->q GLOO", "q->y SHM"});
}

TEST_CASE("an emulated link turns shared memory between two workers into rendezvous, and lies nowhere else") {
  GraphBuilder b = Small();
  b.options().mutable_emulate()->set_latency_s(0.25);
  b.Edge("p", "q").mutable_emulate()->set_latency_s(0.5);
  auto e = Choose(b, TestCluster({"h0", "h0"}));
  REQUIRE(e.ok());
  CHECK(e->edges[1].emulated);
  CHECK(e->edges[1].rendezvous);
  CHECK(e->edges[1].emulate_latency_s == 0.5);
  CHECK_FALSE(e->edges[0].emulated);
  CHECK_FALSE(e->edges[2].emulated);

  for (const auto& [from, to] : {std::pair("p", "r"), {"x", "p"}, {"q", "y"}}) {
    GraphBuilder wrong = Small();
    wrong.Edge(from, to);
    const auto status = Choose(wrong, TestCluster({"h0", "h0"}), v1::ON, [](ResolvedGraph* g) {
                          g->overrides[0].edge.mutable_emulate()->set_latency_s(1);
                        }).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Contains(status, "an emulated link lies over shared memory between two workers"));
  }
  CHECK_FALSE(Choose(b, TestCluster({"h0", "h1"})).ok());
  // The graph's own link is only laid where it can be.
  GraphBuilder all = Small();
  all.options().mutable_emulate()->set_latency_s(0.25);
  e = Choose(all, TestCluster({"h0", "h1"}));
  REQUIRE(e.ok());
  CHECK_FALSE(e->edges[1].emulated);
}

TEST_CASE("control edges between workers are edges of no bytes; where a value comes anyway there is none") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1");
  b.Node("p", "a");
  b.Node("q", "b").add_after("p");
  b.Node("r", "a").add_after("p");
  b.Node("s", "b", {"p"}).add_after("p");
  b.Output("y", "s");
  const auto e = Choose(b, TestCluster({"h0", "h0"}));
  CHECK(Listed(e) == std::vector<std::string>{"p->q SHM", "p->s SHM", "s->y SHM"});
  CHECK(e->edges[0].control);
  CHECK(e->edges[0].bytes == 0);
  CHECK(e->edges[0].spec == Spec{v1::U8, Shape::Of({0})});
  CHECK(e->after_edge == std::vector<int32_t>{0, -1, Edges::kNoEdgeNeeded});
}

TEST_CASE("overlap and depth: the edge's, else the consumer's, else the graph's") {
  GraphBuilder b = Small();
  b.options().set_prefetch_depth(3);
  auto e = Choose(b, TestCluster({"h0", "h0"}));
  CHECK(e->info[1].depth == 3);
  b.graph().mutable_node(1)->set_overlap(v1::OFF);
  e = Choose(b, TestCluster({"h0", "h0"}));
  CHECK(e->info[1].depth == 0);
  CHECK_FALSE(e->info[1].overlap);
  CHECK(e->info[0].overlap);
  v1::Edge& edge = b.Edge("p", "q");
  edge.set_overlap(v1::ON);
  edge.set_prefetch_depth(2);
  e = Choose(b, TestCluster({"h0", "h0"}));
  CHECK(e->info[1].depth == 2);
  edge.set_overlap(v1::AUTO);
  CHECK(Choose(b, TestCluster({"h0", "h0"}), v1::ON)->info[1].overlap);
  CHECK_FALSE(Choose(b, TestCluster({"h0", "h0"}), v1::OFF)->info[1].overlap);
}

TEST_CASE("a shape without bound cannot go through NCCL") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w1").Input("x", "[?]");
  b.Node("p", "a", {"<x"});
  b.Node("q", "b", {"p"});
  b.Output("y", "q");
  const auto status = Choose(b, TestCluster({"h0", "h0"}, "cuda")).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(status, "edge p:0 (w0) -> q (w1): its shape [?] has no bound, which NCCL cannot carry"));
  CHECK(Choose(b, TestCluster({"h0", "h0"})).ok());
}

}  // namespace
}  // namespace weft
