#pragma once

// What std.Mlp computes with, on any device: raw pointers into tensors of one dtype that was fixed when this was made, work put on `stream`
// (the call's) in order. On the CPU every call is done when it returns.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/tensor.h"

namespace weft {

class MlpMath {
 public:
  virtual ~MlpMath() = default;

  // Memory of the device, for as long as the tensor lives. Blocks; not while a call is under way. Contents are undefined, or those of
  // `host`.
  virtual absl::StatusOr<Tensor> Allocate(int64_t elements) = 0;
  virtual absl::StatusOr<Tensor> Upload(const Tensor& host) = 0;

  // y[rows, out] = f(x[rows, in] * w[out, in]^T + bias[out]), f being the activation if `activate`.
  virtual absl::Status Linear(const void* x, const void* w, const void* bias, bool activate, void* y, int64_t rows, int64_t in, int64_t out,
                              Stream* stream) = 0;
  // c[m, n] = a[m, k] * b[k, n], or of factors that lie transposed; plus what c holds when `accumulate`.
  virtual absl::Status Gemm(const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n, int64_t k,
                            bool accumulate, Stream* stream) = 0;
  // dx = dy * f'(x) by y = f(x); dx may be y or dy.
  virtual absl::Status ActivationGradient(const void* y, const void* dy, void* dx, int64_t n, Stream* stream) = 0;
  // out[columns]: sums over the rows, in double.
  virtual absl::Status ColumnSums(const void* x, int64_t rows, int64_t columns, void* out, Stream* stream) = 0;
  // to += x.
  virtual absl::Status AddTo(const void* x, void* to, int64_t n, Stream* stream) = 0;
  // out = x * factor; out may be x.
  virtual absl::Status Scale(const void* x, double factor, void* out, int64_t n, Stream* stream) = 0;
  virtual absl::Status Copy(const void* from, void* to, int64_t n, Stream* stream) = 0;
  // *to = number.
  virtual absl::Status Put(double number, void* to, Stream* stream) = 0;
};

}  // namespace weft
