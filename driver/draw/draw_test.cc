#include <random>

#include <catch2/catch.hpp>

#include "common/classes/signature.h"
#include "driver/draw/graph_view.h"
#include "driver/draw/plan_picture.h"
#include "driver/graph/parse.h"
#include "driver/plan/compiler.h"
#include "driver/plan/test_plan.h"

namespace weft {
namespace {

using Catch::Contains;

Plan Compiled() {
  const auto graph = ParseGraph("g", R"(name: "g"
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[4]" fill: "ones" } }
    actor { name: "d0" class: "std.Delay" worker: "w0" config { duration_s: 1 } }
    actor { name: "m" class: "std.Math" worker: "w1" }
    actor { name: "n" class: "std.Math" worker: "w0" }
    input { name: "x" dtype: F32 shape: "[4]" }
    node { name: "make" actor: "s" method: "make" }
    node { name: "wait" actor: "d0" arg { node: "make" } }
    node { name: "sum" actor: "m" method: "add" arg { node: "wait" } arg { input: "x" } }
    node { name: "own" actor: "n" method: "scale" config { scale: 2 } arg { node: "make" } after: "wait" }
    node { name: "late" actor: "n" method: "scale" config { scale: 2 } arg { node: "own" } after: "sum" }
    collective { name: "all" op: ALL_REDUCE reduce: SUM member { node: "own" } member { node: "sum" } }
    node { name: "end" actor: "m" method: "scale" config { scale: 2 } arg { collective: "all" } }
    output { name: "y" node: "end" })");
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  auto plan = Compile(*graph, ClassTable::Std(), ClusterFromGraph(*graph));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

int32_t Find(const GraphView& v, const std::string& name) {
  for (size_t i = 0; i < v.vertices.size(); ++i) {
    if (v.vertices[i].name == name) return static_cast<int32_t>(i);
  }
  FAIL("no " << name);
  return -1;
}

const GraphArc* FindArc(const GraphView& v, const std::string& from, const std::string& to, bool control = false) {
  for (const GraphArc& a : v.arcs) {
    if (a.from == Find(v, from) && a.to == Find(v, to) && a.control == control) return &a;
  }
  return nullptr;
}

int Count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("the view of a graph has its nodes, values and control edges") {
  const GraphView v = ViewOf(Compiled());
  CHECK(v.vertices.size() == 9);
  REQUIRE(FindArc(v, "make", "wait") != nullptr);
  CHECK(FindArc(v, "make", "wait")->transport == v1::LOCAL);
  REQUIRE(FindArc(v, "wait", "sum") != nullptr);
  CHECK(FindArc(v, "wait", "sum")->transport == v1::SHM);
  CHECK_THAT(FindArc(v, "wait", "sum")->what, Contains("F32[4]"));
  CHECK(FindArc(v, "x", "sum") != nullptr);
  CHECK(FindArc(v, "end", "y") != nullptr);
  CHECK(FindArc(v, "own", "all") != nullptr);
  CHECK(FindArc(v, "sum", "all") != nullptr);
  CHECK(FindArc(v, "all", "end") != nullptr);
  CHECK(FindArc(v, "wait", "own", true) != nullptr);
  CHECK(FindArc(v, "sum", "late", true) != nullptr);
  CHECK(v.vertices[Find(v, "make")].depth == 0);
  CHECK(v.vertices[Find(v, "sum")].depth == 2);
  CHECK(v.vertices[Find(v, "x")].worker == kClient);
  CHECK(v.vertices[Find(v, "end")].worker == 1);
  for (const GraphArc& a : v.arcs) CHECK(v.vertices[a.from].depth < v.vertices[a.to].depth);
  CHECK(ViewOf(Plan()).vertices.empty());
}

TEST_CASE("graphs for Graphviz and as SVG") {
  GraphView v = ViewOf(Compiled());
  v.name = "a\"b<&>";
  const std::string dot = GraphToDot(v);
  CHECK_THAT(dot, Catch::StartsWith("digraph \"a\\\"b<&>\" {"));
  CHECK(Count(dot, "subgraph cluster_") == 2);
  CHECK(Count(dot, " -> ") == static_cast<int>(v.arcs.size()));
  CHECK(Count(dot, "style=dashed") == 2);
  CHECK_THAT(dot, Contains("label=\"wait\\nstd.Delay run\""));
  const std::string svg = GraphToSvg(v);
  CHECK_THAT(svg, Catch::StartsWith("<svg xmlns") && Catch::EndsWith("</svg>\n") && Contains("a&quot;b&lt;&amp;&gt;"));
  CHECK(Count(svg, "marker-end=") == static_cast<int>(v.arcs.size()));
  CHECK(Count(svg, "stroke-dasharray") == 2);
  CHECK(Count(svg, "<g>") == Count(svg, "</g>"));
  // Nothing from elsewhere.
  CHECK(Count(svg, "http") == 1);
  CHECK(Count(svg, "<script") == 0);
  // Much is cut, and said.
  for (int i = 0; i < 3000; ++i) v.vertices.push_back(v.vertices[0]);
  CHECK_THAT(GraphToSvg(v), Contains("Shown: the first 1500 of 3009"));
}

TEST_CASE("any plan that can be read can be drawn") {
  std::mt19937 rng(5);
  int drawn = 0;
  for (int round = 0; round < 3000; ++round) {
    Plan plan = Compiled();
    Scramble(&rng, &plan);
    if (!CheckPlan(plan).ok()) continue;
    ++drawn;
    const GraphView view = ViewOf(plan);
    CHECK_THAT(GraphToSvg(view), Catch::EndsWith("</svg>\n"));
    CHECK_THAT(GraphToDot(view), Catch::EndsWith("}\n"));
    CHECK_THAT(PlanToDot(plan), Catch::EndsWith("}\n"));
    const auto result = Simulate(plan, CostModel::Default(), {2, 1, true});
    if (result.ok()) CHECK_THAT(PlanPicture(plan, *result, "x.svg", {true}), Catch::EndsWith("</svg>\n"));
  }
  CHECK(drawn > 100);
}

TEST_CASE("plans: lanes over time with their transfers, and for Graphviz") {
  const Plan plan = Compiled();
  const auto result = Simulate(plan, CostModel::Default(), {2, 1, true});
  REQUIRE(result.ok());
  int transfers = 0, ops = static_cast<int>(plan.ops.size());
  for (const PlanEdge& e : plan.edges) transfers += e.src_worker != kClient && e.dst_worker != kClient;
  REQUIRE(transfers >= 2);
  std::string svg = PlanPicture(plan, *result, "x.svg", {});
  CHECK(Count(svg, "marker-end=") == 2 * transfers);
  CHECK(Count(svg, "class=\"c\"") == 0);
  svg = PlanPicture(plan, *result, "x.svg", {true});
  CHECK(Count(svg, "class=\"c\"") == 2);
  CHECK_THAT(svg, Contains("bytes in use, at most"));
  CHECK_THAT(PlanPicture(plan, *result, "x.json", {}), Catch::StartsWith("{"));
  const std::string dot = PlanToDot(plan);
  CHECK(Count(dot, "color=blue") == transfers);
  for (int i = 0; i < ops; ++i) CHECK_THAT(dot, Contains("o" + std::to_string(i) + " [label="));
  CHECK_THAT(dot, Contains("\"BUFFER@2\"") && Contains("label=\"recv0\""));
}

}  // namespace weft
