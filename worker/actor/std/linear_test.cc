#include "common/tensor/linear.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "common/tensor/random.h"
#include "worker/actor/std/call_test_util.h"

namespace weft {
namespace {

v1::Config MakeConfig(int64_t in, int64_t out, const std::string& activation, DType dtype) {
  v1::Config c;
  c.set_in_features(in);
  c.set_out_features(out);
  c.set_activation(activation);
  c.set_seed(7);
  c.set_dtype(dtype);
  return c;
}

TEST_CASE("linear: weights are what the header says") {
  const LinearParameters p = *LinearWeights(16, 5, 42, v1::F64);
  CHECK(p.weights.dims() == Dims{5, 16});
  CHECK(p.bias.dims() == Dims{5});
  double lo = 1, hi = -1;
  for (int64_t i = 0; i < 80; ++i) {
    const double w = p.weights.as<double>()[i];
    CHECK(w == (2 * UniformDouble(CounterBits(42, 0, static_cast<uint64_t>(i))) - 1) * 0.25);
    lo = std::min(lo, w);
    hi = std::max(hi, w);
  }
  CHECK(lo < -0.15);
  CHECK(lo >= -0.25);
  CHECK(hi > 0.15);
  CHECK(p.bias.as<double>()[2] == (2 * UniformDouble(CounterBits(42, 1, 2)) - 1) * 0.25);
  CHECK(LinearWeights(16, 5, 42, v1::F16)->weights.as<uint16_t>()[7] == FloatToHalf(static_cast<float>(p.weights.as<double>()[7])));
  CHECK(LinearWeights(16, 5, 42, v1::BF16)->bias.as<uint16_t>()[4] == FloatToBFloat16(static_cast<float>(p.bias.as<double>()[4])));
  const LinearParameters f = *LinearWeights(16, 5, 42, v1::F32);
  CHECK(f.weights.as<float>()[3] == static_cast<float>(p.weights.as<double>()[3]));
  CHECK_FALSE(BitEqual(f.weights, LinearWeights(16, 5, 43, v1::F32)->weights));
}

TEST_CASE("linear: forward is activation(x·Wᵀ + b)") {
  const std::pair<const char*, double (*)(double)> activations[] = {
      {"", [](double x) { return x; }},
      {"none", [](double x) { return x; }},
      {"relu", [](double x) { return x > 0 ? x : 0; }},
      {"gelu", [](double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
  };
  for (const auto& [name, f] : activations) {
    for (const DType d : {v1::F32, v1::F64}) {
      const Tensor x = MakeTensor(d, {2, 3}, {1, -2, 3, 0.5, 0, -1});
      const Tensor y = (*CallStd("std.Linear", "forward", MakeConfig(3, 4, name, d), {x}))[0];
      const LinearParameters p = *LinearWeights(3, 4, 7, d);
      REQUIRE(y.dims() == Dims{2, 4});
      for (int b = 0; b < 2; ++b) {
        for (int o = 0; o < 4; ++o) {
          double sum = ElementAsDouble(p.bias, o);
          for (int i = 0; i < 3; ++i) sum += ElementAsDouble(x, b * 3 + i) * ElementAsDouble(p.weights, o * 3 + i);
          CHECK(ElementAsDouble(y, b * 4 + o) == Approx(f(sum)).margin(d == v1::F32 ? 1e-6 : 1e-14));
        }
      }
    }
  }
}

TEST_CASE("linear: the actor and the function for references give the same bits") {
  const Tensor x = MakeTensor(v1::F32, {1, 2}, {0.3, 0.7});
  const Tensor out = *Tensor::OnHost(v1::F32, {1, 3});
  REQUIRE(LinearForward(x, *LinearWeights(2, 3, 7, v1::F32), Activation::kGelu, out).ok());
  CHECK(BitEqual((*CallStd("std.Linear", "forward", MakeConfig(2, 3, "gelu", v1::DTYPE_UNSPECIFIED), {x}))[0], out));
}

TEST_CASE("linear: empty batches, misfits, absurd sizes") {
  const v1::Config c = MakeConfig(2, 3, "relu", v1::F32);
  CHECK((*CallStd("std.Linear", "forward", c, {*Tensor::OnHost(v1::F32, {0, 2})}))[0].dims() == Dims{0, 3});
  for (const Tensor& x : {MakeTensor(v1::F32, {1, 3}, {1, 2, 3}), MakeTensor(v1::F32, {2}, {1, 2}), MakeTensor(v1::F64, {1, 2}, {1, 2})}) {
    CHECK(Mentions(CallStd("std.Linear", "forward", c, {x}).status(), "F32[batch, 2]"));
  }
  const auto make = [](const v1::Config& k) { return ActorRegistry::Std("cpu").Make("std.Linear", k, nullptr).status(); };
  CHECK(Mentions(make({}), "in_features"));
  CHECK(Mentions(make(MakeConfig(2, 3, "swish", v1::F32)), "swish"));
  CHECK(Mentions(make(MakeConfig(2, 3, "relu", v1::I32)), "I32"));
  CHECK(make(MakeConfig(2, 3, "relu", v1::F16)).code() == absl::StatusCode::kUnimplemented);
  CHECK(Mentions(make(MakeConfig(2, 3, "relu", v1::BF16)), "--device cuda"));
  CHECK(make(MakeConfig(int64_t{1} << 19, int64_t{1} << 19, "relu", v1::F32)).code() == absl::StatusCode::kResourceExhausted);
  CHECK_FALSE(make(MakeConfig(INT64_MAX, INT64_MAX, "relu", v1::F32)).ok());
}

}  // namespace
}  // namespace weft
