#include "common/comm/nccl/nccl_types.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<NcclType> NcclArithmeticType(DType dtype) {
  switch (dtype) {
    case v1::F16: return kNcclFloat16;
    case v1::BF16: return kNcclBfloat16;
    case v1::F32: return kNcclFloat32;
    case v1::F64: return kNcclFloat64;
    case v1::I8: return kNcclInt8;
    case v1::U8: return kNcclUint8;
    case v1::I32: return kNcclInt32;
    case v1::I64: return kNcclInt64;
    case v1::BOOL: return kNcclUint8;
    default:
      return absl::InvalidArgumentError(absl::StrCat("NCCL cannot combine ", DTypeName(dtype),
                                                     " values: give them as I8 or I32, or place the members on CPU workers"));
  }
}

absl::StatusOr<NcclOp> NcclReduction(v1::ReduceOp op) {
  switch (op) {
    case v1::SUM: return kNcclSum;
    case v1::PROD: return kNcclProd;
    case v1::MIN: return kNcclMin;
    case v1::MAX: return kNcclMax;
    default: return absl::InvalidArgumentError(absl::StrCat("reduction ", static_cast<int>(op), " is unknown"));
  }
}

}  // namespace weft
