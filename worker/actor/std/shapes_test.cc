#include <catch2/catch.hpp>
#include <numeric>

#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

Tensor Iota(DType d, const Dims& dims) {
  const Tensor t = *Tensor::OnHost(d, dims);
  for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, static_cast<double>(i));
  return t;
}

TEST_CASE("split then concat gives the value back, on every axis and dtype") {
  for (const DType d : {v1::F16, v1::F64, v1::I8, v1::BOOL}) {
    const Tensor x = Iota(d, {4, 6, 2});
    for (int axis = 0; axis < 3; ++axis) {
      v1::Config c;
      c.set_axis(axis);
      c.set_parts(2);
      const auto parts = *CallStd("std.Split", "split", c, {x}, 2);
      CHECK(parts[0].dims()[axis] == x.dims()[axis] / 2);
      c.clear_parts();
      CHECK(BitEqual((*CallStd("std.Concat", "concat", c, parts))[0], x));
    }
  }
}

TEST_CASE("split: parts along an inner axis hold the right elements") {
  v1::Config c;
  c.set_axis(1);
  c.set_parts(3);
  const auto parts = *CallStd("std.Split", "split", c, {Iota(v1::I32, {2, 3})}, 3);
  CHECK(Values(parts[1]) == std::vector<double>{1, 4});
}

TEST_CASE("split: default axis 0; what does not divide is named") {
  v1::Config c;
  c.set_parts(2);
  CHECK(Values((*CallStd("std.Split", "split", c, {Iota(v1::I32, {4})}, 2))[1]) == std::vector<double>{2, 3});
  CHECK(Mentions(CallStd("std.Split", "split", c, {Iota(v1::I32, {3})}, 2).status(), "divide"));
  CHECK(Mentions(CallStd("std.Split", "split", c, {Iota(v1::I32, {})}, 2).status(), "axis"));
  CHECK_FALSE(CallStd("std.Split", "split", c, {Iota(v1::I32, {6})}, 3).ok());
  c.set_axis(1);
  CHECK(Mentions(CallStd("std.Split", "split", c, {Iota(v1::I32, {4})}, 2).status(), "config.axis is 1"));
  c.set_axis(-1);
  CHECK_FALSE(CallStd("std.Split", "split", c, {Iota(v1::I32, {4})}, 2).ok());
}

TEST_CASE("concat: sizes may differ along the axis, be nothing, and nothing else may differ") {
  v1::Config c;
  c.set_axis(1);
  const auto out = *CallStd("std.Concat", "concat", c, {Iota(v1::I32, {2, 1}), Iota(v1::I32, {2, 0}), Iota(v1::I32, {2, 2})});
  CHECK(out[0].dims() == Dims{2, 3});
  CHECK(Values(out[0]) == std::vector<double>{0, 0, 1, 1, 2, 3});
  CHECK(Mentions(CallStd("std.Concat", "concat", c, {Iota(v1::I32, {2, 1}), Iota(v1::I32, {3, 1})}).status(), "argument 1 is I32[3, 1]"));
  CHECK_FALSE(CallStd("std.Concat", "concat", c, {Iota(v1::I32, {2, 1}), Iota(v1::I64, {2, 1})}).ok());
  CHECK_FALSE(CallStd("std.Concat", "concat", c, {Iota(v1::I32, {2, 1}), Iota(v1::I32, {2})}).ok());
  CHECK_FALSE(CallStd("std.Concat", "concat", c, {Iota(v1::I32, {})}).ok());
}

}  // namespace
}  // namespace weft
