// std.Mlp on the CPU: F32 and F64, products by OpenBLAS.

#include <unistd.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"
#include "common/tensor/blas.h"
#include "common/tensor/linear.h"
#include "worker/actor/std/mlp_actor.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

template <typename T>
class CpuMath : public MlpMath {
 public:
  CpuMath(DType dtype, Activation activation) : dtype_(dtype), activation_(activation) {}

  absl::StatusOr<Tensor> Allocate(int64_t elements) override {
    // The kernel promises more memory than there is and ends the process that believes it.
    const uint64_t host = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t bytes = static_cast<uint64_t>(elements) * sizeof(T);
    if (bytes > host) {
      return absl::ResourceExhaustedError(absl::StrCat("gradients or activations of ", FormatBytes(bytes),
                                                       " (config.widths, config.rows, config.slots) are ",
                                                       "larger than this host's memory, ", FormatBytes(host)));
    }
    return Tensor::OnHost(dtype_, {elements});
  }
  absl::StatusOr<Tensor> Upload(const Tensor& host) override { return host; }

  absl::Status Linear(const void* x, const void* w, const void* bias, bool activate, void* y, int64_t rows, int64_t in, int64_t out,
                      Stream*) override {
    const LinearParameters p{View(w, {out, in}), View(bias, {out})};
    return LinearForward(View(x, {rows, in}), p, activate ? activation_ : Activation::kNone, View(y, {rows, out}));
  }
  absl::Status Gemm(const void* a, bool a_transposed, const void* b, bool b_transposed, void* c, int64_t m, int64_t n, int64_t k,
                    bool accumulate, Stream*) override {
    return weft::Gemm(As(a), a_transposed, As(b), b_transposed, static_cast<T*>(c), m, n, k, accumulate);
  }
  absl::Status ActivationGradient(const void* y, const void* dy, void* dx, int64_t n, Stream*) override {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(dx)[i] = weft::ActivationGradient(activation_, As(y)[i], As(dy)[i]);
    return absl::OkStatus();
  }
  absl::Status ColumnSums(const void* x, int64_t rows, int64_t columns, void* out, Stream*) override {
    sums_.assign(static_cast<size_t>(columns), 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) sums_[c] += As(x)[r * columns + c];
    }
    for (int64_t c = 0; c < columns; ++c) static_cast<T*>(out)[c] = static_cast<T>(sums_[c]);
    return absl::OkStatus();
  }
  absl::Status AddTo(const void* x, void* to, int64_t n, Stream*) override {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(to)[i] += As(x)[i];
    return absl::OkStatus();
  }
  absl::Status Scale(const void* x, double factor, void* out, int64_t n, Stream*) override {
    const T f = static_cast<T>(factor);
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = As(x)[i] * f;
    return absl::OkStatus();
  }
  absl::Status Copy(const void* from, void* to, int64_t n, Stream*) override {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return absl::OkStatus();
  }
  absl::Status Put(double number, void* to, Stream*) override {
    *static_cast<T*>(to) = static_cast<T>(number);
    return absl::OkStatus();
  }

 private:
  static const T* As(const void* p) { return static_cast<const T*>(p); }
  Tensor View(const void* p, Dims dims) const { return Tensor(dtype_, std::move(dims), const_cast<void*>(p), nullptr); }

  const DType dtype_;
  const Activation activation_;
  std::vector<double> sums_;
};

}  // namespace

void RegisterMlpActor(ActorRegistry* registry) {
  registry->Register("std.Mlp", [](const v1::Config& config, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(config.activation()));
    const DType dtype = config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
    if (dtype == v1::F16 || dtype == v1::BF16) {
      return absl::UnimplementedError(
          absl::StrCat("layers of ", DTypeName(dtype), " are not trained on the CPU; use a worker with --device cuda, or F32"));
    }
    std::unique_ptr<MlpMath> math;
    if (dtype == v1::F64) {
      math = std::make_unique<CpuMath<double>>(dtype, activation);
    } else {
      math = std::make_unique<CpuMath<float>>(dtype, activation);
    }
    return MakeMlpActor(config, std::move(math));
  });
}

}  // namespace weft
