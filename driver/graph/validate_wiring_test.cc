// Cycles, collectives and edge overrides.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "driver/graph/parse.h"
#include "driver/graph/validate.h"

namespace weft {
namespace {

using Catch::Contains;

const char kBase[] = R"(
name: "g"
actor { name: "s0" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6, 2]" } }
actor { name: "s1" class: "std.Source" worker: "w1" config { dtype: F32 shape: "[6, 2]" } }
actor { name: "s2" class: "std.Source" worker: "w2" config { dtype: F32 shape: "[6, 2]" } }
actor { name: "free" class: "std.Math" }
actor { name: "m0" class: "std.Math" worker: "w0" }
actor { name: "m1" class: "std.Math" worker: "w1" }
actor { name: "m3" class: "std.Math" worker: "w3" }
node { name: "a" actor: "s0" }
node { name: "b" actor: "s1" }
node { name: "c" actor: "s2" }
input { name: "in" dtype: F32 shape: "[?]" }
)";

absl::StatusOr<ResolvedGraph> Run(const std::string& more) {
  const auto graph = ParseGraph("g", absl::StrCat(kBase, more));
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  return Validate(*graph, ClassTable::Std());
}

ResolvedGraph Good(const std::string& more) {
  const auto r = Run(more);
  INFO(more << "\n" << r.status().ToString());
  REQUIRE(r.ok());
  return *r;
}

void Bad(const std::string& more, const std::vector<std::string>& parts) {
  INFO(more);
  const auto r = Run(more);
  REQUIRE_FALSE(r.ok());
  const std::string text(r.status().message());
  INFO(text);
  CHECK(text.find('\n') == std::string::npos);
  for (const std::string& part : parts) CHECK_THAT(text, Contains(part));
}

std::string Add(const std::string& name, const std::string& actor, const std::string& rest) {
  return absl::StrCat("node { name: \"", name, "\" actor: \"", actor, "\" method: \"add\" ", rest, " }\n");
}

TEST_CASE("cycles name their nodes and why each waits") {
  Bad(Add("x", "m0", "arg { node: \"x\" }"), {"node \"x\"", "argument 0", "its own output"});
  Bad(Add("x", "m0", "arg { node: \"a\" } after: \"x\""), {"node \"x\"", "after itself"});
  Bad(Add("x", "m0", "arg { node: \"y\" }") + Add("y", "m1", "arg { node: \"x\" }"),
      {"cycle: node \"x\" -> node \"y\" (its argument 0) -> node \"x\" (its argument 0)", "remove one"});
  Bad(Add("x", "m0", "arg { node: \"a\" } after: \"y\"") + Add("y", "m1", "arg { node: \"x\" }"),
      {"cycle: ", "node \"y\" (its argument 0)", "node \"x\" (its after)"});
  // A node that is only behind a cycle is no part of it.
  const auto r = Run(Add("x", "m0", "arg { node: \"y\" }") + Add("y", "m1", "arg { node: \"x\" }") +
                     Add("z", "m3", "arg { node: \"y\" }"));
  CHECK_THAT(std::string(r.status().message()), !Contains("\"z\""));
}

TEST_CASE("two cycles give two errors") {
  const auto r = Run(Add("x", "m0", "arg { node: \"y\" }") + Add("y", "m1", "arg { node: \"x\" }") +
                     Add("p", "m3", "arg { node: \"q\" }") + Add("q", "free", "arg { node: \"p\" }"));
  const std::string text(r.status().message());
  CHECK_THAT(text, Contains("cycle: node \"x\"") && Contains("\ncycle: node \"p\""));
}

TEST_CASE("program order is part of a cycle unless the order is free") {
  // x takes y's value, and stands before it among the calls of one actor.
  const std::string early = Add("x", "m0", "arg { node: \"y\" }") + Add("y", "m0", "arg { node: \"a\" }");
  Bad(early,
      {"cycle: node \"x\" -> node \"y\" (program order of actor \"m0\") -> node \"x\" (its argument 0)", "COST"});
  Good(early + "options { order: COST }");
  // Through another actor, with calls between that are not worth naming.
  Bad(Add("x", "m0", "arg { node: \"r\" }") + Add("i1", "m0", "arg { node: \"a\" }") +
          Add("i2", "m0", "arg { node: \"a\" }") + Add("y", "m0", "arg { node: \"a\" }") +
          Add("r", "m1", "arg { node: \"y\" }"),
      {"node \"x\" -> node \"y\" (program order of actor \"m0\") -> node \"r\" (its argument 0) -> node \"x\""});
}

TEST_CASE("crossed transfers are no cycle") {
  Good(Add("x0", "m0", "arg { node: \"a\" }") + Add("x1", "m1", "arg { node: \"b\" }") +
       Add("y0", "m0", "arg { node: \"x1\" }") + Add("y1", "m1", "arg { node: \"x0\" }"));
  // A value of a later call of another actor, in the opposite order.
  Good(Add("x0", "m0", "arg { node: \"a\" }") + Add("x1", "m0", "arg { node: \"a\" }") +
       Add("y", "m1", "arg { node: \"x1\" } arg { node: \"x0\" }"));
}

TEST_CASE("cycles through collectives") {
  Bad(Add("x", "m0", "arg { collective: \"k\" }") +
          "collective { name: \"k\" op: ALL_REDUCE reduce: SUM member { node: \"x\" } member { node: \"b\" } }",
      {"cycle: node \"x\" -> collective \"k\" (its member 0) -> node \"x\" (its argument 0)"});
  Bad(Add("x", "m0", "arg { collective: \"k\" }") +
          "collective { name: \"k\" op: ALL_REDUCE reduce: SUM member { node: \"a\" after: \"x\" } member { node: "
          "\"b\" } }",
      {"cycle: node \"x\" -> collective \"k\" (after of its member 0) -> node \"x\" (its argument 0)"});
}

TEST_CASE("collectives give specs") {
  const auto spec = [](const std::string& op) {
    const ResolvedGraph g = Good("collective { name: \"k\" " + op + " member { node: \"a\" } member { node: \"b\" } }" +
                                 Add("x", "m1", "arg { collective: \"k\" }"));
    CHECK(g.collectives[0].input.ToString() == "F32[6, 2]");
    CHECK(g.nodes[3].outputs[0] == g.collectives[0].output);
    return g.collectives[0].output.ToString();
  };
  CHECK(spec("op: ALL_REDUCE reduce: MAX") == "F32[6, 2]");
  CHECK(spec("op: ALL_GATHER") == "F32[12, 2]");
  CHECK(spec("op: REDUCE_SCATTER reduce: SUM") == "F32[3, 2]");
  CHECK(spec("op: BROADCAST root: \"b\"") == "F32[6, 2]");
  CHECK(Good("collective { name: \"k\" op: BROADCAST root: \"b\" member { node: \"a\" } member { node: \"b\" } }")
            .collectives[0]
            .root_rank == 1);
  Good("collective { name: \"k\" op: ALL_REDUCE reduce: SUM member { node: \"a\" } }");
}

TEST_CASE("bad collectives") {
  const auto bad = [](const std::string& fields, const std::vector<std::string>& parts) {
    Bad("collective { name: \"k\" " + fields + " }", parts);
  };
  const std::string two = " member { node: \"a\" } member { node: \"b\" }";
  bad(two, {"collective \"k\"", "op is missing"});
  bad("op: 17" + two, {"collective \"k\"", "op is unknown"});
  bad("op: ALL_REDUCE" + two, {"collective \"k\"", "reduce is missing"});
  bad("op: ALL_REDUCE reduce: 9" + two, {"collective \"k\"", "reduce is unknown"});
  bad("op: ALL_GATHER reduce: SUM" + two, {"collective \"k\"", "remove reduce"});
  bad("op: ALL_GATHER root: \"a\"" + two, {"collective \"k\"", "root"});
  bad("op: BROADCAST root: \"c\"" + two, {"collective \"k\"", "root \"c\"", "not the node of a member"});
  bad("op: ALL_GATHER", {"collective \"k\"", "no member"});
  std::string many;
  for (int i = 0; i < 65; ++i) many += " member { node: \"a\" }";
  CHECK_THAT(std::string(Run("collective { name: \"k\" op: ALL_GATHER" + many + " }").status().message()),
             Contains("collective \"k\": it has 65 members, at most 64 are possible"));
  bad("op: ALL_GATHER member { } member { node: \"b\" }", {"collective \"k\"", "member 0 names no node"});
  bad("op: ALL_GATHER member { node: \"aa\" } member { node: \"b\" }",
      {"collective \"k\"", "member 0", "did you mean \"a\""});
  bad("op: ALL_GATHER member { node: \"a\" output: 3 }", {"collective \"k\"", "member 0", "output 3"});
  bad("op: ALL_GATHER member { node: \"a\" output: -3 }", {"collective \"k\"", "member 0", "output -3"});
  bad("op: ALL_GATHER member { node: \"a\" after: \"zz\" }", {"collective \"k\"", "after of member 0"});
  bad("op: ALL_GATHER member { node: \"a\" after: \"b\" }",
      {"collective \"k\"", "after of member 0", "\"w1\"", "\"w0\""});
  bad("op: ALL_GATHER member { node: \"a\" } member { node: \"a\" }", {"collective \"k\"", "both node \"a\""});
  bad("op: REDUCE_SCATTER reduce: SUM member { node: \"a\" } member { node: \"b\" } member { node: \"c\" } member { "
      "node: \"d\" } }"
      "actor { name: \"s4\" class: \"std.Source\" worker: \"w4\" config { dtype: F32 shape: \"[6, 2]\" } } node { "
      "name: \"d\" actor: \"s4\"",
      {"collective \"k\"", "4 members", "multiple of 4"});
  bad("op: ALL_GATHER member { node: \"a\" } member { node: \"x\" } } node { name: \"x\" actor: \"s0\"",
      {"collective \"k\"", "both nodes of actor \"s0\""});
  bad("op: ALL_GATHER member { node: \"a\" } member { node: \"x\" } } node { name: \"x\" actor: \"m0\" method: \"add\" "
      "arg { node: \"a\" }",
      {"collective \"k\"", "worker \"w0\""});
  bad("op: ALL_GATHER member { node: \"a\" } member { node: \"x\" } } node { name: \"x\" actor: \"m1\" method: \"add\" "
      "arg { input: \"in\" }",
      {"collective \"k\"", "member 1", "F32[?]", "fixed sizes"});
  bad("op: ALL_GATHER member { node: \"a\" } member { node: \"x\" } } node { name: \"x\" actor: \"s1\" config { shape: "
      "\"[6, 3]\" }",
      {"collective \"k\"", "F32[6, 3]", "F32[6, 2]"});
  bad("op: ALL_GATHER member { node: \"x\" } } node { name: \"x\" actor: \"s1\" config { shape: \"[]\" }",
      {"collective \"k\"", "scalars"});
  bad("op: ALL_REDUCE reduce: SUM member { node: \"x\" } } node { name: \"x\" actor: \"s1\" config { dtype: BOOL }",
      {"collective \"k\"", "BOOL"});
}

TEST_CASE("who may take a collective's result") {
  const std::string k = "collective { name: \"k\" op: ALL_GATHER member { node: \"a\" } member { node: \"b\" } }";
  Bad(k + Add("x", "m3", "arg { collective: \"k\" }"), {"node \"x\"", "no member on worker \"w3\""});
  Good(k + Add("x", "free", "arg { collective: \"k\" }"));
  Good(k + "output { name: \"o\" collective: \"k\" }");
  Bad(k + "output { name: \"o\" collective: \"k\" member: \"c\" }", {"output \"o\"", "\"c\" is not a member"});
  Bad(k + "output { name: \"o\" collective: \"k\" output: 1 }", {"output \"o\"", "output 1"});
  Bad(k + "output { name: \"o\" collective: \"k\" node: \"a\" }", {"output \"o\"", "exactly one"});
}

TEST_CASE("edge overrides") {
  const std::string graph = Add("x", "m1", "arg { node: \"p\" output: 1 } arg { node: \"p\" output: 1 } after: \"a\"") +
                            Add("y", "m1", "arg { input: \"in\" }") +
                            "node { name: \"p\" actor: \"m0\" method: \"peek\" arg { node: \"a\" } }"
                            "output { name: \"o\" node: \"p\" output: 2 } output { name: \"y\" node: \"y\" }";
  const auto bad = [&](const std::string& fields, const std::vector<std::string>& parts) {
    Bad(graph + "edge { " + fields + " }", parts);
  };
  CHECK(Good(graph + "edge { from: \"p\" to: \"x\" transport: GLOO } edge { from: \"p\" to: \"o\" output: 2 }")
            .overrides.size() == 2);
  CHECK(Good(graph + "edge { from: \"p\" to: \"x\" emulate { latency_s: 0.5 } transport: SHM }").overrides[0].from ==
        5);
  const ResolvedGraph in = Good(graph + "edge { from: \"in\" to: \"y\" output: 0 transport: REMOTE }");
  CHECK(in.overrides[0].from_kind == ResolvedArg::kInput);
  CHECK(in.overrides[0].output == -1);
  // "y" is a node and an output; only the output takes the value of node y.
  CHECK(Good(graph + "edge { from: \"y\" to: \"y\" transport: SHM }").overrides[0].to_output);

  bad("from: \"q0\" to: \"x\"", {"edge \"q0\" -> \"x\"", "neither a node nor an input"});
  bad("from: \"p\" to: \"zzzzz\"", {"neither a node nor a graph output"});
  bad("from: \"b\" to: \"x\"", {"edge \"b\" -> \"x\"", "no such edge"});
  bad("from: \"a\" to: \"x\"", {"control edge"});
  bad("from: \"p\" to: \"x\" output: 0", {"does not take output 0", "it takes 1"});
  bad("from: \"p\" to: \"x\" output: -1", {"does not take output -1"});
  bad("from: \"in\" to: \"o\"", {"no such edge"});
  bad("from: \"p\" to: \"x\" } edge { from: \"p\" to: \"x\" output: 1", {"adjusted twice"});
  bad("from: \"p\" to: \"x\" output: 1 } edge { from: \"p\" to: \"x\" output: 1", {"adjusted twice"});
  bad("from: \"p\" to: \"x\" transport: 99", {"transport is unknown"});
  bad("from: \"p\" to: \"x\" overlap: 99", {"overlap is unknown"});
  bad("from: \"p\" to: \"x\" prefetch_depth: 65", {"prefetch_depth is 65"});
  bad("from: \"p\" to: \"x\" prefetch_depth: -1", {"prefetch_depth is -1"});
  bad("from: \"p\" to: \"x\" emulate { latency_s: inf }", {"emulate.latency_s"});
  bad("from: \"p\" to: \"x\" emulate { bandwidth: -1 }", {"emulate.bandwidth"});
  bad("from: \"p\" to: \"x\" emulate { } transport: NCCL", {"shm edge"});
  bad("from: \"p\" to: \"x\" transport: REMOTE", {"REMOTE"});
  bad("from: \"in\" to: \"y\" transport: GLOO", {"client", "GLOO"});
  bad("from: \"p\" to: \"o\" transport: LOCAL", {"client", "LOCAL"});
  bad("from: \"in\" to: \"y\" emulate { latency_s: 1 }", {"between two workers"});
  Bad(graph + Add("z", "m3", "arg { node: \"y\" }") + "edge { from: \"y\" to: \"z\" transport: IPC }",
      {"edge \"y\" -> \"z\"", "F32[?]", "IPC"});
  Good(graph + Add("z", "m3", "arg { node: \"y\" }") + "edge { from: \"y\" to: \"z\" transport: GLOO }");
  Bad("collective { name: \"k\" op: ALL_GATHER member { node: \"a\" } } edge { from: \"k\" to: \"a\" }",
      {"from is a collective"});
}

}  // namespace
}  // namespace weft
