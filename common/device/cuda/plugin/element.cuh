#pragma once

// Elements on the device, as common/tensor/arith.h has them on the host: the same roundings and saturation, so the same bits. Only which NaN
// an operation on floats gives is the device's own.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/device/cuda/plugin/launch.cuh"

namespace weft::gpu {

__device__ inline float HalfToFloat(uint16_t h) {
  // The conversion would make a NaN canonical.
  if ((h & 0x7fff) > 0x7c00) return __uint_as_float(static_cast<uint32_t>(h & 0x8000) << 16 | 0x7f800000 | static_cast<uint32_t>(h & 0x3ff) << 13);
  return __half2float(__ushort_as_half(h));
}
__device__ inline uint16_t FloatToHalf(float f) {
  const uint32_t bits = __float_as_uint(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7e00);
  return __half_as_ushort(__float2half_rn(f));
}
__device__ inline float BFloat16ToFloat(uint16_t b) { return __uint_as_float(static_cast<uint32_t>(b) << 16); }
__device__ inline uint16_t FloatToBFloat16(float f) {
  uint32_t bits = __float_as_uint(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

// Compute is what add and scale work in; Sum what reduce works in: floats in double, integers in 64 bits.
struct F16 {
  using Storage = uint16_t;
  using Compute = float;
  using Sum = double;
  static __device__ float Load(uint16_t v) { return HalfToFloat(v); }
  static __device__ uint16_t Store(float v) { return FloatToHalf(v); }
  static __device__ uint16_t Random(uint64_t bits) { return FloatToHalf(static_cast<float>(bits >> 53) * 0x1p-11f); }
};
struct BF16 {
  using Storage = uint16_t;
  using Compute = float;
  using Sum = double;
  static __device__ float Load(uint16_t v) { return BFloat16ToFloat(v); }
  static __device__ uint16_t Store(float v) { return FloatToBFloat16(v); }
  static __device__ uint16_t Random(uint64_t bits) { return FloatToBFloat16(static_cast<float>(bits >> 56) * 0x1p-8f); }
};
struct F32 {
  using Storage = float;
  using Compute = float;
  using Sum = double;
  static __device__ float Load(float v) { return v; }
  static __device__ float Store(float v) { return v; }
  static __device__ float Random(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }
};
struct F64 {
  using Storage = double;
  using Compute = double;
  using Sum = double;
  static __device__ double Load(double v) { return v; }
  static __device__ double Store(double v) { return v; }
  static __device__ double Random(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
};
// Integers wrap around, and unsigned arithmetic does; 32 bits hold the low bits of all that 8 and 16 need.
template <typename S>
struct Int {
  using Storage = S;
  using Compute = std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>;
  using Sum = int64_t;
  static __device__ Compute Load(S v) { return static_cast<Compute>(v); }
  static __device__ S Store(Compute v) { return static_cast<S>(v); }
  static __device__ S Random(uint64_t bits) { return static_cast<S>((bits >> 32) * 10 >> 32); }
};
struct Bool : Int<uint8_t> {
  static __device__ uint8_t Random(uint64_t bits) { return static_cast<uint8_t>(bits >> 63); }
};

template <typename E>
constexpr bool kIsFloat = std::is_floating_point_v<typename E::Compute>;

// An integer as an element: exact where it fits, else rounded or wrapped around.
template <typename E>
__device__ typename E::Storage FromInteger(int64_t v) {
  if constexpr (std::is_same_v<E, Bool>) {
    return v != 0;
  } else {
    return E::Store(static_cast<typename E::Compute>(v));
  }
}

// A number as an element: floats rounded, integers cut and saturated.
template <typename E>
__device__ typename E::Storage FromDouble(double v) {
  using S = typename E::Storage;
  if constexpr (std::is_same_v<E, Bool>) {
    return v != 0;
  } else if constexpr (kIsFloat<E>) {
    return E::Store(static_cast<typename E::Compute>(v));
  } else {
    // Powers of two, so exact; the conversion itself saturates to 64 bits and makes a NaN 0 or the least number.
    constexpr double kHigh = std::is_signed_v<S> ? (sizeof(S) == 8 ? 0x1p63 : sizeof(S) == 4 ? 0x1p31 : sizeof(S) == 2 ? 0x1p15 : 0x1p7) : 0x1p8;
    constexpr S kMax = std::is_signed_v<S> ? static_cast<S>((uint64_t{1} << (8 * sizeof(S) - 1)) - 1) : static_cast<S>(~S{0});
    if (v != v) return 0;
    if (v >= kHigh - (sizeof(S) == 8 ? 0 : 1)) return kMax;
    if (v <= (std::is_signed_v<S> ? -kHigh : 0.0)) return std::is_signed_v<S> ? static_cast<S>(-kMax - 1) : S{0};
    return static_cast<S>(static_cast<int64_t>(v));
  }
}

// Calls f(element) for a dtype's number; f is a generic lambda that returns cudaError_t.
template <typename F>
cudaError_t ForFloat(int dtype, F&& f) {
  switch (dtype) {
    case kDeviceF16: return f(F16{});
    case kDeviceBF16: return f(BF16{});
    case kDeviceF32: return f(F32{});
    case kDeviceF64: return f(F64{});
    default: return cudaErrorInvalidValue;
  }
}
template <typename F>
cudaError_t ForNumber(int dtype, F&& f) {
  switch (dtype) {
    case kDeviceI8: return f(Int<int8_t>{});
    case kDeviceU8: return f(Int<uint8_t>{});
    case kDeviceI16: return f(Int<int16_t>{});
    case kDeviceI32: return f(Int<int32_t>{});
    case kDeviceI64: return f(Int<int64_t>{});
    default: return ForFloat(dtype, f);
  }
}
// For code in which the sign makes no difference: half as many kernels.
template <typename F>
cudaError_t ForWrapping(int dtype, F&& f) {
  switch (dtype) {
    case kDeviceI8:
    case kDeviceU8: return f(Int<uint8_t>{});
    case kDeviceI16: return f(Int<uint16_t>{});
    case kDeviceI32: return f(Int<uint32_t>{});
    case kDeviceI64: return f(Int<uint64_t>{});
    default: return ForFloat(dtype, f);
  }
}

}  // namespace weft::gpu
