#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

v1::Config How(const std::string& how) {
  v1::Config c;
  c.set_reduce(how);
  return c;
}

TEST_CASE("reduce: every kind over all elements, on every dtype it takes") {
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64}) {
    const Tensor x = MakeTensor(d, {2, 2}, {1, 4, 2, 9});
    const auto one = [&](const std::string& how) { return (*CallStd("std.Reduce", "reduce", How(how), {x}))[0]; };
    CHECK(one("").dims() == Dims{1});
    CHECK(Values(one("")) == std::vector<double>{16});
    CHECK(Values(one("max")) == std::vector<double>{9});
    CHECK(Values(one("min")) == std::vector<double>{1});
    if (IsFloat(d)) CHECK(Values(one("mean")) == std::vector<double>{4});
  }
}

TEST_CASE("reduce: along each axis of three") {
  const Tensor x = MakeTensor(v1::I32, {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  v1::Config c;
  const std::vector<std::vector<double>> want = {{6, 8, 10, 12, 14, 16}, {6, 9, 24, 27}, {1, 5, 9, 13, 17, 21}};
  const Dims dims[] = {{3, 2}, {2, 2}, {2, 3}};
  for (int axis = 0; axis < 3; ++axis) {
    c.set_axis(axis);
    const auto out = *CallStd("std.Reduce", "reduce", c, {x});
    CHECK(out[0].dims() == dims[axis]);
    CHECK(Values(out[0]) == want[axis]);
  }
  c.set_axis(0);
  CHECK((*CallStd("std.Reduce", "reduce", c, {MakeTensor(v1::F32, {2}, {1, 2})}))[0].dims().empty());
}

TEST_CASE("reduce: long float sums do not lose the small ones; integers wrap around") {
  const Tensor x = *Tensor::OnHost(v1::F32, {1 << 20});
  for (int i = 0; i < 1 << 20; ++i) x.as<float>()[i] = 0.1f;
  CHECK((*CallStd("std.Reduce", "reduce", {}, {x}))[0].as<float>()[0] == Approx((1 << 20) * 0.1).epsilon(1e-7));
  CHECK(Values((*CallStd("std.Reduce", "reduce", {}, {MakeTensor(v1::I8, {2}, {100, 100})}))[0]) == std::vector<double>{-56});
}

TEST_CASE("reduce: NaN wins max and min; negative maxima") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(Values((*CallStd("std.Reduce", "reduce", How("max"), {MakeTensor(v1::F32, {3}, {1, nan, 2})}))[0])[0]));
  CHECK(std::isnan(Values((*CallStd("std.Reduce", "reduce", How("min"), {MakeTensor(v1::F16, {3}, {nan, 1, 2})}))[0])[0]));
  CHECK(Values((*CallStd("std.Reduce", "reduce", How("max"), {MakeTensor(v1::F64, {2}, {-3, -2})}))[0]) == std::vector<double>{-2});
}

TEST_CASE("reduce: empty values have a sum and nothing else") {
  const Tensor none = *Tensor::OnHost(v1::F32, {0, 3});
  CHECK(Values((*CallStd("std.Reduce", "reduce", {}, {none}))[0]) == std::vector<double>{0});
  CHECK(Mentions(CallStd("std.Reduce", "reduce", How("max"), {none}).status(), "no elements"));
  v1::Config c;
  c.set_axis(0);
  CHECK(Values((*CallStd("std.Reduce", "reduce", c, {none}))[0]) == std::vector<double>{0, 0, 0});
  c.set_axis(1);
  c.set_reduce("mean");
  CHECK((*CallStd("std.Reduce", "reduce", c, {none}))[0].dims() == Dims{0});
}

TEST_CASE("reduce: bad requests are named") {
  const Tensor x = MakeTensor(v1::I32, {2}, {1, 2});
  CHECK(Mentions(CallStd("std.Reduce", "reduce", How("median"), {x}).status(), "median"));
  CHECK(Mentions(CallStd("std.Reduce", "reduce", How("mean"), {x}).status(), "mean"));
  CHECK(Mentions(CallStd("std.Reduce", "reduce", {}, {MakeTensor(v1::BOOL, {1}, {1})}).status(), "BOOL"));
  v1::Config c;
  c.set_axis(1);
  CHECK(Mentions(CallStd("std.Reduce", "reduce", c, {x}).status(), "config.axis is 1"));
}

}  // namespace
}  // namespace weft
