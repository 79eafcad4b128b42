#include "driver/plan/place.h"

#include <set>

#include <catch2/catch.hpp>

#include "driver/plan/graph_builder.h"

namespace weft {
namespace {

std::vector<int32_t> WorkersOf(GraphBuilder& b, const Cluster& c) {
  const auto p = Place(b.Resolve(), c);
  INFO(p.status().ToString());
  REQUIRE(p.ok());
  return p->actor_worker;
}

TEST_CASE("actors go where they say, the others to the worker with the fewest nodes, the first of several") {
  GraphBuilder b;
  b.Actor("a", "").Actor("b", "w1").Actor("c", "").Actor("d", "").Actor("e", "");
  b.Node("b1", "b");
  b.Node("b2", "b");
  b.Node("a1", "a");
  b.Node("c1", "c");
  b.Node("c2", "c");
  b.Node("d1", "d");
  b.Node("e1", "e");
  b.Output("x", "a1");
  // a: w0 (0,2,0); c: w2 (1,2,0); d: w0 (1,2,2); e: w0 (2,2,2).
  CHECK(WorkersOf(b, TestCluster({"h0", "h0", "h0"})) == std::vector<int32_t>{0, 1, 2, 0, 0});
}

TEST_CASE("an unknown worker is an error that lists those there are, for every actor") {
  GraphBuilder b;
  b.Actor("a", "w7").Actor("b", "gpu");
  b.Node("n", "a");
  b.Node("m", "b");
  b.Output("x", "n");
  const auto p = Place(b.Resolve(), TestCluster({"h0", "h0"}));
  REQUIRE(p.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(p.status(), "actor a: there is no worker w7; there are: w0, w1"));
  CHECK(Contains(p.status(), "actor b: there is no worker gpu"));
  CHECK_FALSE(Place(b.Resolve(), Cluster{}).ok());
}

TEST_CASE("members of a collective get workers of their own, and consumers one of these") {
  GraphBuilder b;
  b.Actor("use", "").Actor("m0", "").Actor("m1", "").Actor("m2", "").Actor("busy", "w1");
  for (const char* n : {"x0", "x1", "x2", "x3"}) b.Node(n, "busy");
  b.Node("g0", "m0");
  b.Node("g1", "m1");
  b.Node("g2", "m2");
  b.AllReduce("sum", {"g0", "g1", "g2"});
  b.Node("u", "use", {"+sum"});
  b.Output("x", "u");
  const auto w = WorkersOf(b, TestCluster({"h0", "h0", "h0", "h0"}));
  CHECK(std::set<int32_t>{w[1], w[2], w[3]}.size() == 3);
  CHECK((w[0] == w[1] || w[0] == w[2] || w[0] == w[3]));
  CHECK(std::count(w.begin(), w.end(), 1) == 1);  // the four nodes there repel the others

  const auto few = Place(b.Resolve(), TestCluster({"h0", "h0"}));
  REQUIRE(few.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(few.status(), "actor m2: every worker already holds another member of sum"));
}

TEST_CASE("members on one worker and consumers without a member there are refused") {
  GraphBuilder b;
  b.Actor("a", "w0").Actor("b", "w2").Actor("c", "w1").Actor("d", "w0");
  b.Node("ga", "a");
  b.Node("gb", "b");
  b.Node("gc", "c");
  b.AllReduce("one", {"ga", "gb"});
  b.AllReduce("two", {"ga", "gc"});
  b.Node("u", "d", {"+two"});
  b.Output("x", "u");
  ResolvedGraph g = b.Resolve();  // which refuses this too, where all workers are named
  g.actors[1].worker = "w0";
  g.actors[3].worker = "w2";
  const auto p = Place(g, TestCluster({"h0", "h0", "h0"}));
  REQUIRE(p.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(p.status(), "collective one: members ga and gb are both on w0"));
  CHECK(Contains(p.status(), "node u takes collective two on w2, where it has no member; its members are on w0, w1"));
}

TEST_CASE("a member and the node that it comes after live together") {
  GraphBuilder b;
  b.Actor("a", "").Actor("after", "").Actor("other", "w0").Actor("far", "w1");
  b.Node("o", "other");
  b.Node("g", "a");
  b.Node("f", "after");
  b.Node("h", "other");
  b.AllReduce("sum", {"g", "h"}).mutable_member(0)->set_after("f");
  b.Output("x", "f");
  const auto w = WorkersOf(b, TestCluster({"h0", "h0"}));
  CHECK(w[0] == 1);
  CHECK(w[1] == 1);

  ResolvedGraph g = b.Resolve();
  g.actors[0].worker = "w1";
  g.actors[1].worker = "w0";
  const auto p = Place(g, TestCluster({"h0", "h0"}));
  REQUIRE_FALSE(p.ok());
  CHECK(Contains(p.status(), "put both on one worker"));
}

TEST_CASE("long chains of automatic consumers are placed, whatever their order in the file") {
  GraphBuilder b;
  constexpr int kLinks = 2000;
  for (int i = kLinks; i >= 0; --i) b.Actor(absl::StrCat("a", i), "");
  b.Actor("fix", "w1");
  for (int i = 0; i <= kLinks; ++i) {
    b.Node(absl::StrCat("n", i), absl::StrCat("a", i), i ? std::vector<std::string>{absl::StrCat("+c", i - 1)} : std::vector<std::string>{});
    b.Node(absl::StrCat("f", i), "fix");
    if (i < kLinks) b.AllReduce(absl::StrCat("c", i), {absl::StrCat("n", i), absl::StrCat("f", i)});
  }
  // Without args n0 and f0 are F32[256], and so is everything that passes them on.
  b.Output("x", absl::StrCat("n", kLinks));
  const auto p = Place(b.Resolve(), TestCluster({"h0", "h0", "h0"}));
  INFO(p.status().ToString());
  REQUIRE(p.ok());
}

}  // namespace
}  // namespace weft
