#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/tensor/dtype.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Whether values of `dtype` can be combined so: BOOL only by MIN (and) and MAX (or). InvalidArgument names both.
absl::Status CheckCombine(DType dtype, v1::ReduceOp op);

// out[i] = inputs[0][i] op inputs[1][i] op ... for i < n, strictly in that order, so that the result depends on nothing else. F16
// and BF16 are combined in float and rounded once; integers wrap around; a NaN is the result of MIN and MAX. `out` may be one of
// the inputs. At least one input; all are host memory of n elements. Errors as CheckCombine.
absl::Status Combine(DType dtype, v1::ReduceOp op, const std::vector<const void*>& inputs, void* out, int64_t n);

}  // namespace weft
