#include "worker/actor/std/mlp_actor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/mlp_stage.h"
#include "common/tensor/linear.h"
#include "worker/actor/std/method_table.h"

namespace weft {
namespace {

enum MlpMethod { kForward, kInputGrad, kWeightGrad, kBackward, kStep, kWeights };

const std::vector<StdMethod>& Methods() {
  static const auto* const methods = new std::vector<StdMethod>{
      {"forward", 1, 2, 1, 0, nullptr}, {"input_grad", 1, 1, 1, 0, nullptr}, {"weight_grad", 1, 1, 1, 0, nullptr},
      {"backward", 1, 1, 1, 0, nullptr}, {"step", 1, -1, 1, 0, nullptr},     {"weights", 0, 1, 1, 0, nullptr}};
  return *methods;
}

// All parameters of the stage on the host, layer by layer, from the seed and each layer's number in the network.
absl::StatusOr<Tensor> InitialParameters(const MlpStage& stage, uint64_t seed) {
  WEFT_ASSIGN_OR_RETURN(const Tensor all, Tensor::OnHost(stage.dtype, {stage.parameters()}));
  char* to = all.as<char>();
  for (int64_t l = 0; l < stage.layers(); ++l) {
    WEFT_ASSIGN_OR_RETURN(const LinearParameters p, LinearWeights(stage.widths[l], stage.widths[l + 1],
                                                                  seed + static_cast<uint64_t>(stage.first_layer + l), stage.dtype));
    std::memcpy(to, p.weights.data(), p.weights.bytes());
    std::memcpy(to + p.weights.bytes(), p.bias.data(), p.bias.bytes());
    to += p.weights.bytes() + p.bias.bytes();
  }
  return all;
}

class MlpActor : public Actor {
 public:
  MlpActor(MlpStage stage, std::unique_ptr<MlpMath> math, Tensor parameters, Tensor gradients, Tensor slots, Tensor scratch)
      : stage_(std::move(stage)),
        math_(std::move(math)),
        parameters_(std::move(parameters)),
        gradients_(std::move(gradients)),
        slots_(std::move(slots)),
        scratch_(std::move(scratch)),
        held_(static_cast<size_t>(stage_.slots)) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("std.Mlp", Methods(), name); }
  bool RunsInline(int, const std::vector<Tensor>&) const override {
    return static_cast<size_t>(stage_.parameters() + stage_.slot_elements()) * SizeOf(stage_.dtype) <= kInlineMatrixBytes;
  }

  bool LoadsByShape(int method) const override { return method != kStep && method != kWeights; }

  // On a slot's memory, and on that of the gradients, which the first microbatch of each execution sets anew.
  absl::Status Warm(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(Methods()[method], args.size(), outs->size()));
    WEFT_ASSIGN_OR_RETURN(const MlpCall call, ReadMlpCall(ctx.config(), stage_));
    const std::vector<Held> held = held_;
    const int64_t summed = summed_;
    absl::Status s;
    if (method == kForward) s = Forward(ctx, call, args, &outs->at(0));
    if (method == kInputGrad || method == kBackward) {
      held_[call.slot] = {ExecutionOf(ctx), call.microbatch, Stage::kForward};
      s = InputGrad(ctx, call, args[0], &outs->at(0));
    }
    if (method == kWeightGrad || method == kBackward) {
      for (summed_ = 0; s.ok() && summed_ < 2; ++summed_) s = AddGradients(call.slot, ctx.stream());
    }
    held_ = held;
    summed_ = summed;
    return s;
  }

  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(Methods()[method], args.size(), outs->size()));
    Tensor* const out = &outs->at(0);
    switch (method) {
      case kStep: return Step(ctx, out);
      case kWeights: {
        WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, parameters_.dims()));
        return math_->Copy(parameters_.data(), out->data(), parameters_.elements(), ctx.stream());
      }
      default: break;
    }
    WEFT_ASSIGN_OR_RETURN(const MlpCall call, ReadMlpCall(ctx.config(), stage_));
    switch (method) {
      case kForward: return Forward(ctx, call, args, out);
      case kInputGrad: return InputGrad(ctx, call, args[0], out);
      case kWeightGrad: {
        WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, {1}));
        WEFT_RETURN_IF_ERROR(math_->Put(static_cast<double>(call.microbatch), out->data(), ctx.stream()));
        return WeightGrad(ctx, call);
      }
      default: {
        WEFT_RETURN_IF_ERROR(InputGrad(ctx, call, args[0], out));
        return WeightGrad(ctx, call);
      }
    }
  }

 private:
  enum class Stage { kEmpty, kForward, kBackward, kWaiting };
  // Tells executions apart, so that a failed one leaves nothing to the next. Captured calls (-2) are made once for all executions, and run
  // as a whole.
  static int64_t ExecutionOf(const CallContext& ctx) {
    const ExecutionNumber number = ctx.execution_number();
    return number.counter != nullptr ? -2 : number.value;
  }

  // What a slot holds. A failed execution leaves what it did not come to use; the next takes the slot all the same.
  struct Held {
    int64_t execution = -1;
    int64_t microbatch = -1;
    Stage stage = Stage::kEmpty;
  };

  size_t Size() const { return SizeOf(stage_.dtype); }
  char* At(const Tensor& t, int64_t element) const { return t.as<char>() + static_cast<size_t>(element) * Size(); }
  // Block i of a slot: the stage's input (0), then the output of layer i - 1; the last becomes its gradient.
  char* Block(int64_t slot, int64_t i) const {
    int64_t at = slot * stage_.slot_elements();
    for (int64_t l = 0; l < i; ++l) at += stage_.widths[l] * stage_.rows;
    return At(slots_, at);
  }
  // The gradient of layer `l`'s product.
  char* Delta(int64_t slot, int64_t l) const {
    if (l == stage_.layers() - 1) return Block(slot, l + 1);
    int64_t at = slot * stage_.slot_elements();
    for (const int64_t w : stage_.widths) at += w * stage_.rows;
    for (int64_t i = 0; i < l; ++i) at += stage_.widths[i + 1] * stage_.rows;
    return At(slots_, at);
  }
  int64_t WeightsAt(int64_t layer) const {
    int64_t at = 0;
    for (int64_t l = 0; l < layer; ++l) at += stage_.widths[l + 1] * (stage_.widths[l] + 1);
    return at;
  }

  absl::Status CheckArg(size_t i, const Tensor& arg, const Dims& dims, const char* what) const {
    if (arg.dtype() == stage_.dtype && arg.dims() == dims) return absl::OkStatus();
    return BadArgument(i, arg, absl::StrCat(what, " is ", Tensor(stage_.dtype, dims, nullptr, nullptr).ToString()));
  }

  absl::Status Forward(CallContext& ctx, const MlpCall& call, const std::vector<Tensor>& args, Tensor* out) {
    const int64_t rows = stage_.rows, last = stage_.layers(), width = stage_.widths.back();
    if (args.size() != (stage_.loss ? 2u : 1u)) {
      return absl::InvalidArgumentError(absl::StrCat("forward of this stage takes ", stage_.loss ? "x and the targets" : "x alone"));
    }
    WEFT_RETURN_IF_ERROR(CheckArg(0, args[0], {rows, stage_.widths[0]}, "x"));
    if (stage_.loss) WEFT_RETURN_IF_ERROR(CheckArg(1, args[1], {rows, width}, "the targets"));
    Held& held = held_[call.slot];
    held = Held();
    Stream* const stream = ctx.stream();
    WEFT_RETURN_IF_ERROR(math_->Copy(args[0].data(), Block(call.slot, 0), rows * stage_.widths[0], stream));
    for (int64_t l = 0; l < last; ++l) {
      const int64_t in = stage_.widths[l], features = stage_.widths[l + 1], w = WeightsAt(l);
      WEFT_RETURN_IF_ERROR(math_->Linear(Block(call.slot, l), At(parameters_, w), At(parameters_, w + features * in),
                                         !(stage_.loss && l + 1 == last), Block(call.slot, l + 1), rows, in, features, stream));
    }
    if (stage_.loss) {
      WEFT_RETURN_IF_ERROR(Loss(ctx, Block(call.slot, last), args[1], out));
    } else {
      WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, {rows, width}));
      WEFT_RETURN_IF_ERROR(math_->Copy(Block(call.slot, last), out->data(), rows * width, stream));
    }
    held = {ExecutionOf(ctx), call.microbatch, Stage::kForward};
    return absl::OkStatus();
  }

  // The step's loss is the sum over its microbatches of |y - t|^2 / (2 rows microbatches); y becomes its gradient.
  absl::Status Loss(CallContext& ctx, char* y, const Tensor& targets, Tensor* out) {
    const int64_t n = targets.elements();
    const double all_rows = static_cast<double>(stage_.rows) * static_cast<double>(stage_.microbatches);
    Stream* const stream = ctx.stream();
    WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, {1}));
    WEFT_RETURN_IF_ERROR(math_->Scale(targets.data(), -1, scratch_.data(), n, stream));
    WEFT_RETURN_IF_ERROR(math_->AddTo(scratch_.data(), y, n, stream));
    WEFT_RETURN_IF_ERROR(math_->Gemm(y, false, y, false, out->data(), 1, 1, n, false, stream));
    WEFT_RETURN_IF_ERROR(math_->Scale(out->data(), 0.5 / all_rows, out->data(), 1, stream));
    return math_->Scale(y, 1 / all_rows, y, n, stream);
  }

  // FailedPrecondition unless the slot holds the microbatch of this execution at `wanted`.
  absl::StatusOr<Held*> Find(const CallContext& ctx, const MlpCall& call, Stage wanted, const char* method) {
    Held& held = held_[call.slot];
    if (held.execution == ExecutionOf(ctx) && held.microbatch == call.microbatch && held.stage == wanted) return &held;
    return absl::FailedPreconditionError(absl::StrCat(
        method, " of microbatch ", call.microbatch, " finds no ", wanted == Stage::kForward ? "activations" : "gradients",
        " of it in slot ", call.slot,
        ": forward, input_grad and weight_grad of a microbatch come in this order, and no two under way share a slot (config.slot)"));
  }

  absl::Status InputGrad(CallContext& ctx, const MlpCall& call, const Tensor& arg, Tensor* out) {
    const int64_t rows = stage_.rows, last = stage_.layers() - 1;
    if (stage_.loss) {
      WEFT_RETURN_IF_ERROR(CheckArg(0, arg, {1}, "the loss"));
    } else {
      WEFT_RETURN_IF_ERROR(CheckArg(0, arg, {rows, stage_.widths.back()}, "the gradient of the output"));
    }
    WEFT_ASSIGN_OR_RETURN(Held * const held, Find(ctx, call, Stage::kForward, "input_grad"));
    held->stage = Stage::kEmpty;
    Stream* const stream = ctx.stream();
    WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, stage_.first() ? Dims{1} : Dims{rows, stage_.widths[0]}));
    if (!stage_.loss) {
      WEFT_RETURN_IF_ERROR(
          math_->ActivationGradient(Block(call.slot, last + 1), arg.data(), Delta(call.slot, last), rows * stage_.widths.back(), stream));
    }
    for (int64_t l = last; l >= 0; --l) {
      const int64_t in = stage_.widths[l], features = stage_.widths[l + 1];
      if (l == 0 && stage_.first()) {
        WEFT_RETURN_IF_ERROR(math_->Put(static_cast<double>(call.microbatch), out->data(), stream));
        continue;
      }
      void* const dx = l == 0 ? out->data() : Delta(call.slot, l - 1);
      WEFT_RETURN_IF_ERROR(
          math_->Gemm(Delta(call.slot, l), false, At(parameters_, WeightsAt(l)), false, dx, rows, in, features, false, stream));
      if (l > 0) WEFT_RETURN_IF_ERROR(math_->ActivationGradient(Block(call.slot, l), dx, dx, rows * in, stream));
    }
    held->stage = Stage::kBackward;
    return absl::OkStatus();
  }

  // Gradients are summed by microbatch, whatever the order of the calls, so that their bits do not depend on it: one that comes early keeps
  // its slot until its turn.
  absl::Status WeightGrad(CallContext& ctx, const MlpCall& call) {
    WEFT_ASSIGN_OR_RETURN(Held * const held, Find(ctx, call, Stage::kBackward, "weight_grad"));
    if (summing_ != ExecutionOf(ctx)) summed_ = 0;
    summing_ = ExecutionOf(ctx);
    held->stage = Stage::kWaiting;
    for (int64_t slot = call.slot; slot >= 0; slot = WaitingFor(summed_)) {
      if (held_[slot].microbatch != summed_) break;
      held_[slot].stage = Stage::kEmpty;
      WEFT_RETURN_IF_ERROR(AddGradients(slot, ctx.stream()));
      ++summed_;
    }
    return absl::OkStatus();
  }

  // The slot in which that microbatch waits for its turn, or -1.
  int64_t WaitingFor(int64_t microbatch) const {
    for (size_t i = 0; i < held_.size(); ++i) {
      const Held& h = held_[i];
      if (h.stage == Stage::kWaiting && h.execution == summing_ && h.microbatch == microbatch) return static_cast<int64_t>(i);
    }
    return -1;
  }

  absl::Status AddGradients(int64_t slot, Stream* stream) {
    const bool more = summed_ > 0;
    for (int64_t l = 0; l < stage_.layers(); ++l) {
      const int64_t in = stage_.widths[l], features = stage_.widths[l + 1], w = WeightsAt(l);
      const void* const delta = Delta(slot, l);
      WEFT_RETURN_IF_ERROR(math_->Gemm(delta, true, Block(slot, l), false, At(gradients_, w), features, in, stage_.rows, more, stream));
      void* const bias = At(gradients_, w + features * in);
      WEFT_RETURN_IF_ERROR(math_->ColumnSums(delta, stage_.rows, features, more ? scratch_.data() : bias, stream));
      if (more) WEFT_RETURN_IF_ERROR(math_->AddTo(scratch_.data(), bias, features, stream));
    }
    return absl::OkStatus();
  }

  absl::Status Step(CallContext& ctx, Tensor* out) {
    const int64_t there = summing_ == ExecutionOf(ctx) ? std::exchange(summed_, 0) : 0;
    if (there != stage_.microbatches) {
      return absl::FailedPreconditionError(absl::StrCat("step finds the gradients of ", there,
                                                        " microbatches, not of config.microbatches, ", stage_.microbatches,
                                                        "; weights stay as they are"));
    }
    WEFT_ASSIGN_OR_RETURN(*out, ctx.AllocateOutput(0, stage_.dtype, {1}));
    const int64_t n = parameters_.elements();
    WEFT_RETURN_IF_ERROR(math_->Scale(gradients_.data(), -stage_.learning_rate, gradients_.data(), n, ctx.stream()));
    WEFT_RETURN_IF_ERROR(math_->AddTo(gradients_.data(), parameters_.data(), n, ctx.stream()));
    return math_->Put(static_cast<double>(there), out->data(), ctx.stream());
  }

  const MlpStage stage_;
  const std::unique_ptr<MlpMath> math_;
  const Tensor parameters_, gradients_, slots_, scratch_;
  std::vector<Held> held_;
  // Of which execution gradients are being summed, and how many microbatches'.
  int64_t summing_ = -1;
  int64_t summed_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Actor>> MakeMlpActor(const v1::Config& config, std::unique_ptr<MlpMath> math) {
  WEFT_ASSIGN_OR_RETURN(MlpStage stage, ReadMlpStage(config));
  WEFT_ASSIGN_OR_RETURN(const Tensor initial, InitialParameters(stage, config.seed()));
  WEFT_ASSIGN_OR_RETURN(Tensor parameters, math->Upload(initial));
  WEFT_ASSIGN_OR_RETURN(Tensor gradients, math->Allocate(stage.parameters()));
  WEFT_ASSIGN_OR_RETURN(Tensor slots, math->Allocate(stage.slots * stage.slot_elements()));
  int64_t scratch_elements = *std::max_element(stage.widths.begin(), stage.widths.end());
  if (stage.loss) scratch_elements = std::max(scratch_elements, stage.rows * stage.widths.back());
  WEFT_ASSIGN_OR_RETURN(Tensor scratch, math->Allocate(scratch_elements));
  return std::make_unique<MlpActor>(std::move(stage), std::move(math), std::move(parameters), std::move(gradients), std::move(slots),
                                    std::move(scratch));
}

}  // namespace weft
