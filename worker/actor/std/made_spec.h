#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/tensor/tensor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// The dtype and static shape that a config asks for, parsed only when they change from call to call.
class MadeSpec {
 public:
  // `dtype` and `shape` stand in for fields that are unset. InvalidArgument names the field.
  absl::Status Use(const v1::Config& config, DType dtype, const std::string& shape);

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  size_t bytes() const;

 private:
  std::string text_;
  DType dtype_ = v1::DTYPE_UNSPECIFIED;
  Dims dims_;
};

}  // namespace weft
