#include "common/tensor/dtype.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft {
namespace {

float FromBits(uint32_t b) {
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}

// Nearest half by search over all of them, ties to the even one.
uint16_t NearestHalf(float f) {
  double best = std::numeric_limits<double>::infinity();
  uint16_t at = 0;
  for (int h = 0; h <= 0x7c00; ++h) {
    // Infinity stands where the next half would be.
    const double v = h == 0x7c00 ? 65536.0 : HalfToFloat(static_cast<uint16_t>(h));
    const double d = std::fabs(v - std::fabs(static_cast<double>(f)));
    if (d < best || (d == best && h % 2 == 0)) {
      best = d;
      at = static_cast<uint16_t>(h);
    }
  }
  return at | (std::signbit(f) ? 0x8000 : 0);
}

TEST_CASE("dtype: sizes and names agree for all, and nothing else is one") {
  const DType all[] = {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL};
  const size_t sizes[] = {2, 2, 4, 8, 1, 1, 2, 4, 8, 1};
  for (int i = 0; i < 10; ++i) {
    CHECK(SizeOf(all[i]) == sizes[i]);
    CHECK(*ParseDType(DTypeName(all[i])) == all[i]);
  }
  CHECK(*ParseDType("bf16") == v1::BF16);
  CHECK(SizeOf(v1::DTYPE_UNSPECIFIED) == 0);
  CHECK(SizeOf(static_cast<DType>(77)) == 0);
  CHECK(DTypeName(static_cast<DType>(77)) == "DTYPE(77)");
  for (const char* t : {"", "F8", "DTYPE_UNSPECIFIED", "float32"}) CHECK_FALSE(ParseDType(t).ok());
  CHECK(IsFloat(v1::BF16));
  CHECK_FALSE(IsFloat(v1::BOOL));
}

TEST_CASE("half: every value survives the way to float and back") {
  for (int h = 0; h < 0x10000; ++h) {
    const uint16_t bits = static_cast<uint16_t>(h);
    const float f = HalfToFloat(bits);
    if (std::isnan(f)) {
      CHECK(std::isnan(HalfToFloat(FloatToHalf(f))));
    } else if (FloatToHalf(f) != bits) {
      FAIL("half " << h << " became " << FloatToHalf(f));
    }
  }
  CHECK(HalfToFloat(0x3c00) == 1.0f);
  CHECK(HalfToFloat(0x7bff) == 65504.0f);
  CHECK(HalfToFloat(0x0001) == std::ldexp(1.0f, -24));
}

TEST_CASE("half: rounds to nearest, ties to even, at every edge") {
  for (const float f : {1.0f + std::ldexp(1.0f, -11), 1.0f + std::ldexp(3.0f, -11), 65519.996f, 65520.0f, 1e9f, 6.1035156e-05f,
                        6.1e-05f, std::ldexp(1.0f, -25), std::ldexp(1.5f, -25), std::ldexp(1.5f, -24), 3.14159274f, 0.1f, 1e-30f}) {
    INFO(f);
    CHECK(FloatToHalf(f) == NearestHalf(f));
    CHECK(FloatToHalf(-f) == NearestHalf(-f));
  }
  CHECK(FloatToHalf(std::numeric_limits<float>::infinity()) == 0x7c00);
  CHECK(FloatToHalf(-0.0f) == 0x8000);
}

TEST_CASE("bfloat16: every value survives, ties go to even, NaN stays NaN") {
  for (int b = 0; b < 0x10000; ++b) {
    const float f = BFloat16ToFloat(static_cast<uint16_t>(b));
    if (std::isnan(f)) {
      if (!std::isnan(BFloat16ToFloat(FloatToBFloat16(f)))) FAIL(b);
    } else if (FloatToBFloat16(f) != b) {
      FAIL(b);
    }
  }
  CHECK(FloatToBFloat16(FromBits(0x3f808000)) == 0x3f80);
  CHECK(FloatToBFloat16(FromBits(0x3f818000)) == 0x3f82);
  CHECK(FloatToBFloat16(FromBits(0x3f808001)) == 0x3f81);
  CHECK(FloatToBFloat16(FromBits(0x7f7fffff)) == 0x7f80);
  CHECK(std::isnan(BFloat16ToFloat(FloatToBFloat16(FromBits(0x7f800001)))));
}

}  // namespace
}  // namespace weft
