#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace weft {

// A dense row-major array somewhere in memory, with a share in whatever keeps that memory alive. Copying a Tensor copies the
// reference, not the elements. Not synchronised: whether the elements may be read yet is the Value's business.
class Tensor {
 public:
  Tensor() = default;
  // `data` is valid while `owner` lives; it holds at least NumElements(dims) * SizeOf(dtype) bytes.
  Tensor(DType dtype, Dims dims, void* data, std::shared_ptr<void> owner);

  // Host memory, 64-byte aligned, contents undefined. InvalidArgument for bad dims, ResourceExhausted when there is no memory.
  static absl::StatusOr<Tensor> OnHost(DType dtype, const Dims& dims);

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t elements() const { return elements_; }
  size_t bytes() const { return static_cast<size_t>(elements_) * SizeOf(dtype_); }
  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  const std::shared_ptr<void>& owner() const { return owner_; }
  bool defined() const { return dtype_ != v1::DTYPE_UNSPECIFIED; }
  // "F32[2, 3]".
  std::string ToString() const;

 private:
  DType dtype_ = v1::DTYPE_UNSPECIFIED;
  Dims dims_;
  int64_t elements_ = 0;
  void* data_ = nullptr;
  std::shared_ptr<void> owner_;
};

// True when dtype, dims and all bytes are equal (so NaN equals the same NaN, and 0 differs from -0). Both on the host.
bool BitEqual(const Tensor& a, const Tensor& b);

// One element as a double, at flat index i; for printing and tests. Host tensors only.
double ElementAsDouble(const Tensor& t, int64_t i);
// Converts and stores; integers truncate, out of range is saturated.
void SetElementFromDouble(const Tensor& t, int64_t i, double v);

}  // namespace weft
