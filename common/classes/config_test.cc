#include "common/classes/config.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace weft {
namespace {

const ClassSignature& Class(const std::string& name) {
  const ClassSignature* c = ClassTable::Std().Find(name);
  REQUIRE(c != nullptr);
  return *c;
}

TEST_CASE("MergeConfig puts set fields of the node over the actor's") {
  v1::Config actor;
  actor.set_dtype(v1::F32);
  actor.set_shape("[2]");
  actor.set_scale(3);
  actor.add_fail_on(1);
  actor.add_fail_on(2);
  (*actor.mutable_extra())["a"] = "1";
  v1::Config node;
  node.set_shape("[4]");
  node.set_scale(0);  // set, although it is the default number
  node.add_fail_on(7);
  (*node.mutable_extra())["b"] = "2";

  const v1::Config merged = MergeConfig(actor, node);
  CHECK(merged.dtype() == v1::F32);
  CHECK(merged.shape() == "[4]");
  CHECK(merged.has_scale());
  CHECK(merged.scale() == 0);
  REQUIRE(merged.fail_on_size() == 1);
  CHECK(merged.fail_on(0) == 7);
  CHECK(merged.extra_size() == 1);
  CHECK(merged.extra().count("b") == 1);
  CHECK(MergeConfig(actor, {}).SerializeAsString() == actor.SerializeAsString());
}

TEST_CASE("fields that a class does not read are named") {
  v1::Config config;
  config.set_scale(2);
  CHECK(ConfigProblems(Class("std.Scale"), nullptr, false, config).empty());
  const auto problems = ConfigProblems(Class("std.Add"), nullptr, false, config);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], Catch::Contains("config.scale") && Catch::Contains("std.Add") && Catch::Contains("remove"));

  config.set_parts(2);
  (*config.mutable_extra())["k"] = "v";
  CHECK(ConfigProblems(Class("std.Identity"), nullptr, false, config).size() == 3);
}

TEST_CASE("a node's config is held to its method, and to what may change per call") {
  v1::Config config;
  config.set_scale(2);
  const ClassSignature& gemm = Class("std.Gemm");
  CHECK(ConfigProblems(gemm, gemm.Find("scale"), true, config).empty());
  const auto square = ConfigProblems(gemm, gemm.Find("square"), true, config);
  REQUIRE(square.size() == 1);
  CHECK_THAT(square[0], Catch::Contains("method square"));

  v1::Config linear;
  linear.set_out_features(3);
  const ClassSignature& cls = Class("std.Linear");
  CHECK(ConfigProblems(cls, nullptr, false, linear).empty());
  const auto fixed = ConfigProblems(cls, cls.Find("forward"), true, linear);
  REQUIRE(fixed.size() == 1);
  CHECK_THAT(fixed[0], Catch::Contains("out_features") && Catch::Contains("actor's config"));
}

TEST_CASE("values that no class can use are refused") {
  v1::Config config;
  config.set_dtype(static_cast<v1::DType>(77));
  config.set_shape("[4, x]");
  CHECK(ConfigProblems(Class("std.Source"), nullptr, false, config).size() == 2);

  v1::Config inf;
  inf.set_scale(std::numeric_limits<double>::infinity());
  CHECK_THAT(ConfigProblems(Class("std.Scale"), nullptr, false, inf).at(0), Catch::Contains("finite"));

  v1::Config text;
  text.set_message("a\xff");
  CHECK_THAT(ConfigProblems(Class("std.Fail"), nullptr, false, text).at(0), Catch::Contains("UTF-8"));
  text.set_message(std::string(kMaxConfigBytes + 1, 'x'));
  CHECK_THAT(ConfigProblems(Class("std.Fail"), nullptr, false, text).at(0), Catch::Contains("bytes"));
}

TEST_CASE("IsUtf8") {
  CHECK(IsUtf8(""));
  CHECK(IsUtf8("plain"));
  CHECK(IsUtf8("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
  size_t bad = 0;
  CHECK_FALSE(IsUtf8("ab\xff", &bad));
  CHECK(bad == 2);
  CHECK_FALSE(IsUtf8("\xc0\xaf"));          // overlong
  CHECK_FALSE(IsUtf8("\xe0\x80\x80"));      // overlong
  CHECK_FALSE(IsUtf8("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // beyond U+10FFFF
  CHECK_FALSE(IsUtf8("\xe2\x82"));          // cut short
}

}  // namespace
}  // namespace weft
