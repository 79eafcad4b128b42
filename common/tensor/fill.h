#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"

namespace weft {

// What a tensor is filled with, from config.fill.
struct Fill {
  enum Kind { kExecution, kNumber, kIota, kRandom };
  Kind kind = kNumber;
  double number = 0;

  // "execution", "zeros", "ones", "iota", "random" or a finite number. InvalidArgument lists them.
  static absl::StatusOr<Fill> Parse(const std::string& text);
};

// Fills a host tensor. kExecution and kIota wrap around in integer dtypes (BOOL: not 0). kRandom draws element i from
// CounterBits(seed, execution, i) (random.h): floats uniform in [0, 1) from as many top bits as the dtype's fraction holds exactly
// (F64 53, F32 24, F16 11, BF16 8), integers 0 to 9 as (top 32 bits * 10) >> 32, BOOL the top bit.
void FillTensor(const Fill& fill, uint64_t seed, int64_t execution, const Tensor& out);

}  // namespace weft
