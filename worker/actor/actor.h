#pragma once

// An actor: a stateful object on one worker whose methods are the tasks of graphs.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/device/device.h"
#include "common/tensor/tensor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// One call, as the actor sees it. Lives until Call returned.
class CallContext {
 public:
  virtual ~CallContext() = default;
  // Number of the execution, from 0.
  virtual int64_t execution() const = 0;
  // The actor's config with the node's fields over it.
  virtual const v1::Config& config() const = 0;
  // Memory for output `i`: the plan's buffer where the shape is planned. Errors: OutOfRange (larger than the node's declared spec;
  // names node and output), ResourceExhausted.
  virtual absl::StatusOr<Tensor> AllocateOutput(int i, DType dtype, const Dims& dims) = 0;
  // Holds the compute lane for so long after Call returned, without burning a core. CPU only.
  virtual void Hold(Nanos duration) = 0;
  // The stream of the compute lane; its native() is the cudaStream_t on CUDA.
  virtual Stream* stream() const = 0;
  // Whether an output's memory still holds what this task last made in it: nobody else writes there. Then a method whose value never changes need
  // not make it again.
  virtual bool outputs_persist() const { return false; }
  // CUDA: to be called by a method that has put nothing on the stream and returns OK, its outputs being what they were: then the device need not be
  // asked when it is done. Where workers take turns on a GPU that saves a turn.
  virtual void LaunchedNothing() {}
  // CUDA: where a method puts an error that only the device finds, behind output 0; made when that output is allocated. nullptr where the plan
  // has no such words.
  virtual DeviceStatus* device_status() const { return nullptr; }
  // The node's number in the plan (PlanNode::id), for what is put there.
  virtual int32_t node_id() const { return 0; }
  // CUDA: the execution's number for a kernel.
  virtual ExecutionNumber execution_number() const { return {nullptr, execution()}; }
};

class Actor {
 public:
  virtual ~Actor() = default;

  // Index of a method for Call, or NotFound. Called at load.
  virtual absl::StatusOr<int> Method(const std::string& name) const = 0;

  // Whether this call is so short that handing it to another thread costs more than it takes. Then Call runs on the loop's thread,
  // otherwise on the device's compute thread. Not asked on CUDA, where Call only launches, on the loop's thread.
  virtual bool RunsInline(int method, const std::vector<Tensor>& args) const = 0;

  // CUDA: whether calls of this method may make a library load device code, by the shapes of their arguments, as cuBLAS does at the first product of
  // many a shape. Loading waits until nothing of the process is on the device, where a receive may be waiting for a peer that waits for this worker; so it
  // is done by Warm, before a graph's first transfer.
  virtual bool LoadsByShape(int /*method*/) const { return false; }
  // Puts on the stream what makes the device code of such calls be loaded: arguments and outputs have their shapes, and memory that nobody needs yet, which
  // may be the same for all of them. Leaves the actor as it was. Not for the loop's thread; the actor is not called meanwhile.
  virtual absl::Status Warm(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
    return Call(method, ctx, args, outs);
  }

  // Runs the method: reads `args`, makes every output with ctx.AllocateOutput and puts it in outs->at(i) (sized as declared).
  // Calls of one actor never overlap and come in plan order. An error poisons the task's consumers; the actor stays usable.
  virtual absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) = 0;
};

// Makes actors of registered classes.
class ActorRegistry {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Actor>>(const v1::Config& config, Device* device)>;

  // weft's own classes for a device kind.
  static const ActorRegistry& Std(const std::string& device_kind);

  void Register(const std::string& cls, Factory factory);
  // NotFound names the class and those there are.
  absl::StatusOr<std::unique_ptr<Actor>> Make(const std::string& cls, const v1::Config& config, Device* device) const;
  std::vector<std::string> Classes() const;

 private:
  std::vector<std::pair<std::string, Factory>> factories_;
};

}  // namespace weft
