#include "common/tensor/combine.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/tensor/tensor.h"

namespace weft {
namespace {

const DType kAll[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64};

TEST_CASE("combine: each op on each dtype, longer than a block, in place") {
  const int64_t n = 2500;
  for (const DType d : kAll) {
    for (const v1::ReduceOp op : {v1::SUM, v1::PROD, v1::MIN, v1::MAX}) {
      const Tensor a = *Tensor::OnHost(d, {n}), b = *Tensor::OnHost(d, {n}), c = *Tensor::OnHost(d, {n});
      for (int64_t i = 0; i < n; ++i) {
        SetElementFromDouble(a, i, static_cast<double>(i % 5));
        SetElementFromDouble(b, i, static_cast<double>(i % 3));
        SetElementFromDouble(c, i, static_cast<double>(i % 4));
      }
      REQUIRE(Combine(d, op, {a.data(), b.data(), c.data()}, a.data(), n).ok());
      for (int64_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(i % 5), y = static_cast<double>(i % 3), z = static_cast<double>(i % 4);
        const double want = op == v1::SUM    ? x + y + z
                            : op == v1::PROD ? x * y * z
                            : op == v1::MIN  ? std::min({x, y, z})
                                             : std::max({x, y, z});
        if (ElementAsDouble(a, i) != want) FAIL(DTypeName(d) << " " << op << " at " << i);
      }
    }
  }
}

TEST_CASE("combine: integers wrap around") {
  const Tensor t = *Tensor::OnHost(v1::I64, {1});
  t.as<int64_t>()[0] = INT64_MAX;
  const Tensor out = *Tensor::OnHost(v1::I64, {1});
  REQUIRE(Combine(v1::I64, v1::SUM, {t.data(), t.data()}, out.data(), 1).ok());
  CHECK(out.as<int64_t>()[0] == -2);
  REQUIRE(Combine(v1::I64, v1::PROD, {t.data(), t.data(), t.data()}, out.data(), 1).ok());
  CHECK(out.as<int64_t>()[0] == INT64_MAX);
  const Tensor u = *Tensor::OnHost(v1::U8, {1});
  u.as<uint8_t>()[0] = 200;
  REQUIRE(Combine(v1::U8, v1::SUM, {u.data(), u.data()}, u.data(), 1).ok());
  CHECK(u.as<uint8_t>()[0] == 144);
}

TEST_CASE("combine: halves are summed in float and rounded once, in order") {
  // 2048 + 1 + 1 in half steps would stay 2048.
  const Tensor big = *Tensor::OnHost(v1::F16, {1}), one = *Tensor::OnHost(v1::F16, {1});
  SetElementFromDouble(big, 0, 2048);
  SetElementFromDouble(one, 0, 1);
  const Tensor out = *Tensor::OnHost(v1::F16, {1});
  REQUIRE(Combine(v1::F16, v1::SUM, {big.data(), one.data(), one.data()}, out.data(), 1).ok());
  CHECK(ElementAsDouble(out, 0) == 2050);
  // In float the order shows: (1e8 - 1e8) + 1 against (1e8 + 1) - 1e8.
  float p = 1e8f, m = -1e8f, o = 1.0f, r = 0;
  REQUIRE(Combine(v1::F32, v1::SUM, {&p, &m, &o}, &r, 1).ok());
  CHECK(r == 1.0f);
  REQUIRE(Combine(v1::F32, v1::SUM, {&p, &o, &m}, &r, 1).ok());
  CHECK(r == 0.0f);
}

TEST_CASE("combine: NaN wins MIN and MAX from either side") {
  float nan = std::numeric_limits<float>::quiet_NaN(), one = 1, r = 0;
  for (const v1::ReduceOp op : {v1::MIN, v1::MAX}) {
    REQUIRE(Combine(v1::F32, op, {&nan, &one}, &r, 1).ok());
    CHECK(std::isnan(r));
    REQUIRE(Combine(v1::F32, op, {&one, &nan}, &r, 1).ok());
    CHECK(std::isnan(r));
  }
}

TEST_CASE("combine: BOOL has no sum, nonsense has nothing") {
  uint8_t a = 1, b = 0, r = 9;
  CHECK(Combine(v1::BOOL, v1::MAX, {&a, &b}, &r, 1).ok());
  CHECK(r == 1);
  CHECK(Combine(v1::BOOL, v1::MIN, {&a, &b}, &r, 1).ok());
  CHECK(r == 0);
  CHECK_FALSE(Combine(v1::BOOL, v1::SUM, {&a, &b}, &r, 1).ok());
  CHECK_FALSE(CheckCombine(v1::F32, v1::REDUCE_OP_UNSPECIFIED).ok());
  CHECK_FALSE(CheckCombine(v1::F32, static_cast<v1::ReduceOp>(9)).ok());
  CHECK_FALSE(CheckCombine(v1::DTYPE_UNSPECIFIED, v1::SUM).ok());
}

}  // namespace
}  // namespace weft
