#include <catch2/catch.hpp>
#include <cmath>

#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

TEST_CASE("matmul: small products on every dtype it makes") {
  for (const DType d : {v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64}) {
    const Tensor a = MakeTensor(d, {2, 3}, {1, 2, 3, 4, 5, 6}), b = MakeTensor(d, {3, 2}, {1, 2, 3, 4, 5, 6});
    const auto out = *CallStd("std.Gemm", "matmul", {}, {a, b});
    CHECK(out[0].dims() == Dims{2, 2});
    CHECK(Values(out[0]) == std::vector<double>{22, 28, 49, 64});
    CHECK(Values((*CallStd("std.Math", "square", {}, {MakeTensor(d, {2, 2}, {1, 2, 3, 4})}))[0]) == std::vector<double>{7, 10, 15, 22});
  }
}

TEST_CASE("matmul: agrees with the plain triple loop, twice over the same bits") {
  const int64_t m = 65, k = 130, n = 33;
  const Tensor a = *Tensor::OnHost(v1::F64, {m, k}), b = *Tensor::OnHost(v1::F64, {k, n});
  for (int64_t i = 0; i < a.elements(); ++i) a.as<double>()[i] = static_cast<double>(i * 37 % 101) - 50;
  for (int64_t i = 0; i < b.elements(); ++i) b.as<double>()[i] = static_cast<double>(i * 53 % 97) - 48;
  const Tensor c = (*CallStd("std.Gemm", "matmul", {}, {a, b}))[0];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += a.as<double>()[i * k + p] * b.as<double>()[p * n + j];
      if (c.as<double>()[i * n + j] != sum) FAIL(i << ", " << j);  // whole numbers: exact in any order
    }
  }
  CHECK(BitEqual((*CallStd("std.Gemm", "matmul", {}, {a, b}))[0], c));
}

TEST_CASE("matmul: integers wrap around") {
  const Tensor a = MakeTensor(v1::I32, {1, 2}, {65536, 65536}), b = MakeTensor(v1::I32, {2, 1}, {65536, 3});
  CHECK(Values((*CallStd("std.Gemm", "matmul", {}, {a, b}))[0]) == std::vector<double>{196608});
  const Tensor big = *Tensor::OnHost(v1::I64, {1, 1});
  big.as<int64_t>()[0] = INT64_MIN;
  CHECK((*CallStd("std.Gemm", "square", {}, {big}))[0].as<int64_t>()[0] == 0);
  const Tensor s = MakeTensor(v1::I16, {1, 1}, {-32768});
  CHECK(Values((*CallStd("std.Gemm", "square", {}, {s}))[0]) == std::vector<double>{0});
  const Tensor x = MakeTensor(v1::I8, {1, 1}, {-100});
  CHECK(Values((*CallStd("std.Gemm", "square", {}, {x}))[0]) == std::vector<double>{16});  // 10000 mod 256
}

TEST_CASE("matmul: empty dimensions") {
  const auto out = *CallStd("std.Gemm", "matmul", {}, {*Tensor::OnHost(v1::F32, {2, 0}), *Tensor::OnHost(v1::F32, {0, 3})});
  CHECK(Values(out[0]) == std::vector<double>(6, 0));
  CHECK((*CallStd("std.Gemm", "matmul", {}, {*Tensor::OnHost(v1::F64, {0, 2}), *Tensor::OnHost(v1::F64, {2, 3})}))[0].dims() == Dims{0, 3});
  CHECK((*CallStd("std.Gemm", "square", {}, {*Tensor::OnHost(v1::F32, {0, 0})}))[0].elements() == 0);
}

TEST_CASE("matmul: halves say where they run; misfits are named") {
  const Tensor h = MakeTensor(v1::F16, {1, 1}, {1});
  const absl::Status s = CallStd("std.Gemm", "square", {}, {h}).status();
  CHECK(s.code() == absl::StatusCode::kUnimplemented);
  CHECK(Mentions(s, "--device cuda"));
  CHECK(CallStd("std.Gemm", "square", {}, {MakeTensor(v1::BF16, {1, 1}, {1})}).status().code() == absl::StatusCode::kUnimplemented);
  const Tensor a = MakeTensor(v1::F32, {1, 2}, {1, 2});
  CHECK(Mentions(CallStd("std.Gemm", "square", {}, {a}).status(), "square matrix"));
  CHECK(Mentions(CallStd("std.Gemm", "matmul", {}, {a, a}).status(), "needs 2 rows"));
  CHECK(Mentions(CallStd("std.Gemm", "matmul", {}, {a, MakeTensor(v1::F64, {2, 1}, {1, 2})}).status(), "one dtype"));
  CHECK(Mentions(CallStd("std.Gemm", "matmul", {}, {a, MakeTensor(v1::F32, {2}, {1, 2})}).status(), "matrices"));
  CHECK_FALSE(CallStd("std.Gemm", "square", {}, {MakeTensor(v1::BOOL, {1, 1}, {1})}).ok());
}

}  // namespace
}  // namespace weft
