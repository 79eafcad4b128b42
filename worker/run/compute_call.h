#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/channel/port.h"
#include "worker/actor/actor.h"
#include "worker/run/arena.h"
#include "worker/run/program.h"

namespace weft {

// Memory through which one COMPUTE op's outputs rotate: slots x outputs. Planned outputs are taken once, at their reserved size;
// outputs with `?` dimensions grow as they need.
class OutputBuffers {
 public:
  // ResourceExhausted names the op.
  // `on_host`: planned ones in memory that the host reaches too. `status`: with a status word behind each planned output. `arena` (may be
  // nullptr) has the planned ones; it and `device` outlive this.
  static absl::StatusOr<OutputBuffers> Create(const LocalOp& op, const std::string& op_name, Device* device, Arena* arena, bool status,
                                              bool on_host = false);

  // Memory of at least `bytes` for an output in a slot.
  absl::StatusOr<std::shared_ptr<void>> Get(int slot, int output, size_t bytes);
  // The planned buffer as it is, with its size; nullptr when there is none yet.
  const std::shared_ptr<void>& At(int slot, int output) const { return buffers_[slot * outputs_ + output].memory; }
  size_t SizeAt(int slot, int output) const { return buffers_[slot * outputs_ + output].bytes; }
  // The output's status word; nullptr without.
  DeviceStatus* StatusAt(int slot, int output) const {
    const Buffer& b = buffers_[slot * outputs_ + output];
    return status_ && b.memory != nullptr ? reinterpret_cast<DeviceStatus*>(static_cast<char*>(b.memory.get()) + StatusOffset(b.bytes)) : nullptr;
  }

 private:
  struct Buffer {
    std::shared_ptr<void> memory;
    size_t bytes = 0;
  };
  Device* device_ = nullptr;
  int outputs_ = 0;
  bool status_ = false;
  std::vector<Buffer> buffers_;
};

// State of one call of an actor's method, from issue to completion. One per COMPUTE op: an op has one call under way (CPU), or is over
// with the call once it is launched (CUDA).
class ComputeCall final : public CallContext {
 public:
  ComputeCall(const LocalOp* op, OutputBuffers buffers) : op_(op), buffers_(std::move(buffers)) {}

  // Prepares for execution k. `args` are host-known good.
  // `counter`: where the device finds the execution's number when the call is captured; nullptr otherwise.
  void Begin(int64_t execution, std::vector<Tensor> args, Stream* stream, const int64_t* counter = nullptr);
  // Calls the method and checks what it made against the declared outputs. Any thread, once per Begin. Never throws.
  absl::Status Run(Actor* actor, int method);

  // Stands for the same task as an op of another program from now on. Pre: no call is under way; as many slots and outputs.
  void Rebind(const LocalOp* op) { op_ = op; }

  const std::vector<Tensor>& args() const { return args_; }
  std::vector<Tensor>& outputs() { return outs_; }
  OutputBuffers& buffers() { return buffers_; }
  Nanos hold = 0;
  absl::Status status;
  bool launched_nothing = false;
  bool carries_status = false;  // of this call: status words lie behind its outputs

  int64_t execution() const override {
    host_number_read_ = true;
    return execution_;
  }
  // Whether the method asked for the execution's number on the host since Begin.
  bool host_number_read() const { return host_number_read_; }
  const v1::Config& config() const override { return op_->node->config; }
  absl::StatusOr<Tensor> AllocateOutput(int i, DType dtype, const Dims& dims) override;
  void Hold(Nanos duration) override { hold = duration; }
  Stream* stream() const override { return stream_; }
  bool outputs_persist() const override { return outputs_persist_; }
  void LaunchedNothing() override { launched_nothing = true; }
  // Buffers are not filled with a pattern between two uses.
  void set_outputs_persist(bool persist) { outputs_persist_ = persist; }
  DeviceStatus* device_status() const override { return outs_.empty() ? nullptr : StatusOf(0); }
  int32_t node_id() const override { return op_->node->id; }
  ExecutionNumber execution_number() const override { return {counter_, execution_}; }
  // The status word of an output in this execution's slot; nullptr without.
  DeviceStatus* StatusOf(int output) const { return buffers_.StatusAt(static_cast<int>(execution_ % op_->slots), output); }

 private:
  const LocalOp* op_;
  OutputBuffers buffers_;
  int64_t execution_ = 0;
  mutable bool host_number_read_ = false;
  Stream* stream_ = nullptr;
  bool outputs_persist_ = false;
  const int64_t* counter_ = nullptr;
  std::vector<Tensor> args_;
  std::vector<Tensor> outs_;
};

}  // namespace weft
