// std.Delay, std.Fail, std.Check.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/std_messages.h"
#include "worker/actor/cuda/cuda_actors.h"
#include "worker/actor/cuda/cuda_call.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/made_spec.h"

namespace weft {
namespace {

constexpr StdMethod kRun = {"run", 0, -1, 1, 0, nullptr};

// Executions that a captured call of std.Fail can look for.
constexpr int kMaxFailOn = 64;

// A copy of the first argument, or without one a tensor filled with the execution's number.
absl::Status PassOn(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, MadeSpec* made, std::vector<Tensor>* outs) {
  if (!args.empty()) {
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), args[0].dims()));
    return CopyOnDevice(device, ctx, args[0], outs->at(0));
  }
  WEFT_RETURN_IF_ERROR(made->Use(ctx.config(), v1::F32, "[1]"));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, made->dtype(), made->dims()));
  const Tensor& out = outs->at(0);
  return device.Check(device.kernels()->Fill(DeviceFill::kExecution, 0, 0, ctx.execution_number(), out.dtype(), out.data(), out.elements(),
                                             ctx.stream()->native()),
                      "launching fill");
}

class CudaDelayActor : public Actor {
 public:
  explicit CudaDelayActor(CudaDevice* device) : device_(device) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Delay", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    WEFT_ASSIGN_OR_RETURN(const Nanos duration, CheckDuration(ctx.config()));
    int blocks = 1;
    if (ctx.config().has_gpu_part()) {
      const double part = ctx.config().gpu_part();
      if (!(part >= 0 && part <= 1)) return absl::InvalidArgumentError(absl::StrCat("config.gpu_part ", part, " is not within 0 to 1"));
      blocks = std::max(1, static_cast<int>(std::lround(part * device_->info().sm_count)));
    }
    WEFT_RETURN_IF_ERROR(device_->Check(device_->kernels()->Delay(duration, blocks, ctx.stream()->native()), "launching a delay"));
    return PassOn(*device_, ctx, args, &made_, outs);
  }

 private:
  CudaDevice* const device_;
  MadeSpec made_;
};

class CudaFailActor : public Actor {
 public:
  CudaFailActor(CudaDevice* device, std::shared_ptr<void> list) : device_(device), list_(std::move(list)) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Fail", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    const auto& on = ctx.config().fail_on();
    const auto now = [&] { return on.empty() || std::find(on.begin(), on.end(), ctx.execution()) != on.end(); };
    if (!ctx.config().on_device()) {
      if (now()) {
        const std::string& message = ctx.config().message();
        return absl::InternalError(message.empty() ? kFailMessage : message);
      }
      return PassOn(*device_, ctx, args, &made_, outs);
    }
    WEFT_RETURN_IF_ERROR(PassOn(*device_, ctx, args, &made_, outs));
    WEFT_ASSIGN_OR_RETURN(DeviceStatus* const status, StatusOf(ctx));
    const ExecutionNumber execution = ctx.execution_number();
    // A captured call runs for many executions, and its kernel must look for itself.
    if (execution.counter != nullptr) return LookFor(ctx, execution, status);
    if (!now()) return absl::OkStatus();
    return Launch(ctx, 0, execution, status);
  }

 private:
  absl::Status Launch(CallContext& ctx, int count, ExecutionNumber execution, DeviceStatus* status) {
    return device_->Check(device_->kernels()->FailOn(static_cast<const int64_t*>(list_.get()), count, CodeAndNode(ctx, absl::StatusCode::kInternal),
                                                     execution, status, ctx.stream()->native()),
                          "launching a failure");
  }

  // The list is written anew by each call, in the stream's order: other nodes of this actor may have another.
  absl::Status LookFor(CallContext& ctx, ExecutionNumber execution, DeviceStatus* status) {
    const auto& on = ctx.config().fail_on();
    if (on.size() > kMaxFailOn) {
      return absl::InvalidArgumentError(absl::StrCat("config.fail_on holds ", on.size(), " executions, and a call within launch: graph takes at most ",
                                                     kMaxFailOn, " with on_device; name fewer"));
    }
    for (int i = 0; i < on.size(); ++i) {
      // Exact up to 2^53 executions.
      WEFT_RETURN_IF_ERROR(device_->Check(device_->kernels()->Fill(DeviceFill::kNumber, static_cast<double>(on[i]), 0, {nullptr, 0}, v1::I64,
                                                                   static_cast<int64_t*>(list_.get()) + i, 1, ctx.stream()->native()),
                                          "launching fill"));
    }
    return Launch(ctx, on.size(), execution, status);
  }

  CudaDevice* const device_;
  const std::shared_ptr<void> list_;  // kMaxFailOn numbers on the device
  MadeSpec made_;
};

absl::Status Finite(CudaDevice& device, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_RETURN_IF_ERROR(CheckFinite(x));
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), x.dims()));
  WEFT_ASSIGN_OR_RETURN(DeviceStatus* const status, StatusOf(ctx));
  WEFT_RETURN_IF_ERROR(CopyOnDevice(device, ctx, x, outs->at(0)));
  return device.Check(device.kernels()->CheckFinite(x.dtype(), x.data(), x.elements(), CodeAndNode(ctx, absl::StatusCode::kInvalidArgument),
                                                    ctx.execution_number(), status, ctx.stream()->native()),
                      "launching check finite");
}

}  // namespace

void RegisterCudaTestingActors(ActorRegistry* registry) {
  registry->Register("std.Delay", [](const v1::Config&, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    cuda->BindThread();
    WEFT_RETURN_IF_ERROR(cuda->Check(cuda->kernels()->Calibrate(), "measuring how fast this GPU counts, for std.Delay"));
    return std::make_unique<CudaDelayActor>(cuda);
  });
  registry->Register("std.Fail", [](const v1::Config&, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    cuda->BindThread();
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> list, cuda->Allocate(kMaxFailOn * sizeof(int64_t)));
    return std::make_unique<CudaFailActor>(cuda, std::move(list));
  });
  registry->Register("std.Check", [](const v1::Config&, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(CudaDevice* const cuda, AsCuda(device));
    return std::make_unique<CudaTableActor>(cuda, "std.Check", std::vector<CudaMethod>{{{"finite", 1, 1, 1, 0, nullptr}, Finite}});
  });
}

}  // namespace weft
