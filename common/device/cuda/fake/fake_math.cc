#include "common/device/cuda/fake/fake_math.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/base/status_macros.h"
#include "common/device/cuda/api/reduce_order.h"
#include "common/tensor/arith.h"
#include "common/tensor/blas.h"
#include "common/tensor/linear.h"

namespace weft {
namespace {

template <typename Sum>
Sum Combine(DeviceReduce how, Sum a, Sum b) {
  switch (how) {
    case DeviceReduce::kMax: return Larger(a, b);
    case DeviceReduce::kMin: return Smaller(a, b);
    default: return Plus(a, b);
  }
}

template <typename Sum>
Sum Fold(DeviceReduce how, std::vector<Sum>* values, int lanes) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half && l + half < static_cast<int>(values->size()); ++l) (*values)[l] = Combine(how, (*values)[l], (*values)[l + half]);
  }
  return (*values)[0];
}

// at(0) to at(n - 1), n > 0, by `lanes` lanes.
template <typename Sum, typename At>
Sum ByLanes(DeviceReduce how, int64_t n, int lanes, At at) {
  std::vector<Sum> values;
  for (int64_t i = 0; i < n; ++i) {
    if (i < lanes) {
      values.push_back(at(i));
    } else {
      values[i % lanes] = Combine(how, values[i % lanes], at(i));
    }
  }
  return Fold(how, &values, lanes);
}

template <typename E>
void Run(DeviceReduce how, const void* from, int64_t outer, int64_t size, int64_t inner, void* to) {
  using C = typename E::Compute;
  using Sum = std::conditional_t<std::is_integral_v<C>, C, double>;
  const auto* x = static_cast<const typename E::Storage*>(from);
  auto* out = static_cast<typename E::Storage*>(to);
  const int64_t parts = ReduceParts(outer * inner, size);
  for (int64_t i = 0; i < outer * inner; ++i) {
    const auto at = [&](int64_t k) { return static_cast<Sum>(E::Load(x[(i / inner * size + k) * inner + i % inner])); };
    Sum sum = 0;
    if (size > kReduceInOrder) {
      sum = ByLanes<Sum>(how, parts, kReduceFinalLanes, [&](int64_t p) {
        const int64_t begin = size * p / parts, end = size * (p + 1) / parts;
        return ByLanes<Sum>(how, end - begin, kReduceLanes, [&](int64_t k) { return at(begin + k); });
      });
    } else if (size > 0) {
      sum = ByLanes<Sum>(how, size, 1, at);
    }
    if (how == DeviceReduce::kMean && size > 1) sum /= static_cast<Sum>(size);
    out[i] = E::Store(static_cast<C>(sum));
  }
}

// A float's first 11 bits, to nearest.
float ToTf32(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if ((bits & 0x7f800000) == 0x7f800000) return f;
  bits = (bits + 0x1000) & 0xffffe000;
  std::memcpy(&f, &bits, 4);
  return f;
}

// Factors in the type that products are summed in: halves and tf32 in float.
std::vector<float> Floats(DType dtype, DevicePrecision precision, const void* x, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    switch (dtype) {
      case v1::F16: out[i] = HalfToFloat(static_cast<const uint16_t*>(x)[i]); break;
      case v1::BF16: out[i] = BFloat16ToFloat(static_cast<const uint16_t*>(x)[i]); break;
      default: out[i] = static_cast<const float*>(x)[i]; break;
    }
    if (dtype == v1::F32 && precision == DevicePrecision::kTf32) out[i] = ToTf32(out[i]);
  }
  return out;
}

void StoreFloats(DType dtype, const std::vector<float>& from, void* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    switch (dtype) {
      case v1::F16: static_cast<uint16_t*>(to)[i] = FloatToHalf(from[i]); break;
      case v1::BF16: static_cast<uint16_t*>(to)[i] = FloatToBFloat16(from[i]); break;
      default: static_cast<float*>(to)[i] = from[i]; break;
    }
  }
}

template <typename E>
void IntegerMatmul(const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k) {
  using S = typename E::Storage;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum = Plus(sum, Times<int64_t>(static_cast<const S*>(a)[i * k + p], static_cast<const S*>(b)[p * n + j]));
      }
      static_cast<S*>(c)[i * n + j] = static_cast<S>(sum);
    }
  }
}

Tensor View(DType dtype, Dims dims, const void* p) { return Tensor(dtype, std::move(dims), const_cast<void*>(p), nullptr); }

}  // namespace

absl::Status FakeReduce(DeviceReduce how, DType dtype, const void* x, int64_t outer, int64_t size, int64_t inner, void* out) {
  return ForElementType(dtype, [&](auto e) {
    Run<decltype(e)>(how, x, outer, size, inner, out);
    return absl::OkStatus();
  });
}

absl::Status FakeMatmul(DType dtype, DevicePrecision precision, const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k) {
  if (dtype == v1::F64) {
    return Gemm(static_cast<const double*>(a), static_cast<const double*>(b), static_cast<double*>(c), m, n, k, false, false);
  }
  if (IsFloat(dtype)) {
    std::vector<float> product(static_cast<size_t>(m * n));
    WEFT_RETURN_IF_ERROR(Gemm(Floats(dtype, precision, a, m * k).data(), Floats(dtype, precision, b, k * n).data(), product.data(), m, n, k, false,
                              false));
    StoreFloats(dtype, product, c);
    return absl::OkStatus();
  }
  return ForElementType(dtype, [&](auto e) {
    if constexpr (std::is_integral_v<typename decltype(e)::Compute>) IntegerMatmul<decltype(e)>(a, b, c, m, n, k);
    return absl::OkStatus();
  });
}

absl::Status FakeGemm(DType dtype, DevicePrecision precision, const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m,
                      int64_t n, int64_t k, bool accumulate) {
  if (dtype == v1::F64) {
    return Gemm(static_cast<const double*>(a), a_transposed, static_cast<const double*>(b), b_transposed, static_cast<double*>(c), m, n, k,
                accumulate);
  }
  const std::vector<float> as = Floats(dtype, precision, a, m * k), bs = Floats(dtype, precision, b, k * n);
  std::vector<float> cs(static_cast<size_t>(m * n));
  if (accumulate) cs = Floats(dtype, DevicePrecision::kFp32, c, m * n);
  WEFT_RETURN_IF_ERROR(Gemm(as.data(), a_transposed, bs.data(), b_transposed, cs.data(), m, n, k, accumulate));
  StoreFloats(dtype, cs, c);
  return absl::OkStatus();
}

absl::Status FakeLinear(DType dtype, DevicePrecision precision, DeviceActivation activation, const void* x, const void* w, const void* bias, void* y,
                        int64_t batch, int64_t in, int64_t out) {
  const auto how = static_cast<Activation>(activation);
  static_assert(static_cast<int>(Activation::kSigmoid) == static_cast<int>(DeviceActivation::kSigmoid));
  static_assert(static_cast<int>(Activation::kGelu) == static_cast<int>(DeviceActivation::kGelu));
  const bool halves = dtype == v1::F16 || dtype == v1::BF16;
  if (!halves && precision == DevicePrecision::kFp32) {
    return LinearForward(View(dtype, {batch, in}, x), {View(dtype, {out, in}, w), View(dtype, {out}, bias)}, how, View(dtype, {batch, out}, y));
  }
  if (dtype == v1::F64) {
    return FakeLinear(dtype, DevicePrecision::kFp32, activation, x, w, bias, y, batch, in, out);
  }
  const std::vector<float> xs = Floats(dtype, precision, x, batch * in), ws = Floats(dtype, precision, w, out * in),
                           bs = Floats(dtype, DevicePrecision::kFp32, bias, out);
  std::vector<float> ys(static_cast<size_t>(batch * out));
  const LinearParameters p{View(v1::F32, {out, in}, ws.data()), View(v1::F32, {out}, bs.data())};
  WEFT_RETURN_IF_ERROR(LinearForward(View(v1::F32, {batch, in}, xs.data()), p, Activation::kNone, View(v1::F32, {batch, out}, ys.data())));
  if (activation != DeviceActivation::kNone) {
    // Rounded before the activation too, as on the device, where the product comes first.
    StoreFloats(dtype, ys, y);
    ys = Floats(dtype, DevicePrecision::kFp32, y, batch * out);
    for (float& v : ys) v = Activate(how, v);
  }
  StoreFloats(dtype, ys, y);
  return absl::OkStatus();
}

}  // namespace weft
