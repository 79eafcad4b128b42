#include "worker/run/compute_call.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<OutputBuffers> OutputBuffers::Create(const LocalOp& op, const std::string& op_name, Device* device, Arena* arena,
                                                    bool status, bool on_host) {
  OutputBuffers b;
  b.device_ = device;
  b.status_ = status;
  b.outputs_ = static_cast<int>(op.outputs.size());
  b.buffers_.resize(static_cast<size_t>(op.slots) * b.outputs_);
  for (int s = 0; s < op.slots; ++s) {
    for (int o = 0; o < b.outputs_; ++o) {
      const Spec& spec = op.outputs[o];
      if (spec.shape.HasDynamic()) continue;
      const size_t bytes = BufferSize(spec.MaxBytes(), status);
      absl::StatusOr<std::shared_ptr<void>> m = on_host            ? device->AllocateForHost(bytes)
                                                    : arena != nullptr ? arena->Take(bytes)
                                                                       : device->Allocate(bytes);
      if (!m.ok()) {
        return absl::Status(m.status().code(), absl::StrCat(op_name, ", output ", o, " ", spec.ToString(), ", buffer ", s + 1, " of ",
                                                            op.slots, ": ", std::string(m.status().message())));
      }
      b.buffers_[s * b.outputs_ + o] = {*std::move(m), spec.MaxBytes()};
    }
  }
  return b;
}

absl::StatusOr<std::shared_ptr<void>> OutputBuffers::Get(int slot, int output, size_t bytes) {
  Buffer& b = buffers_[slot * outputs_ + output];
  if (b.memory == nullptr || b.bytes < bytes) {
    b.memory.reset();  // a reader that still holds it keeps it alive
    WEFT_ASSIGN_OR_RETURN(b.memory, device_->Allocate(bytes));
    b.bytes = bytes;
  }
  return b.memory;
}

void ComputeCall::Begin(int64_t execution, std::vector<Tensor> args, Stream* stream, const int64_t* counter) {
  execution_ = execution;
  host_number_read_ = false;
  counter_ = counter;
  stream_ = stream;
  args_ = std::move(args);
  outs_.assign(op_->outputs.size(), Tensor());
  hold = 0;
  status = absl::OkStatus();
  launched_nothing = false;
}

absl::Status ComputeCall::Run(Actor* actor, int method) {
  absl::Status s;
  try {
    s = actor->Call(method, *this, args_, &outs_);
  } catch (const std::exception& e) {
    s = absl::InternalError(absl::StrCat("the actor threw: ", e.what()));
  } catch (...) {
    s = absl::InternalError("the actor threw something that is no std::exception");
  }
  if (!s.ok()) return s;
  if (outs_.size() != op_->outputs.size()) {
    return absl::InternalError(absl::StrCat("method ", op_->node->method, " made ", outs_.size(), " outputs, declared are ", op_->outputs.size()));
  }
  for (size_t i = 0; i < outs_.size(); ++i) {
    const Spec& spec = op_->outputs[i];
    if (!outs_[i].defined()) return absl::InternalError(absl::StrCat("method ", op_->node->method, " did not make output ", i));
    if (outs_[i].dtype() != spec.dtype || !spec.shape.Admits(outs_[i].dims())) {
      return absl::OutOfRangeError(absl::StrCat("output ", i, " is ", outs_[i].ToString(), ", declared is ", spec.ToString()));
    }
  }
  return s;
}

absl::StatusOr<Tensor> ComputeCall::AllocateOutput(int i, DType dtype, const Dims& dims) {
  if (i < 0 || i >= static_cast<int>(op_->outputs.size())) {
    return absl::InternalError(absl::StrCat("output ", i, " of node ", op_->node->name, " does not exist: it has ", op_->outputs.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t n, NumElements(dims));
  const Spec& spec = op_->outputs[i];
  if (dtype != spec.dtype || !spec.shape.Admits(dims)) {
    return absl::OutOfRangeError(absl::StrCat("output ", i, " of node ", op_->node->name, " would be ", DTypeName(dtype), DimsToString(dims),
                                              ", declared is ", spec.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> memory,
                        buffers_.Get(static_cast<int>(execution_ % op_->slots), i, static_cast<size_t>(n) * SizeOf(dtype)));
  void* const data = memory.get();
  return Tensor(dtype, dims, data, std::move(memory));
}

}  // namespace weft
