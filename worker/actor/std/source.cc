// std.Source, std.Constant.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/fill.h"
#include "worker/actor/std/made_spec.h"
#include "worker/actor/std/method_table.h"
#include "worker/actor/std/std_actors.h"

namespace weft {
namespace {

class SourceActor : public Actor {
 public:
  SourceActor(std::string cls, bool constant, size_t bytes) : cls_(std::move(cls)), constant_(constant), bytes_(bytes) {
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
    // A constant's random numbers are those of execution 0.
    FillTensor(fill_, ctx.config().seed(), constant_ ? 0 : ctx.execution(), outs->at(0));
    return absl::OkStatus();
  }

 private:
  static constexpr StdMethod kMake = {"make", 0, 0, 1, kInlineBytes, nullptr};

  const std::string cls_;
  const bool constant_;
  const size_t bytes_;  // of what the actor's own config makes; a node may override it
  MadeSpec made_;
  std::string fill_text_;  // what fill_ was parsed from
  Fill fill_;
};

void RegisterSource(ActorRegistry* registry, const std::string& cls, bool constant) {
  registry->Register(cls, [cls, constant](const v1::Config& config, Device*) -> absl::StatusOr<std::unique_ptr<Actor>> {
    if (!config.fill().empty()) WEFT_RETURN_IF_ERROR(Fill::Parse(config.fill()).status());
    // dtype and shape may stand at the nodes instead.
    size_t bytes = SIZE_MAX;
    if (config.dtype() != v1::DTYPE_UNSPECIFIED && !config.shape().empty()) {
      MadeSpec made;
      WEFT_RETURN_IF_ERROR(made.Use(config, v1::DTYPE_UNSPECIFIED, ""));
      bytes = made.bytes();
    }
    return std::make_unique<SourceActor>(cls, constant, bytes);
  });
}

}  // namespace

void RegisterSourceActors(ActorRegistry* registry) {
  RegisterSource(registry, "std.Source", false);
  RegisterSource(registry, "std.Constant", true);
}

}  // namespace weft
