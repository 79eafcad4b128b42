// std.Source, std.Constant.

#include <set>

#include "common/base/status_macros.h"
#include "worker/actor/std/made_spec.h"
#include "worker/actor/std/method_table.h"
#include "worker/actor/std/source_classes.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

class SourceActor : public Actor {
 public:
  SourceActor(std::string cls, bool constant, size_t bytes, FillFn fill_output)
      : cls_(std::move(cls)), constant_(constant), bytes_(bytes), fill_output_(std::move(fill_output)) {
    if (!constant) fill_.kind = Fill::kExecution;
  }

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod(cls_, {kMake}, name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return bytes_ <= kInlineBytes; }

  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(kMake, args.size(), outs->size()));
    WEFT_RETURN_IF_ERROR(made_.Use(ctx.config(), v1::DTYPE_UNSPECIFIED, ""));
    const std::string& text = ctx.config().fill();
    if (text != fill_text_) {
      WEFT_ASSIGN_OR_RETURN(fill_, Fill::Parse(!text.empty() ? text : constant_ ? "zeros" : "execution"));
      fill_text_ = text;
    }
    if (constant_ && fill_.kind == Fill::kExecution) {
      return absl::InvalidArgumentError("config.fill \"execution\" changes with every execution; use std.Source");
    }
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, made_.dtype(), made_.dims()));
    if (constant_ && ctx.outputs_persist()) {
      // Made once for each of the task's buffers: a node's config never changes, and its buffers are its own.
      if (!made_in_.insert(outs->at(0).data()).second) {
        ctx.LaunchedNothing();
        return absl::OkStatus();
      }
    }
    // A constant's random numbers are those of execution 0.
    return fill_output_(ctx, fill_, ctx.config().seed(), constant_ ? ExecutionNumber{nullptr, 0} : ctx.execution_number(), outs->at(0));
  }

 private:
  static constexpr StdMethod kMake = {"make", 0, 0, 1, kInlineBytes, nullptr};

  const std::string cls_;
  const bool constant_;
  const size_t bytes_;  // of what the actor's own config makes; a node may override it
  const FillFn fill_output_;
  MadeSpec made_;
  std::string fill_text_;  // what fill_ was parsed from
  Fill fill_;
  std::set<const void*> made_in_;  // buffers that hold the constant
};

}  // namespace

void RegisterSourceClasses(ActorRegistry* registry, const std::function<absl::StatusOr<FillFn>(Device* device)>& for_device) {
  for (const bool constant : {false, true}) {
    const std::string cls = constant ? "std.Constant" : "std.Source";
    registry->Register(cls, [cls, constant, for_device](const v1::Config& config, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
      if (!config.fill().empty()) WEFT_RETURN_IF_ERROR(Fill::Parse(config.fill()).status());
      // dtype and shape may stand at the nodes instead.
      size_t bytes = SIZE_MAX;
      if (config.dtype() != v1::DTYPE_UNSPECIFIED && !config.shape().empty()) {
        MadeSpec made;
        WEFT_RETURN_IF_ERROR(made.Use(config, v1::DTYPE_UNSPECIFIED, ""));
        bytes = made.bytes();
      }
      WEFT_ASSIGN_OR_RETURN(FillFn fill_output, for_device(device));
      return std::make_unique<SourceActor>(cls, constant, bytes, std::move(fill_output));
    });
  }
}

void RegisterSourceActors(ActorRegistry* registry) {
  RegisterSourceClasses(registry, [](Device*) -> absl::StatusOr<FillFn> {
    return FillFn([](CallContext&, const Fill& fill, uint64_t seed, ExecutionNumber execution, const Tensor& out) {
      FillTensor(fill, seed, execution.value, out);
      return absl::OkStatus();
    });
  });
}

}  // namespace weft
