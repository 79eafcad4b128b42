#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

const DType kNumeric[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64};

TEST_CASE("identity: a copy of every dtype, of nothing too") {
  for (const Dims& dims : {Dims{2}, Dims{}, Dims{0, 4}}) {
    const Tensor t = *Tensor::OnHost(v1::BOOL, dims);
    for (int64_t i = 0; i < t.elements(); ++i) t.as<uint8_t>()[i] = 1;
    const auto out = *CallStd("std.Identity", "identity", {}, {t});
    CHECK(BitEqual(out[0], t));
    CHECK((out[0].data() != t.data() || t.bytes() == 0));
  }
}

TEST_CASE("add: one to three values of every numeric dtype") {
  for (const DType d : kNumeric) {
    const Tensor a = MakeTensor(d, {3}, {1, 2, 3}), b = MakeTensor(d, {3}, {10, 20, 30});
    CHECK(Values((*CallStd("std.Add", "add", {}, {a}))[0]) == std::vector<double>{1, 2, 3});
    CHECK(Values((*CallStd("std.Add", "add", {}, {a, b, a}))[0]) == std::vector<double>{12, 24, 36});
  }
}

TEST_CASE("add: what does not fit is named") {
  const Tensor a = MakeTensor(v1::F32, {2}, {1, 2});
  CHECK(Mentions(CallStd("std.Add", "add", {}, {a, MakeTensor(v1::F32, {1, 2}, {1, 2})}).status(), "argument 1 is F32[1, 2]"));
  CHECK(Mentions(CallStd("std.Add", "add", {}, {a, a, MakeTensor(v1::F64, {2}, {1, 2})}).status(), "argument 2 is F64[2]"));
  CHECK(Mentions(CallStd("std.Add", "add", {}, {MakeTensor(v1::BOOL, {1}, {1})}).status(), "BOOL"));
}

TEST_CASE("scale: floats in their own precision, integers by whole factors with wrap-around") {
  v1::Config c;
  c.set_scale(0.5);
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64}) {
    CHECK(Values((*CallStd("std.Scale", "scale", c, {MakeTensor(d, {2}, {3, -4})}))[0]) == std::vector<double>{1.5, -2});
  }
  CHECK(Mentions(CallStd("std.Scale", "scale", c, {MakeTensor(v1::I32, {1}, {4})}).status(), "whole factor"));
  c.set_scale(0.1);
  CHECK((*CallStd("std.Scale", "scale", c, {MakeTensor(v1::F32, {1}, {3})}))[0].as<float>()[0] == 3.0f * 0.1f);
  c.set_scale(-3);
  CHECK(Values((*CallStd("std.Scale", "scale", c, {MakeTensor(v1::I8, {2}, {100, 5})}))[0]) == std::vector<double>{-44, -15});
  c.set_scale(2);
  const Tensor big = *Tensor::OnHost(v1::I64, {1});
  big.as<int64_t>()[0] = INT64_MAX;
  CHECK((*CallStd("std.Scale", "scale", c, {big}))[0].as<int64_t>()[0] == -2);
  CHECK(Mentions(CallStd("std.Scale", "scale", {}, {big}).status(), "config.scale is missing"));
  CHECK_FALSE(CallStd("std.Scale", "scale", c, {MakeTensor(v1::BOOL, {1}, {1})}).ok());
}

TEST_CASE("peek: first element, dims, dtype number") {
  const Tensor x = MakeTensor(v1::F16, {2, 3}, {7, 1, 1, 1, 1, 1});
  const auto out = *CallStd("std.Gemm", "peek", {}, {x}, 3);
  CHECK(Values(out[0]) == std::vector<double>{7});
  CHECK(out[0].dtype() == v1::F16);
  CHECK(out[1].dims() == Dims{2});
  CHECK(Values(out[1]) == std::vector<double>{2, 3});
  CHECK(out[2].as<int32_t>()[0] == v1::F16);
  const auto none = *CallStd("std.Gemm", "peek", {}, {*Tensor::OnHost(v1::I64, {0})}, 3);
  CHECK(Values(none[0]) == std::vector<double>{0});
  const auto scalar = *CallStd("std.Gemm", "peek", {}, {MakeTensor(v1::F32, {}, {5})}, 3);
  CHECK(scalar[1].dims() == Dims{0});
  CHECK_FALSE(CallStd("std.Gemm", "peek", {}, {x}, 2).ok());
}

}  // namespace
}  // namespace weft
