#pragma once

// What calls of std methods demand of their arguments and config, on every device. A compiled plan keeps to it; one that was edited by hand, or
// whose values have shapes that are known only now, may not. Errors are InvalidArgument and name the argument or field.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/tensor/tensor.h"
#include "weft/v1/graph.pb.h"
#include "worker/actor/std/axis_view.h"

namespace weft {

// One numeric dtype and shape.
absl::Status CheckAdd(const std::vector<Tensor>& args);
absl::Status CheckScale(const v1::Config& config, const Tensor& x);

struct ReduceCall {
  enum How { kSum, kMean, kMax, kMin };
  How how;
  AxisView view;
  Dims dims;  // of the result
};
absl::StatusOr<ReduceCall> CheckReduce(const v1::Config& config, const Tensor& x);

struct SplitCall {
  AxisView view;
  Dims dims;  // of each part
};
absl::StatusOr<SplitCall> CheckSplit(const v1::Config& config, const Tensor& x, size_t parts);

struct ConcatCall {
  AxisView view;  // of the first argument
  int64_t axis;
  Dims dims;  // of the result
};
absl::StatusOr<ConcatCall> CheckConcat(const v1::Config& config, const std::vector<Tensor>& args);

absl::Status CheckProduct(const Tensor& a, const Tensor& b);
absl::Status CheckSquare(const Tensor& a);

absl::Status CheckFinite(const Tensor& x);
// Linear's x, for weights [out, in] of `dtype`.
absl::Status CheckLinear(const Tensor& x, DType dtype, int64_t in_features);

// config.duration_s.
absl::StatusOr<Nanos> CheckDuration(const v1::Config& config);

}  // namespace weft
