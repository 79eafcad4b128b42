#include <catch2/catch.hpp>

#include "common/tensor/fill.h"
#include "common/tensor/random.h"
#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

v1::Config MakeConfig(DType d, const std::string& shape, const std::string& fill) {
  v1::Config c;
  c.set_dtype(d);
  c.set_shape(shape);
  c.set_fill(fill);
  return c;
}

std::vector<double> Made(const std::string& cls, const v1::Config& c, int64_t execution = 0) {
  const auto out = CallStd(cls, "make", c, {}, 1, execution);
  REQUIRE(out.ok());
  return Values((*out)[0]);
}

TEST_CASE("source: every fill") {
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64}) {
    CHECK(Made("std.Source", MakeConfig(d, "[2, 2]", ""), 5) == std::vector<double>(4, 5));
    CHECK(Made("std.Source", MakeConfig(d, "[3]", "execution"), 7) == std::vector<double>(3, 7));
    CHECK(Made("std.Source", MakeConfig(d, "[3]", "zeros"), 7) == std::vector<double>(3, 0));
    CHECK(Made("std.Source", MakeConfig(d, "[3]", "ones"), 7) == std::vector<double>(3, 1));
    CHECK(Made("std.Source", MakeConfig(d, "[2, 3]", "iota"), 7) == std::vector<double>{0, 1, 2, 3, 4, 5});
    CHECK(Made("std.Source", MakeConfig(d, "[1]", "42"), 7) == std::vector<double>{42});
  }
  CHECK(Made("std.Source", MakeConfig(v1::BOOL, "[2]", ""), 3) == std::vector<double>{1, 1});
  CHECK(Made("std.Source", MakeConfig(v1::BOOL, "[2]", ""), 0) == std::vector<double>{0, 0});
  CHECK(Made("std.Source", MakeConfig(v1::F32, "[]", "-2.5")) == std::vector<double>{-2.5});
  CHECK(Made("std.Source", MakeConfig(v1::F32, "[0]", "ones")).empty());
  CHECK(Made("std.Source", MakeConfig(v1::I8, "[1]", ""), 300) == std::vector<double>{44});
}

TEST_CASE("constant: zeros unless told, and never the execution") {
  CHECK(Made("std.Constant", MakeConfig(v1::F32, "[2]", ""), 9) == std::vector<double>{0, 0});
  CHECK(Made("std.Constant", MakeConfig(v1::F32, "[4]", "random"), 0) == Made("std.Constant", MakeConfig(v1::F32, "[4]", "random"), 9));
  CHECK(Mentions(CallStd("std.Constant", "make", MakeConfig(v1::F32, "[2]", "execution"), {}).status(), "std.Source"));
}

TEST_CASE("random: depends on seed, execution and element alone") {
  v1::Config c = MakeConfig(v1::F64, "[1000]", "random");
  const auto a = Made("std.Source", c, 3);
  CHECK(a == Made("std.Source", c, 3));
  CHECK(a != Made("std.Source", c, 4));
  CHECK(a[17] == UniformDouble(CounterBits(0, 3, 17)));
  // The same elements in any shape.
  CHECK(std::vector<double>(a.begin(), a.begin() + 10) == Made("std.Source", MakeConfig(v1::F64, "[2, 5]", "random"), 3));
  c.set_seed(1);
  CHECK(a != Made("std.Source", c, 3));
}

TEST_CASE("random: ranges and means") {
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64}) {
    double sum = 0;
    for (const double v : Made("std.Source", MakeConfig(d, "[20000]", "random"))) {
      if (!(v >= 0 && v < 1)) FAIL(DTypeName(d) << " " << v);
      sum += v;
    }
    CHECK(sum / 20000 == Approx(0.5).margin(0.01));
  }
  std::vector<int> seen(10);
  for (const double v : Made("std.Source", MakeConfig(v1::I8, "[10000]", "random"))) ++seen.at(static_cast<size_t>(v));
  for (const int n : seen) CHECK(n == Approx(1000).margin(150));
  double ones = 0;
  for (const double v : Made("std.Source", MakeConfig(v1::BOOL, "[10000]", "random"))) ones += v;
  CHECK(ones == Approx(5000).margin(300));
}

TEST_CASE("source: what is missing or absurd is named") {
  CHECK(Mentions(CallStd("std.Source", "make", {}, {}).status(), "config.dtype"));
  CHECK(Mentions(CallStd("std.Source", "make", MakeConfig(v1::F32, "", ""), {}).status(), "config.shape"));
  CHECK(Mentions(CallStd("std.Source", "make", MakeConfig(v1::F32, "[?]", ""), {}).status(), "fixed sizes"));
  CHECK(Mentions(CallStd("std.Source", "make", MakeConfig(v1::F32, "[x]", ""), {}).status(), "config"));
  for (const char* fill : {"nan", "inf", "blue", "1x"}) {
    CHECK(Mentions(CallStd("std.Source", "make", MakeConfig(v1::F32, "[1]", fill), {}).status(), fill));
  }
}

TEST_CASE("source: a node's config may change what one actor makes from call to call") {
  const auto actor = *ActorRegistry::Std("cpu").Make("std.Source", {}, nullptr);
  const int m = *actor->Method("make");
  for (int round = 0; round < 2; ++round) {
    for (const auto& [fill, want] : std::initializer_list<std::pair<const char*, double>>{{"", 4}, {"ones", 1}, {"iota", 0}, {"8", 8}}) {
      TestContext ctx;
      ctx.execution_ = 4;
      ctx.config_ = MakeConfig(round == 0 ? v1::F32 : v1::I64, round == 0 ? "[1]" : "[2]", fill);
      std::vector<Tensor> outs(1);
      REQUIRE(actor->Call(m, ctx, {}, &outs).ok());
      CHECK(outs[0].dtype() == ctx.config_.dtype());
      CHECK(outs[0].elements() == round + 1);
      CHECK(ElementAsDouble(outs[0], 0) == want);
    }
  }
}

}  // namespace
}  // namespace weft
