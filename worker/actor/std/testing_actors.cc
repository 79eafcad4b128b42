// std.Delay, std.Fail: for tests, demonstrations and what-if runs.

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/fill.h"
#include "worker/actor/std/made_spec.h"
#include "worker/actor/std/method_table.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

constexpr StdMethod kRun = {"run", 0, -1, 1, SIZE_MAX, nullptr};

// A copy of the first argument, or without one a tensor filled with the execution's number.
absl::Status PassOn(CallContext& ctx, const std::vector<Tensor>& args, MadeSpec* made, std::vector<Tensor>* outs) {
  if (args.empty()) {
    WEFT_RETURN_IF_ERROR(made->Use(ctx.config(), v1::F32, "[1]"));
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, made->dtype(), made->dims()));
    FillTensor(Fill{Fill::kExecution, 0}, 0, ctx.execution(), outs->at(0));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), args[0].dims()));
  if (args[0].bytes() > 0) std::memcpy(outs->at(0).data(), args[0].data(), args[0].bytes());
  return absl::OkStatus();
}

class DelayActor : public Actor {
 public:
  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Delay", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override {
    return args.empty() || args[0].bytes() <= kInlineBytes;
  }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    const double s = ctx.config().duration_s();
    if (!(s >= 0 && s <= 3600)) return absl::InvalidArgumentError(absl::StrCat("config.duration_s ", s, " is not within 0 to 3600 seconds"));
    ctx.Hold(FromSeconds(s));
    return PassOn(ctx, args, &made_, outs);
  }

 private:
  MadeSpec made_;
};

class FailActor : public Actor {
 public:
  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Fail", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override {
    return args.empty() || args[0].bytes() <= kInlineBytes;
  }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    const auto& on = ctx.config().fail_on();
    if (on.empty() || std::find(on.begin(), on.end(), ctx.execution()) != on.end()) {
      const std::string& message = ctx.config().message();
      return absl::InternalError(message.empty() ? "std.Fail fails as it was told to" : message);
    }
    return PassOn(ctx, args, &made_, outs);
  }

 private:
  MadeSpec made_;
};

}  // namespace

void RegisterTestingActors(ActorRegistry* registry) {
  registry->Register("std.Delay", [](const v1::Config&, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<DelayActor>();
  });
  registry->Register("std.Fail", [](const v1::Config&, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<FailActor>();
  });
}

}  // namespace weft
