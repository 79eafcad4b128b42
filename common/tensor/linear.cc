#include "common/tensor/linear.h"

#include <unistd.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/tensor/blas.h"
#include "common/tensor/random.h"

namespace weft {
namespace {

void Draw(const Tensor& t, uint64_t seed, uint64_t stream, double bound) {
  const auto draw = [&](auto* to, auto round) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double u = UniformDouble(CounterBits(seed, stream, static_cast<uint64_t>(i)));
      to[i] = round((2 * u - 1) * bound);
    }
  };
  switch (t.dtype()) {
    case v1::F16: draw(t.as<uint16_t>(), [](double v) { return FloatToHalf(static_cast<float>(v)); }); break;
    case v1::BF16: draw(t.as<uint16_t>(), [](double v) { return FloatToBFloat16(static_cast<float>(v)); }); break;
    case v1::F32: draw(t.as<float>(), [](double v) { return static_cast<float>(v); }); break;
    default: draw(t.as<double>(), [](double v) { return v; }); break;
  }
}

template <typename T>
T ActivateAs(Activation a, T x) {
  switch (a) {
    case Activation::kRelu: return x < T{0} ? T{0} : x;  // a NaN stays one
    case Activation::kGelu: return x * T(0.5) * (T{1} + std::erf(x * T(0.70710678118654752440)));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kSigmoid: return T{1} / (T{1} + std::exp(-x));
    default: return x;
  }
}

template <typename T>
T GradientAs(Activation a, T y, T dy) {
  switch (a) {
    case Activation::kRelu: return y > T{0} ? dy : T{0};
    case Activation::kTanh: return dy * (T{1} - y * y);
    case Activation::kSigmoid: return dy * (y * (T{1} - y));
    default: return dy;
  }
}

template <typename T>
absl::Status Forward(const Tensor& x, const LinearParameters& p, Activation activation, const Tensor& out) {
  const int64_t batch = x.dims()[0], in = p.weights.dims()[1], features = p.weights.dims()[0];
  T* y = out.as<T>();
  for (int64_t b = 0; b < batch; ++b) std::memcpy(y + b * features, p.bias.data(), p.bias.bytes());
  WEFT_RETURN_IF_ERROR(Gemm(x.as<T>(), p.weights.as<T>(), y, batch, features, in, true, true));
  if (activation == Activation::kNone) return absl::OkStatus();
  for (int64_t i = 0; i < batch * features; ++i) y[i] = Activate(activation, y[i]);
  return absl::OkStatus();
}

}  // namespace

float Activate(Activation a, float x) { return ActivateAs(a, x); }
double Activate(Activation a, double x) { return ActivateAs(a, x); }

float ActivationGradient(Activation a, float y, float dy) { return GradientAs(a, y, dy); }
double ActivationGradient(Activation a, double y, double dy) { return GradientAs(a, y, dy); }

absl::StatusOr<Activation> ParseActivation(const std::string& name) {
  if (name.empty() || name == "none") return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "tanh") return Activation::kTanh;
  if (name == "sigmoid") return Activation::kSigmoid;
  return absl::InvalidArgumentError(
      absl::StrCat("config.activation \"", name.substr(0, 40), "\" is not one of none, relu, gelu, tanh, sigmoid"));
}

absl::StatusOr<LinearParameters> LinearWeights(int64_t in_features, int64_t out_features, uint64_t seed, DType dtype) {
  if (!IsFloat(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("config.dtype ", DTypeName(dtype), " is not F16, BF16, F32 or F64"));
  }
  if (in_features < 1 || out_features < 1) {
    return absl::InvalidArgumentError(absl::StrCat("config.in_features ", in_features, " and config.out_features ", out_features,
                                                   " must be at least 1"));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t n, NumElements({out_features, in_features}));
  // The kernel promises more memory than there is and ends the process that believes it.
  const uint64_t host = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t bytes = static_cast<uint64_t>(n) * SizeOf(dtype);
  if (bytes > host) {
    return absl::ResourceExhaustedError(absl::StrCat("weights of ", FormatBytes(bytes), " (config.in_features ", in_features,
                                                     ", config.out_features ", out_features, ") are larger than this host's memory, ",
                                                     FormatBytes(host)));
  }
  LinearParameters p;
  WEFT_ASSIGN_OR_RETURN(p.weights, Tensor::OnHost(dtype, {out_features, in_features}));
  WEFT_ASSIGN_OR_RETURN(p.bias, Tensor::OnHost(dtype, {out_features}));
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  Draw(p.weights, seed, 0, bound);
  Draw(p.bias, seed, 1, bound);
  return p;
}

absl::Status LinearForward(const Tensor& x, const LinearParameters& p, Activation activation, const Tensor& out) {
  return p.weights.dtype() == v1::F32 ? Forward<float>(x, p, activation, out) : Forward<double>(x, p, activation, out);
}

}  // namespace weft
