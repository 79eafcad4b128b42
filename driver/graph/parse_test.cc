#include "driver/graph/parse.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "driver/graph/test_graphs.h"

namespace weft {
namespace {

using Catch::Contains;
using Catch::StartsWith;

std::string Error(const std::string& text) {
  const auto graph = ParseGraph("g", text);
  REQUIRE_FALSE(graph.ok());
  CHECK(absl::IsInvalidArgument(graph.status()));
  return std::string(graph.status().message());
}

v1::Graph Good(const std::string& text) {
  const auto graph = ParseGraph("g", text);
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  return *graph;
}

TEST_CASE("text and JSON give the same graph") {
  const v1::Graph text = Good(kGoodText);
  CHECK(text.name() == "overlap");
  CHECK(text.actor_size() == 4);
  CHECK(text.node_size() == 6);
  CHECK(text.options().emulate().bandwidth() == 1e9);
  CHECK(text.SerializeAsString() == Good(kGoodJson).SerializeAsString());
  CHECK(text.SerializeAsString() == Good(absl::StrCat("\n\t ", kGoodJson)).SerializeAsString());
  CHECK(text.SerializeAsString() == Good(absl::StrCat("\xef\xbb\xbf", kGoodJson)).SerializeAsString());
  CHECK(text.SerializeAsString() == Good(absl::StrCat("\xef\xbb\xbf", kGoodText)).SerializeAsString());
}

TEST_CASE("the design's example parses as it stands") {
  const v1::Graph g = Good(R"(name: "overlap"
actor { name: "sender0"  class: "std.Source" worker: "w0" config { dtype: F16 shape: "[1024, 1024]" fill: "execution" } }
actor { name: "receiver" class: "std.Gemm"   worker: "w3" }
node  { name: "make0"    actor: "sender0"  method: "make" }
node  { name: "square0"  actor: "receiver" method: "square" arg { node: "make0" } }
node  { name: "sum"      actor: "receiver" method: "add"    arg { node: "square0" } arg { input: "bias" } }
input { name: "bias" dtype: F16 shape: "[1024, ?<=1024]" }
edge  { from: "make0" to: "square0" transport: NCCL overlap: ON }      # only where the default should not hold
collective { name: "grads" op: ALL_REDUCE reduce: SUM member { node: "g0" } member { node: "g1" } }
output { name: "result" node: "sum" }
options { overlap: AUTO prefetch_depth: 1 max_in_flight: 4 restart: ON_REJOIN }
)");
  CHECK(g.actor(0).config().dtype() == v1::F16);
  CHECK(g.collective(0).member(1).node() == "g1");
  CHECK(g.options().restart() == v1::ON_REJOIN);
}

TEST_CASE("text format errors show line and column") {
  CHECK_THAT(Error("name: \"x\"\nnode { nam: \"a\" }"),
             StartsWith("g:2:11: ") && Contains("\"nam\". (did you mean \"name\"?)"));
  CHECK_THAT(Error("name: \"x\"\nnode { name: }"), StartsWith("g:2:14: "));
  CHECK_THAT(Error("name: \"x\"\nname: \"y\""), StartsWith("g:2:") && Contains("name"));
  CHECK_THAT(Error("options { overlap: SOMETIMES }"), StartsWith("g:1:") && Contains("SOMETIMES"));
  CHECK_THAT(Error("options { max_in_flight: 99999999999 }"), StartsWith("g:1:"));
  CHECK_THAT(Error("node { name: \"a\""), StartsWith("g:1:"));
  CHECK_THAT(Error("name: \"unterminated"), StartsWith("g:1:"));
  CHECK_THAT(Error("]"), StartsWith("g:1:1: "));
  CHECK_THAT(Error("name: \"\\377\""), Contains("UTF-8"));
  CHECK_THAT(Error("node { config { extra { key: \"k\" value: \"\\xff\" } } }"), Contains("UTF-8"));
  CHECK_THAT(Error("name: \"a\"\nnode { name: \"\xff\" }"), StartsWith("g:2:15: ") && Contains("UTF-8"));
}

TEST_CASE("JSON errors show line and column") {
  CHECK_THAT(Error("{\"name\": \"x\",\n \"node\": [{\"nam\": \"a\"}]}"),
             StartsWith("g:2:12: ") && Contains("node[0] has no field \"nam\"") && Contains("did you mean \"name\""));
  CHECK_THAT(Error("{\n\"name\" \"x\"}"), StartsWith("g:2:8: ") && Contains("expected ':'"));
  CHECK_THAT(Error("{\"name\": \"x\",}"), StartsWith("g:1:14: "));
  CHECK_THAT(Error("{\"name\": \"x\"\n"), StartsWith("g:2:1: ") && Contains("the end"));
  CHECK_THAT(Error("{} {}"), StartsWith("g:1:4: "));
  CHECK_THAT(Error("{\"name\": 'x'}"), StartsWith("g:1:10: "));
  CHECK_THAT(Error("{name: 1}"), StartsWith("g:1:2: ") && Contains("double quotes"));
  CHECK_THAT(Error("{\"name\": \"x\", \"name\": \"y\"}"), StartsWith("g:1:15: ") && Contains("twice"));
  CHECK_THAT(Error("{\"options\": {\"maxInFlight\": 1, \"max_in_flight\": 2}}"),
             Contains("options.max_in_flight is given twice"));
  CHECK_THAT(Error("{\"name\": 3}"), StartsWith("g:1:10: ") && Contains("name takes a string"));
  CHECK_THAT(Error("{\"node\": {}}"), StartsWith("g:1:10: ") && Contains("node is a list"));
  CHECK_THAT(Error("{\"node\": [3]}"), Contains("node[0] takes an object"));
  CHECK_THAT(Error("{\"node\": [null]}"), Contains("node[0] takes an object"));
  CHECK_THAT(Error("{\"options\": {\"overlap\": \"OM\"}}"),
             Contains("did you mean \"ON\"") && Contains("OFF, ON, AUTO"));
  CHECK_THAT(Error("{\"options\": {\"overlap\": 17}}"), Contains("options.overlap takes one of"));
  CHECK_THAT(Error("{\"options\": {\"max_in_flight\": 1.5}}"), Contains("whole number"));
  CHECK_THAT(Error("{\"options\": {\"max_in_flight\": 1e99}}"), Contains("whole number"));
  CHECK_THAT(Error("{\"options\": {\"memory_limit_bytes\": -1}}"), Contains("whole number from 0"));
  CHECK_THAT(Error("{\"options\": {\"poison_released\": \"yes\"}}"), Contains("true or false"));
  CHECK_THAT(Error("{\"options\": {\"submit_timeout_s\": 1e999}}"), Contains("a number"));
  CHECK_THAT(Error("{\"options\": {\"max_in_flight\": 01}}"), Contains("begin with 0"));
  CHECK_THAT(Error("{\"name\": \"a\nb\"}"), StartsWith("g:1:12: ") && Contains("control character"));
  CHECK_THAT(Error("{\"name\": \"\\q\"}"), StartsWith("g:1:11: ") && Contains("escape"));
  CHECK_THAT(Error("{\"name\": \"\\ud800\"}"), Contains("surrogate"));
  CHECK_THAT(Error("{\"name\": \"\\udc00\"}"), Contains("surrogate"));
  CHECK_THAT(Error("{\"name\": \"\\u12g4\"}"), Contains("hexadecimal"));
  CHECK_THAT(Error("{\"name\": \"abc"), StartsWith("g:1:10: ") && Contains("does not end"));
  CHECK_THAT(Error("{\"name\": tru}"), StartsWith("g:1:10: "));
  CHECK_THAT(Error("{\"node\": [{\"config\": {\"extra\": {\"k\": \"a\", \"k\": \"b\"}}}]}"),
             Contains("extra[\"k\"] is given twice"));
  CHECK_THAT(Error("{\"node\": [{\"config\": {\"extra\": [1]}}]}"), Contains("maps names to values"));
}

TEST_CASE("JSON reports all errors that are not of syntax") {
  const std::string all = Error(
      "{\"nme\": {\"a\": [1, {\"b\": null}]},\n\"options\": {\"overlap\": \"x\", \"recv_lanes\": true},\n\"node\": 1}");
  CHECK_THAT(all, Contains("g:1:2: ") && Contains("g:2:24: ") && Contains("g:2:43: ") && Contains("g:3:9: "));
  std::string many = "{\"node\": [";
  for (int i = 0; i < 250; ++i) absl::StrAppend(&many, i ? "," : "", "{\"x\": 1}");
  many += "]}";
  CHECK_THAT(Error(many), Contains("150 more errors"));
}

TEST_CASE("JSON values") {
  const v1::Graph g = Good(R"({"name": "\u00e9\ud83d\ude00\n\/",
    "node": [{"config": {"seed": 18446744073709551615, "scale": "-Infinity", "fail_on": [1, "-2", 3e0],
                         "extra": {"a": "b", "": "c"}}}],
    "options": {"poisonReleased": true, "submitTimeoutS": 0, "order": null, "memory_limit_bytes": "7"}})");
  CHECK(g.name() == "\xc3\xa9\xf0\x9f\x98\x80\n/");
  const v1::Config& c = g.node(0).config();
  CHECK(c.seed() == 18446744073709551615ull);
  CHECK(std::isinf(c.scale()));
  REQUIRE(c.fail_on_size() == 3);
  CHECK(c.fail_on(1) == -2);
  CHECK(c.extra().at("") == "c");
  CHECK(g.options().poison_released());
  CHECK(g.options().has_submit_timeout_s());
  CHECK(g.options().memory_limit_bytes() == 7);
}

TEST_CASE("deep nesting is bounded") {
  std::string text = "{\"x\": ";
  for (int i = 0; i < 200000; ++i) text += "[";
  CHECK_THAT(Error(text), Contains("nested deeper"));
  text = "";
  for (int i = 0; i < 200000; ++i) text += "{\"x\":";
  CHECK_THAT(Error(text), Contains("nested deeper"));
  text = "";
  for (int i = 0; i < 200000; ++i) text += "node { ";
  Error(text);
  std::string marks;
  for (int i = 0; i < 200000; ++i) marks += "\xef\xbb\xbf";
  Error(marks);
}

TEST_CASE("files") {
  const std::string dir = absl::StrCat(std::getenv("TEST_TMPDIR") != nullptr ? std::getenv("TEST_TMPDIR") : "/tmp",
                                       "/parse_test.", getpid());
  REQUIRE(mkdir(dir.c_str(), 0700) == 0);
  const std::string path = dir + "/graph.textproto";
  std::FILE* f = std::fopen(path.c_str(), "w");
  REQUIRE(f != nullptr);
  std::fputs(kGoodText, f);
  std::fclose(f);
  const auto good = ParseGraphFile(path);
  REQUIRE(good.ok());
  CHECK(good->name() == "overlap");
  CHECK(absl::IsInvalidArgument(ParseGraphFile(dir).status()));
  CHECK_THAT(std::string(ParseGraphFile(dir).status().message()), Contains("directory"));
  CHECK(absl::IsNotFound(ParseGraphFile(dir + "/none").status()));
  CHECK(absl::IsInvalidArgument(ParseGraphFile("").status()));
  CHECK(absl::IsInvalidArgument(ParseGraphFile(path + "/x").status()));

  f = std::fopen(path.c_str(), "w");
  std::fputs("name: \"a\"\nnode { name: 3 }", f);
  std::fclose(f);
  CHECK_THAT(std::string(ParseGraphFile(path).status().message()), StartsWith(path + ":2:14: "));
  REQUIRE(chmod(path.c_str(), 0) == 0);
  if (geteuid() != 0) CHECK(absl::IsPermissionDenied(ParseGraphFile(path).status()));
  unlink(path.c_str());
  rmdir(dir.c_str());
}

}  // namespace
}  // namespace weft
