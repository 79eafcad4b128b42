#pragma once

#include "absl/status/statusor.h"
#include "common/device/cuda/api/nccl_api.h"
#include "common/tensor/dtype.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// How NCCL combines elements of `dtype`. BOOL, whose values are 0 and 1, goes as an unsigned byte. InvalidArgument names a dtype that NCCL
// has no arithmetic for (I16) and what to do.
absl::StatusOr<NcclType> NcclArithmeticType(DType dtype);
// InvalidArgument for a number that is no reduction.
absl::StatusOr<NcclOp> NcclReduction(v1::ReduceOp op);

}  // namespace weft
