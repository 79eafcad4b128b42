// Matrix products, and the classes that gather many stateless methods: std.Gemm, std.Math.

#include "common/classes/std_signatures.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/infer.h"

namespace weft {
namespace {

// F16 and BF16 are for CUDA devices: a CPU worker gives an error value, as only the placement decides which device it
// is.
absl::Status CheckMatrix(const char* method, int index, const Spec& spec) {
  switch (spec.dtype) {
    case v1::F16:
    case v1::BF16:
    case v1::F32:
    case v1::F64:
    case v1::I32:
    case v1::I64: break;
    default:
      return BadArg(
          index, spec,
          absl::StrCat(method, " takes F32, F64, I32 or I64 on every device, and F16 or BF16 on CUDA devices"));
  }
  if (spec.shape.dims.size() != 2)
    return BadArg(index, spec, absl::StrCat(method, " takes matrices, of two dimensions"));
  return absl::OkStatus();
}

absl::StatusOr<Specs> InferMatmul(const v1::Config&, const Specs& args) {
  const Spec &a = args[0], &b = args[1];
  WEFT_RETURN_IF_ERROR(CheckMatrix("matmul", 0, a));
  WEFT_RETURN_IF_ERROR(CheckMatrix("matmul", 1, b));
  if (a.dtype != b.dtype) {
    return BadArg(1, b, absl::StrCat("matmul takes matrices of one dtype, and argument 0 is ", a.ToString()));
  }
  if (!Unify(a.shape.dims[1], b.shape.dims[0]).has_value()) {
    return BadArg(1, b, absl::StrCat("its rows must be as many as the columns of argument 0, which is ", a.ToString()));
  }
  Spec out{a.dtype, Shape{{a.shape.dims[0], b.shape.dims[1]}}};
  WEFT_RETURN_IF_ERROR(CheckSpecSize(out));
  return Specs{out};
}

absl::StatusOr<Specs> InferSquare(const v1::Config&, const Specs& args) {
  WEFT_RETURN_IF_ERROR(CheckMatrix("square", 0, args[0]));
  const std::optional<Dim> n = Unify(args[0].shape.dims[0], args[0].shape.dims[1]);
  if (!n.has_value())
    return BadArg(0, args[0], "square multiplies a matrix by itself, so rows and columns must be as many");
  return Specs{Spec{args[0].dtype, Shape{{*n, *n}}}};
}

}  // namespace

MethodSignature MatmulMethod() { return {"matmul", 2, 2, std::vector<std::string>{"precision"}, InferMatmul}; }
MethodSignature SquareMethod() { return {"square", 1, 1, std::vector<std::string>{"precision"}, InferSquare}; }

absl::Status CheckPrecision(const v1::Config& config) {
  const std::string& p = config.precision();
  if (p.empty() || p == "fp32" || p == "tf32") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("config.precision \"", p.substr(0, 40), "\" is not one of fp32, tf32"));
}

void AddMatrixClasses(ClassTable* table) {
  table->Add(
      {"std.Gemm",
       "Matrix products, and what usually stands around them.",
       {"scale", "reduce", "axis", "precision"},
       {},
       CheckMathConfig,
       {MatmulMethod(), SquareMethod(), AddMethod(), ScaleMethod(), IdentityMethod(), ReduceMethod(), PeekMethod()}});
  table->Add({"std.Math",
              "All of weft's methods that keep no state.",
              {"scale", "reduce", "axis", "parts", "precision"},
              {},
              CheckMathConfig,
              {IdentityMethod(), AddMethod(), ScaleMethod(), SquareMethod(), MatmulMethod(), ReduceMethod(),
               SplitMethod(), ConcatMethod(), PeekMethod()}});
}

}  // namespace weft
