#pragma once

// How elements of each dtype are computed with on the host: floats of 16 and 32 bits in float, F64 in double, integers in 64 bits
// with wrap-around, so that storing keeps the result modulo 2^bits.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/dtype.h"

namespace weft {

template <typename S, typename C>
struct PlainElement {
  using Storage = S;
  using Compute = C;
  static C Load(S v) { return static_cast<C>(v); }
  static S Store(C v) { return static_cast<S>(v); }
};
struct HalfElement {
  using Storage = uint16_t;
  using Compute = float;
  static float Load(uint16_t v) { return HalfToFloat(v); }
  static uint16_t Store(float v) { return FloatToHalf(v); }
};
struct BFloat16Element {
  using Storage = uint16_t;
  using Compute = float;
  static float Load(uint16_t v) { return BFloat16ToFloat(v); }
  static uint16_t Store(float v) { return FloatToBFloat16(v); }
};

// Signed overflow is undefined, so integers go through the unsigned type.
template <typename C>
C Plus(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename C>
C Times(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}
// A NaN on either side is the result, as in NumPy.
template <typename C>
C Larger(C a, C b) {
  if (a != a) return a;
  return b > a || b != b ? b : a;
}
template <typename C>
C Smaller(C a, C b) {
  if (a != a) return a;
  return b < a || b != b ? b : a;
}

// Calls f(element type) for `dtype`; f is a generic lambda that returns absl::Status. BOOL is its byte.
template <typename F>
absl::Status ForElementType(DType dtype, F&& f) {
  switch (dtype) {
    case v1::F16: return f(HalfElement{});
    case v1::BF16: return f(BFloat16Element{});
    case v1::F32: return f(PlainElement<float, float>{});
    case v1::F64: return f(PlainElement<double, double>{});
    case v1::I8: return f(PlainElement<int8_t, int64_t>{});
    case v1::U8:
    case v1::BOOL: return f(PlainElement<uint8_t, int64_t>{});
    case v1::I16: return f(PlainElement<int16_t, int64_t>{});
    case v1::I32: return f(PlainElement<int32_t, int64_t>{});
    case v1::I64: return f(PlainElement<int64_t, int64_t>{});
    default: return absl::InvalidArgumentError(absl::StrCat(DTypeName(dtype), " is no dtype to compute with"));
  }
}

}  // namespace weft
