#include "worker/actor/std/made_spec.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"

namespace weft {

absl::Status MadeSpec::Use(const v1::Config& config, DType dtype, const std::string& shape) {
  const std::string& text = config.shape().empty() ? shape : config.shape();
  const DType d = config.dtype() == v1::DTYPE_UNSPECIFIED ? dtype : config.dtype();
  if (d == dtype_ && !text_.empty() && text == text_) return absl::OkStatus();
  if (d == v1::DTYPE_UNSPECIFIED) return absl::InvalidArgumentError("config.dtype is missing; set it, such as F32");
  if (text.empty()) return absl::InvalidArgumentError("config.shape is missing; set it, such as \"[4, 8]\"");
  v1::TensorSpec proto;
  proto.set_dtype(d);
  proto.set_shape(text);
  const absl::StatusOr<Spec> spec = SpecFromProto(proto);
  if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("config: ", std::string(spec.status().message())));
  if (!spec->shape.IsStatic()) {
    return absl::InvalidArgumentError(absl::StrCat("config.shape ", text, " must have fixed sizes only"));
  }
  dtype_ = d;
  dims_ = spec->shape.MaxDims();
  text_ = text;
  return absl::OkStatus();
}

size_t MadeSpec::bytes() const {
  size_t n = SizeOf(dtype_);
  for (const int64_t d : dims_) n *= static_cast<size_t>(d);  // bounded by SpecFromProto
  return n;
}

}  // namespace weft
