#include "driver/graph/validate.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "driver/graph/parse.h"
#include "driver/graph/test_graphs.h"

namespace weft {
namespace {

using Catch::Contains;

v1::Graph Parse(const std::string& text) {
  const auto graph = ParseGraph("g", text);
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  return *graph;
}

// What all cases below start from: it is valid.
const char kBase[] = R"(
name: "g"
actor { name: "src" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[4, 4]" } }
actor { name: "src1" class: "std.Source" worker: "w1" config { dtype: F32 shape: "[4, 4]" } }
actor { name: "math" class: "std.Math" worker: "w1" }
node { name: "a" actor: "src" }
node { name: "b" actor: "src1" }
node { name: "c" actor: "math" method: "matmul" arg { node: "a" } arg { node: "b" } }
input { name: "in" dtype: F32 shape: "[4, ?<=4]" }
)";

absl::StatusOr<ResolvedGraph> Run(const std::string& more) {
  return Validate(Parse(absl::StrCat(kBase, more)), ClassTable::Std());
}

ResolvedGraph Good(const std::string& more) {
  const auto r = Run(more);
  INFO(more << "\n" << r.status().ToString());
  REQUIRE(r.ok());
  return *r;
}

// The base with `more` is wrong in one way, and the message has all of `parts`.
void Bad(const std::string& more, const std::vector<std::string>& parts) {
  INFO(more);
  const auto r = Run(more);
  REQUIRE_FALSE(r.ok());
  CHECK(absl::IsInvalidArgument(r.status()));
  const std::string text(r.status().message());
  CHECK(text.find('\n') == std::string::npos);
  for (const std::string& part : parts) CHECK_THAT(text, Contains(part));
}

TEST_CASE("the design's example resolves") {
  const auto r = Validate(Parse(kGoodText), ClassTable::Std());
  INFO(r.status().ToString());
  REQUIRE(r.ok());
  CHECK(r->name == "overlap");
  CHECK(r->actors[1].cls == "std.Gemm");
  CHECK(r->nodes[2].outputs.at(0).ToString() == "F16[1024, 1024]");
  CHECK(r->nodes[2].args[1].kind == ResolvedArg::kInput);
  CHECK(r->nodes[3].method == "make");  // found although unset
  CHECK(r->nodes[4].after == std::vector<int>{2});
  CHECK(r->nodes[4].config.fill() == "2.5");
  CHECK(r->nodes[4].config.seed() == 3);
  CHECK(r->nodes[5].args[0].kind == ResolvedArg::kCollective);
  CHECK(r->nodes[5].outputs.at(0).ToString() == "F32[8]");
  CHECK(r->collectives[0].members[1].after == 1);
  CHECK(r->outputs[1].is_collective);
  CHECK(r->outputs[1].member == 1);
  REQUIRE(r->overrides.size() == 2);
  CHECK(r->overrides[0].from == 0);
  CHECK(r->overrides[0].to == 1);
  CHECK(r->overrides[0].output == -1);
  CHECK_FALSE(r->overrides[0].to_output);
  CHECK(r->overrides[1].to_output);
  CHECK(r->options.overlap() == v1::AUTO);
}

TEST_CASE("defaults are filled in") {
  const v1::Options o = Good("").options;
  CHECK(o.overlap() == v1::ON);
  CHECK(o.prefetch_depth() == 1);
  CHECK(o.max_in_flight() == 4);
  CHECK(o.submit() == v1::WAIT);
  CHECK(o.submit_timeout_s() == 60);
  CHECK(o.progress_timeout_s() == 60);
  CHECK(o.bootstrap_timeout_s() == 30);
  CHECK(o.restart() == v1::NEVER);
  CHECK(o.order() == v1::PROGRAM);
  CHECK(o.send_lanes() == 1);
  CHECK(o.recv_lanes() == 1);
  CHECK(o.collective_lanes() == 1);
  CHECK(Good("options { prefetch_depth: 0 submit_timeout_s: 0 order: COST }").options.prefetch_depth() == 0);
}

TEST_CASE("names") {
  Bad("node { actor: \"src\" }", {"node[3]", "no name"});
  Bad("node { name: \"x y\" actor: \"src\" }", {"\"x y\"", "character"});
  Bad("node { name: \"a\" actor: \"src\" }", {"node \"a\"", "node[0]", "node[3]", "twice"});
  Bad("actor { name: \"src\" class: \"std.Add\" }", {"actor \"src\"", "twice"});
  Bad("input { name: \"in\" dtype: F32 shape: \"[]\" }", {"input \"in\"", "twice"});
  Bad("output { name: \"o\" node: \"a\" } output { name: \"o\" node: \"b\" }", {"output \"o\"", "twice"});
  Bad("input { name: \"a\" dtype: F32 shape: \"[]\" }", {"input \"a\"", "name of a node"});
  Bad("collective { name: \"a\" op: ALL_GATHER member { node: \"a\" } }", {"collective \"a\"", "name of a node"});
  Bad("actor { name: \"x\" class: \"std.Add\" worker: \"w/0\" }", {"actor \"x\"", "worker"});
  Bad("actor { name: \"x\" class: \"std.Add\" worker: \"\\n\" }", {"\\x0a"});
  Good("output { name: \"a\" node: \"a\" }");
  v1::Graph g = Parse(kBase);
  g.set_name(std::string(64, 'x'));
  CHECK_THAT(std::string(Validate(g, ClassTable::Std()).status().message()), Contains("graph name"));
  g.set_name("");
  CHECK_THAT(std::string(Validate(g, ClassTable::Std()).status().message()), Contains("graph has no name"));
  CHECK_THAT(std::string(Validate({}, ClassTable::Std()).status().message()), Contains("no node"));
}

TEST_CASE("classes, methods, configs, argument counts") {
  Bad("actor { name: \"x\" class: \"std.Gem\" }", {"actor \"x\"", "no class \"std.Gem\"", "did you mean \"std.Gemm\""});
  Bad("actor { name: \"x\" }", {"actor \"x\"", "class is missing"});
  Bad("actor { name: \"x\" class: \"std.Add\" config { scale: 2 } }", {"actor \"x\"", "config.scale", "std.Add"});
  Bad("actor { name: \"x\" class: \"std.Linear\" config { in_features: 2 } }",
      {"actor \"x\"", "out_features is missing"});
  Bad("actor { name: \"x\" class: \"std.Delay\" config { duration_s: -1 } }", {"actor \"x\"", "duration_s"});
  Bad("actor { name: \"x\" class: \"std.Delay\" config { duration_s: nan } }", {"actor \"x\"", "duration_s", "finite"});
  Bad("actor { name: \"x\" class: \"std.Source\" config { dtype: 99 } }", {"actor \"x\"", "config.dtype 99"});
  Bad("node { name: \"x\" actor: \"mth\" method: \"add\" }", {"node \"x\"", "actor \"mth\"", "did you mean \"math\""});
  Bad("node { name: \"x\" method: \"add\" }", {"node \"x\"", "actor is missing"});
  Bad("node { name: \"x\" actor: \"math\" method: \"mul\" arg { node: \"a\" } }",
      {"node \"x\"", "std.Math has no method \"mul\""});
  Bad("node { name: \"x\" actor: \"math\" arg { node: \"a\" } }", {"node \"x\"", "method is missing", "matmul"});
  Bad("node { name: \"x\" actor: \"math\" method: \"matmul\" arg { node: \"a\" } }",
      {"node \"x\"", "takes 2 arguments", "given 1"});
  Bad("node { name: \"x\" actor: \"math\" method: \"add\" }", {"node \"x\"", "1 or more arguments", "given 0"});
  Bad("node { name: \"x\" actor: \"src\" arg { node: \"a\" } }", {"node \"x\"", "takes 0 arguments", "given 1"});
  Bad("node { name: \"x\" actor: \"math\" method: \"add\" arg { node: \"a\" } config { scale: 1 } }",
      {"node \"x\"", "config.scale", "method add"});
  Bad("node { name: \"x\" actor: \"math\" method: \"scale\" arg { node: \"a\" } }",
      {"node \"x\" (std.Math.scale)", "config.scale is missing"});
  Bad("node { name: \"x\" actor: \"math\" method: \"reduce\" arg { node: \"a\" } config { reduce: \"avg\" } }",
      {"node \"x\"", "\"avg\""});
  Bad("node { name: \"x\" actor: \"src\" overlap: 9 }", {"node \"x\"", "overlap 9"});
  Good("node { name: \"x\" actor: \"math\" method: \"scale\" arg { node: \"a\" } config { scale: 1 } }");
}

TEST_CASE("references") {
  const auto node = [](const std::string& args) {
    return "node { name: \"x\" actor: \"math\" method: \"add\" " + args + " }";
  };
  Bad(node("arg { }"), {"node \"x\"", "argument 0 names nothing"});
  Bad(node("arg { node: \"a\" input: \"in\" }"), {"node \"x\"", "argument 0", "exactly one"});
  Bad(node("arg { node: \"aa\" }"), {"node \"x\"", "argument 0", "\"aa\"", "did you mean \"a\""});
  Bad(node("arg { node: \"in\" }"), {"argument 0", "is an input", "input: \"in\""});
  Bad(node("arg { input: \"a\" }"), {"argument 0", "is a node"});
  Bad(node("arg { input: \"inn\" }"), {"argument 0", "did you mean \"in\""});
  Bad(node("arg { collective: \"zzz\" }"), {"argument 0", "collective \"zzz\""});
  Bad(node("arg { node: \"a\" output: 1 }"), {"node \"x\"", "argument 0", "output 1 of node \"a\"", "one output"});
  Bad(node("arg { node: \"a\" output: -1 }"), {"node \"x\"", "output -1", "count from 0"});
  Bad(node("arg { input: \"in\" output: 1 }"), {"node \"x\"", "output 1", "only nodes"});
  Bad(node("arg { node: \"a\" } after: \"nobody\""), {"node \"x\"", "after", "\"nobody\""});
  Bad("output { name: \"o\" }", {"output \"o\"", "exactly one"});
  Bad("output { name: \"o\" node: \"d\" }", {"output \"o\"", "\"d\""});
  Bad("output { name: \"o\" node: \"a\" output: 2 }", {"output \"o\"", "output 2 of node \"a\""});
  Bad("output { name: \"o\" node: \"a\" output: -2 }", {"output \"o\"", "-2"});
  Bad("output { name: \"o\" node: \"a\" member: \"a\" }", {"output \"o\"", "member"});
  Bad("output { name: \"o\" collective: \"k\" }", {"output \"o\"", "collective \"k\""});
  CHECK(Good(node("arg { node: \"a\" } after: \"b\" after: \"a\" after: \"b\"")).nodes[3].after ==
        std::vector<int>{0, 1});
}

TEST_CASE("specs") {
  Bad("input { name: \"i\" shape: \"[]\" }", {"input \"i\"", "dtype"});
  Bad("input { name: \"i\" dtype: F32 shape: \"4\" }", {"input \"i\"", "brackets"});
  Bad("input { name: \"i\" dtype: F64 shape: \"[1099511627776]\" }", {"input \"i\"", "1 TiB"});
  Bad("node { name: \"x\" actor: \"math\" method: \"peek\" arg { node: \"a\" } }"
      "node { name: \"y\" actor: \"math\" method: \"add\" arg { node: \"a\" } arg { node: \"x\" output: 1 } }",
      {"node \"y\" (std.Math.add)", "argument 1 is I64[2]", "node \"x\" output 1"});
  CHECK(Good("node { name: \"x\" actor: \"math\" method: \"add\" arg { node: \"a\" } arg { input: \"in\" } }")
            .nodes[3]
            .outputs[0]
            .ToString() == "F32[4, 4]");
  // Only the first of a chain is reported, not what follows from it.
  Bad("node { name: \"x\" actor: \"math\" method: \"reduce\" arg { node: \"a\" } config { axis: 7 } }"
      "node { name: \"y\" actor: \"math\" method: \"add\" arg { node: \"x\" } }"
      "node { name: \"z\" actor: \"math\" method: \"add\" arg { node: \"y\" output: 5 } } output { name: \"o\" node: "
      "\"z\" output: 9 }",
      {"node \"x\"", "config.axis is 7"});
  Bad("input { name: \"d\" dtype: F32 shape: \"[?]\" } options { memory_limit_bytes: 1000 }",
      {"input \"d\" is F32[?]", "memory_limit_bytes"});
  Good("input { name: \"d\" dtype: F32 shape: \"[?<=9]\" } options { memory_limit_bytes: 1000 }");
  Good("input { name: \"d\" dtype: F32 shape: \"[1099511627776, 1099511627776, 0]\" }");
}

TEST_CASE("options") {
  const auto bad = [](const std::string& field, const std::string& value) {
    Bad("options { " + field + ": " + value + " }", {"options." + field});
  };
  bad("prefetch_depth", "-1");
  bad("prefetch_depth", "65");
  bad("max_in_flight", "-1");
  bad("max_in_flight", "1025");
  bad("send_lanes", "9");
  bad("recv_lanes", "-1");
  bad("collective_lanes", "9");
  for (const char* field : {"submit_timeout_s", "progress_timeout_s", "bootstrap_timeout_s"}) {
    for (const char* value : {"nan", "inf", "-inf", "-1", "1e300"}) bad(field, value);
  }
  bad("progress_timeout_s", "0");
  bad("bootstrap_timeout_s", "0");
  for (const char* field : {"overlap", "submit", "restart", "order"}) bad(field, "77");
  Bad("options { emulate { latency_s: -1 } }", {"options.emulate.latency_s"});
  Bad("options { emulate { latency_s: nan } }", {"options.emulate.latency_s"});
  Bad("options { emulate { bandwidth: inf } }", {"options.emulate.bandwidth"});
  Bad("options { emulate { bandwidth: -3 } }", {"options.emulate.bandwidth"});
  Bad("options { emulate { bandwidth: 1e-300 } }", {"options.emulate.bandwidth"});
  Good(
      "options { emulate { latency_s: 0.01 } overlap: AUTO order: COST send_lanes: 8 prefetch_depth: 64 max_in_flight: "
      "1024 }");
}

TEST_CASE("all errors at once, counted after a hundred") {
  const auto r =
      Run("node { name: \"x\" actor: \"nobody\" arg { node: \"q\" } }"
          "edge { from: \"zzz\" to: \"a\" } options { max_in_flight: -1 } output { name: \"o\" }");
  REQUIRE_FALSE(r.ok());
  const std::vector<std::string> lines = absl::StrSplit(std::string(r.status().message()), '\n');
  CHECK(lines.size() == 5);

  std::string many;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&many, "node { name: \"n", i, "\" actor: \"nobody\" }\n");
  const auto m = Run(many);
  const std::vector<std::string> shown = absl::StrSplit(std::string(m.status().message()), '\n');
  REQUIRE(shown.size() == 101);
  CHECK(shown.back() == "200 more errors");
}

TEST_CASE("what multiplies is bounded") {
  // 4096 outputs from each of 1000 short lines.
  std::string text =
      "actor { name: \"s\" class: \"std.Split\" config { parts: 4096 } } input { name: \"w\" dtype: U8 shape: "
      "\"[4096]\" }";
  for (int i = 0; i < 1000; ++i)
    absl::StrAppend(&text, "node { name: \"s", i, "\" actor: \"s\" arg { input: \"w\" } }");
  Bad(text, {"more than 2000000 outputs"});
  // One large config in each of many nodes.
  text =
      absl::StrCat("actor { name: \"f\" class: \"std.Fail\" config { message: \"", std::string(60000, 'x'), "\" } }");
  for (int i = 0; i < 6000; ++i) absl::StrAppend(&text, "node { name: \"f", i, "\" actor: \"f\" }");
  Bad(text, {"256 MiB"});
  Bad(absl::StrCat("actor { name: \"f\" class: \"std.Fail\" config { message: \"", std::string(70000, 'x'), "\" } }"),
      {"actor \"f\"", "at most 65536"});
}

}  // namespace
}  // namespace weft
