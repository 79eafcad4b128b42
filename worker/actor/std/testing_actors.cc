// std.Delay, std.Fail, std.Check: for tests, demonstrations and what-if runs.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/base/status_macros.h"
#include "common/classes/std_messages.h"
#include "common/tensor/arith.h"
#include "common/tensor/fill.h"
#include "worker/actor/std/checks.h"
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
  explicit DelayActor(size_t makes) : makes_(makes) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Delay", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override { return (args.empty() ? makes_ : args[0].bytes()) <= kInlineBytes; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    WEFT_ASSIGN_OR_RETURN(const Nanos duration, CheckDuration(ctx.config()));
    ctx.Hold(duration);
    return PassOn(ctx, args, &made_, outs);
  }

 private:
  const size_t makes_;
  MadeSpec made_;
};

class FailActor : public Actor {
 public:
  explicit FailActor(size_t makes) : makes_(makes) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Fail", {kRun}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override { return (args.empty() ? makes_ : args[0].bytes()) <= kInlineBytes; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kRun, args.size(), outs->size()));
    const auto& on = ctx.config().fail_on();
    if (on.empty() || std::find(on.begin(), on.end(), ctx.execution()) != on.end()) {
      const std::string& message = ctx.config().message();
      return absl::InternalError(message.empty() ? kFailMessage : message);
    }
    return PassOn(ctx, args, &made_, outs);
  }

 private:
  const size_t makes_;
  MadeSpec made_;
};

// Of what a call without arguments makes, as far as the actor's config says so; a node's own shape is known only to its calls.
size_t MadeBytes(const v1::Config& config) {
  MadeSpec made;
  return made.Use(config, v1::F32, "[1]").ok() ? made.bytes() : 0;
}

template <typename E>
bool AllFinite(const Tensor& x) {
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (!std::isfinite(E::Load(x.as<typename E::Storage>()[i]))) return false;
  }
  return true;
}

absl::Status Finite(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const Tensor& x = args[0];
  WEFT_RETURN_IF_ERROR(CheckFinite(x));
  bool finite = false;
  WEFT_RETURN_IF_ERROR(ForElementType(x.dtype(), [&](auto e) {
    if constexpr (std::is_floating_point_v<typename decltype(e)::Compute>) finite = AllFinite<decltype(e)>(x);
    return absl::OkStatus();
  }));
  if (!finite) return BadArgument(0, x, kNotFiniteMessage);
  WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, x.dtype(), x.dims()));
  if (x.bytes() > 0) std::memcpy(outs->at(0).data(), x.data(), x.bytes());
  return absl::OkStatus();
}

}  // namespace

void RegisterTestingActors(ActorRegistry* registry) {
  registry->Register("std.Delay", [](const v1::Config& config, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<DelayActor>(MadeBytes(config));
  });
  registry->Register("std.Fail", [](const v1::Config& config, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<FailActor>(MadeBytes(config));
  });
  registry->Register("std.Check", [](const v1::Config&, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    return std::make_unique<TableActor>("std.Check", std::vector<StdMethod>{{"finite", 1, 1, 1, kInlineBytes, Finite}});
  });
}

}  // namespace weft
