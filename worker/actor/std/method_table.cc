#include "worker/actor/std/method_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<int> FindMethod(const std::string& cls, const std::vector<StdMethod>& methods, const std::string& name) {
  std::string known;
  for (size_t i = 0; i < methods.size(); ++i) {
    if (name == methods[i].name) return static_cast<int>(i);
    absl::StrAppend(&known, i == 0 ? "" : ", ", methods[i].name);
  }
  return absl::NotFoundError(absl::StrCat("class ", cls, " has no method \"", name.substr(0, 80), "\"; it has ", known));
}

absl::Status CheckCounts(const StdMethod& method, size_t args, size_t outs) {
  const bool enough = args >= static_cast<size_t>(method.min_args);
  const bool few_enough = method.max_args < 0 || args <= static_cast<size_t>(method.max_args);
  if (!enough || !few_enough) {
    const std::string want = method.max_args == method.min_args ? absl::StrCat(method.min_args)
                             : method.max_args < 0              ? absl::StrCat("at least ", method.min_args)
                                                                : absl::StrCat(method.min_args, " to ", method.max_args);
    return absl::InvalidArgumentError(absl::StrCat("method ", method.name, " takes ", want, " arguments, not ", args));
  }
  if (method.outputs >= 0 ? outs != static_cast<size_t>(method.outputs) : outs == 0) {
    return absl::InvalidArgumentError(absl::StrCat("method ", method.name, " has ", method.outputs, " outputs, the plan says ", outs));
  }
  return absl::OkStatus();
}

size_t TotalBytes(const std::vector<Tensor>& tensors) {
  size_t n = 0;
  for (const Tensor& t : tensors) n += t.bytes();
  return n;
}

absl::Status BadArgument(size_t index, const Tensor& arg, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("argument ", index, " is ", arg.ToString(), ": ", what));
}

bool TableActor::RunsInline(int method, const std::vector<Tensor>& args) const {
  return TotalBytes(args) <= methods_[method].inline_bytes;
}

absl::Status TableActor::Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const StdMethod& m = methods_[method];
  WEFT_RETURN_IF_ERROR(CheckCounts(m, args.size(), outs->size()));
  return m.run(ctx, args, outs);
}

}  // namespace weft
