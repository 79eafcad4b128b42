#include <catch2/catch.hpp>

#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

TEST_CASE("delay: passes its first argument on and holds the lane") {
  v1::Config c;
  c.set_duration_s(0.25);
  Nanos held = 0;
  const Tensor a = MakeTensor(v1::I16, {2}, {4, 5}), b = MakeTensor(v1::F32, {1}, {9});
  const auto out = *CallStd("std.Delay", "run", c, {a, b}, 1, 3, &held);
  CHECK(BitEqual(out[0], a));
  CHECK(held == kNanosPerSecond / 4);
}

TEST_CASE("delay: without arguments it makes the execution's number") {
  v1::Config c;
  c.set_duration_s(0);
  const auto out = *CallStd("std.Delay", "run", c, {}, 1, 3);
  CHECK(out[0].dtype() == v1::F32);
  CHECK(out[0].dims() == Dims{1});
  CHECK(Values(out[0]) == std::vector<double>{3});
  c.set_dtype(v1::I64);
  c.set_shape("[2, 1]");
  CHECK(Values((*CallStd("std.Delay", "run", c, {}, 1, 8))[0]) == std::vector<double>{8, 8});
}

TEST_CASE("delay: no negative, endless or undefined times") {
  for (const double s : {-1.0, 1e9, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    v1::Config c;
    c.set_duration_s(s);
    CHECK(Mentions(CallStd("std.Delay", "run", c, {}).status(), "config.duration_s"));
  }
}

TEST_CASE("fail: on the executions named, with the message given, and otherwise not") {
  v1::Config c;
  c.set_message("out of paper");
  c.add_fail_on(2);
  c.add_fail_on(5);
  const Tensor a = MakeTensor(v1::F32, {1}, {6});
  for (int64_t e = 0; e < 7; ++e) {
    const auto out = CallStd("std.Fail", "run", c, {a}, 1, e);
    CHECK(out.ok() == (e != 2 && e != 5));
    if (out.ok()) {
      CHECK(BitEqual((*out)[0], a));
    } else {
      CHECK(out.status().message() == "out of paper");
    }
  }
}

TEST_CASE("fail: on all executions by default, with some words") {
  for (int64_t e : {0, 1, 100}) {
    const absl::Status s = CallStd("std.Fail", "run", {}, {}, 1, e).status();
    CHECK_FALSE(s.ok());
    CHECK_FALSE(s.message().empty());
  }
}

TEST_CASE("fail: on_device changes nothing on the CPU") {
  v1::Config c;
  c.set_on_device(true);
  c.add_fail_on(1);
  CHECK(CallStd("std.Fail", "run", c, {}, 1, 0).ok());
  CHECK_FALSE(CallStd("std.Fail", "run", c, {}, 1, 1).ok());
}

TEST_CASE("check: finite values pass, others fail with words that say why") {
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64}) {
    INFO(DTypeName(d));
    const Tensor good = MakeTensor(d, {2, 2}, {0, -0.0, 1.5, -65504});
    CHECK(BitEqual((*CallStd("std.Check", "finite", {}, {good}))[0], good));
    CHECK((*CallStd("std.Check", "finite", {}, {*Tensor::OnHost(d, {0, 2})}))[0].dims() == Dims{0, 2});
    for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
      const absl::Status s = CallStd("std.Check", "finite", {}, {MakeTensor(d, {3}, {1, 2, bad})}).status();
      CHECK(absl::IsInvalidArgument(s));
      CHECK(Mentions(s, DTypeName(d) + "[3]: an element is NaN or infinite"));
    }
  }
  CHECK(Mentions(CallStd("std.Check", "finite", {}, {MakeTensor(v1::I32, {1}, {1})}).status(), "always finite"));
}

}  // namespace
}  // namespace weft
