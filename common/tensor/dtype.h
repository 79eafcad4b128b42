#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "weft/v1/tensor.pb.h"

namespace weft {

using DType = v1::DType;

// Bytes of one element; 0 for DTYPE_UNSPECIFIED and numbers that are no dtype.
size_t SizeOf(DType dtype);

// "F16"; "DTYPE(77)" for numbers that are no dtype.
std::string DTypeName(DType dtype);

// Takes "F16" or "f16". InvalidArgument lists the names.
absl::StatusOr<DType> ParseDType(const std::string& name);

bool IsFloat(DType dtype);

// IEEE half and bfloat16, round to nearest even.
float HalfToFloat(uint16_t h);
uint16_t FloatToHalf(float f);
float BFloat16ToFloat(uint16_t b);
uint16_t FloatToBFloat16(float f);

}  // namespace weft
