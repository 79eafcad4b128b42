#include "common/tensor/dtype.h"

#include <cmath>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case v1::I8:
    case v1::U8:
    case v1::BOOL:
      return 1;
    case v1::F16:
    case v1::BF16:
    case v1::I16:
      return 2;
    case v1::F32:
    case v1::I32:
      return 4;
    case v1::F64:
    case v1::I64:
      return 8;
    default:
      return 0;
  }
}

std::string DTypeName(DType dtype) {
  if (SizeOf(dtype) == 0) return absl::StrCat("DTYPE(", static_cast<int>(dtype), ")");
  return v1::DType_Name(dtype);
}

absl::StatusOr<DType> ParseDType(const std::string& name) {
  DType d;
  if (v1::DType_Parse(absl::AsciiStrToUpper(name), &d) && SizeOf(d) != 0) return d;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype \"", name, "\" is not one of F16, BF16, F32, F64, I8, U8, I16, I32, I64, BOOL"));
}

bool IsFloat(DType d) { return d == v1::F16 || d == v1::BF16 || d == v1::F32 || d == v1::F64; }

float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const int exp = (h >> 10) & 0x1f;
  const uint32_t mant = h & 0x3ff;
  float v;
  if (exp == 0) {
    v = std::ldexp(static_cast<float>(mant), -24);
  } else if (exp == 31) {
    uint32_t bits = 0x7f800000 | mant << 13;
    std::memcpy(&v, &bits, 4);
  } else {
    uint32_t bits = static_cast<uint32_t>(exp + 112) << 23 | mant << 13;
    std::memcpy(&v, &bits, 4);
  }
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  bits |= sign;
  std::memcpy(&v, &bits, 4);
  return v;
}

uint16_t FloatToHalf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;   // NaN
  if (bits >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (bits < 0x38800000) {                       // subnormal or zero: let the FPU round at 2^-24
    float a;
    std::memcpy(&a, &bits, 4);
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24)));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}

float BFloat16ToFloat(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

uint16_t FloatToBFloat16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace weft
