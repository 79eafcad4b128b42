#include "worker/actor/std/bucket_class.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"
#include "worker/actor/std/checks.h"
#include "worker/actor/std/method_table.h"

namespace weft {
namespace {

// pack: all arguments, of one dtype, one after the other. unpack: pieces of its argument, of the shapes that config.extra["0"], ["1"], ...
// say. room: a tensor of config's dtype and shape with nothing in it, for what a broadcast brings.
class BucketActor : public Actor {
 public:
  explicit BucketActor(BucketCopyFn copy) : copy_(std::move(copy)) {}

  absl::StatusOr<int> Method(const std::string& name) const override { return FindMethod("weft.Bucket", {kPack, kUnpack, kRoom}, name); }
  bool RunsInline(int, const std::vector<Tensor>& args) const override { return TotalBytes(args) <= kInlineBytes; }

  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    WEFT_RETURN_IF_ERROR(CheckCounts(method == 0 ? kPack : method == 1 ? kUnpack : kRoom, args.size(), outs->size()));
    if (method == 2) {
      WEFT_ASSIGN_OR_RETURN(const Shape shape, Shape::Parse(ctx.config().shape()));
      WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, ctx.config().dtype(), shape.MaxDims()));
      return absl::OkStatus();
    }
    return method == 0 ? Pack(ctx, args, outs) : Unpack(ctx, args[0], outs);
  }

 private:
  static constexpr StdMethod kPack = {"pack", 1, -1, 1, kInlineBytes, nullptr};
  static constexpr StdMethod kUnpack = {"unpack", 1, 1, -1, kInlineBytes, nullptr};
  static constexpr StdMethod kRoom = {"room", 0, 0, 1, kInlineBytes, nullptr};

  absl::Status Pack(CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) const {
    int64_t elements = 0;
    for (const Tensor& t : args) {
      if (t.dtype() != args[0].dtype()) {
        return absl::InvalidArgumentError(
            absl::StrCat("a bucket holds values of one dtype, and is given ", args[0].ToString(), " and ", t.ToString()));
      }
      elements += t.elements();
    }
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, args[0].dtype(), {elements}));
    char* to = outs->at(0).as<char>();
    for (const Tensor& t : args) {
      if (t.bytes() > 0) WEFT_RETURN_IF_ERROR(copy_(ctx, to, t.data(), t.bytes()));
      to += t.bytes();
    }
    return absl::OkStatus();
  }

  absl::Status Unpack(CallContext& ctx, const Tensor& from, std::vector<Tensor>* outs) const {
    size_t at = 0;
    for (size_t i = 0; i < outs->size(); ++i) {
      const auto shape = ctx.config().extra().find(absl::StrCat(i));
      if (shape == ctx.config().extra().end()) return absl::InvalidArgumentError(absl::StrCat("a bucket's part ", i, " has no shape"));
      WEFT_ASSIGN_OR_RETURN(const Shape parsed, Shape::Parse(shape->second));
      WEFT_ASSIGN_OR_RETURN(outs->at(i), ctx.AllocateOutput(static_cast<int>(i), from.dtype(), parsed.MaxDims()));
      const size_t bytes = outs->at(i).bytes();
      if (bytes > from.bytes() - at) {
        return absl::InvalidArgumentError(
            absl::StrCat("a bucket of ", from.ToString(), " ends before its part ", i, " ", outs->at(i).ToString()));
      }
      if (bytes > 0) WEFT_RETURN_IF_ERROR(copy_(ctx, outs->at(i).data(), from.as<char>() + at, bytes));
      at += bytes;
    }
    return absl::OkStatus();
  }

  const BucketCopyFn copy_;
};

}  // namespace

void RegisterBucketClass(ActorRegistry* registry, std::function<absl::StatusOr<BucketCopyFn>(Device* device)> for_device) {
  const auto make = [for_device = std::move(for_device)](const v1::Config&, Device* device) -> absl::StatusOr<std::unique_ptr<Actor>> {
    WEFT_ASSIGN_OR_RETURN(BucketCopyFn copy, for_device(device));
    return std::make_unique<BucketActor>(std::move(copy));
  };
  registry->Register("weft.Bucket", make);
}

}  // namespace weft
