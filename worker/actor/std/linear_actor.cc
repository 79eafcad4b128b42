#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/linear.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/method_table.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

class LinearActor : public Actor {
 public:
  LinearActor(LinearParameters parameters, Activation activation) : parameters_(std::move(parameters)), activation_(activation) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Linear", {kForward}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override {
    return TotalBytes(args) + parameters_.weights.bytes() <= kInlineMatrixBytes;
  }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kForward, args.size(), outs->size()));
    const Tensor& x = args[0];
    const Dims& w = parameters_.weights.dims();
    const DType dtype = parameters_.weights.dtype();
    WEFT_RETURN_IF_ERROR(CheckLinear(x, dtype, w[1]));
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, dtype, {x.dims()[0], w[0]}));
    return LinearForward(x, parameters_, activation_, outs->at(0));
  }

 private:
  static constexpr StdMethod kForward = {"forward", 1, 1, 1, kInlineMatrixBytes, nullptr};

  const LinearParameters parameters_;
  const Activation activation_;
};

}  // namespace

void RegisterLinearActor(ActorRegistry* registry) {
  registry->Register("std.Linear", [](const v1::Config& config, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(config.activation()));
    const DType dtype = config.dtype() == v1::DTYPE_UNSPECIFIED ? v1::F32 : config.dtype();
    if (dtype == v1::F16 || dtype == v1::BF16) {
      return absl::UnimplementedError(absl::StrCat("layers of ", DTypeName(dtype), " are not made on the CPU; use a worker with --device cuda, or F32"));
    }
    WEFT_ASSIGN_OR_RETURN(LinearParameters p, LinearWeights(config.in_features(), config.out_features(), config.seed(), dtype));
    return std::make_unique<LinearActor>(std::move(p), activation);
  });
}

}  // namespace weft
