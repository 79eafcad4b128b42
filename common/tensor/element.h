#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/tensor/tensor.h"

namespace weft {

// Checked stores into element `i` of a host tensor: numbers that the dtype cannot hold are InvalidArgument, where
// SetElementFromDouble saturates. Floats round to nearest; a finite number beyond the largest of the dtype is refused.
absl::Status StoreInt(const Tensor& t, int64_t i, int64_t v);
absl::Status StoreDouble(const Tensor& t, int64_t i, double v);
// A number in decimal, inf, -inf, infinity, nan (any case); true and false for BOOL. Whole numbers keep all 64 bits.
absl::Status StoreText(const Tensor& t, int64_t i, const std::string& text);

}  // namespace weft
