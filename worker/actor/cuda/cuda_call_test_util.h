#pragma once

// Calls CUDA actors in tests as a worker would, on a TestGpu, with host tensors going in and coming out.

#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/device/cuda/testing/gpu_case.h"
#include "worker/actor/std/call_test_util.h"

namespace weft {

class CudaTestContext : public CallContext {
 public:
  explicit CudaTestContext(TestGpu* gpu) : gpu_(gpu) {}

  int64_t execution() const override { return execution_; }
  const v1::Config& config() const override { return config_; }
  absl::StatusOr<Tensor> AllocateOutput(int i, DType dtype, const Dims& dims) override {
    if (i == 0 && with_status_) status_ = gpu_->NewStatus();
    return gpu_->Rubbish(dtype, dims);  // shows elements that are not written
  }
  void Hold(Nanos) override { FAIL("Hold is for the CPU"); }
  Stream* stream() const override { return gpu_->stream(); }
  DeviceStatus* device_status() const override { return status_.defined() ? StatusIn(status_) : nullptr; }
  int32_t node_id() const override { return 0x12345; }
  ExecutionNumber execution_number() const override { return {counter_, execution_}; }
  // 0 where none was allocated.
  uint64_t word() { return status_.defined() ? gpu_->StatusWord(status_) : 0; }

  int64_t execution_ = 0;
  v1::Config config_;
  bool with_status_ = true;
  const int64_t* counter_ = nullptr;

 private:
  TestGpu* const gpu_;
  Tensor status_;
};

struct CudaCallOptions {
  int outputs = 1;
  int64_t execution = 0;
  uint64_t* word = nullptr;  // the status word afterwards
};

inline absl::StatusOr<std::vector<Tensor>> CallCuda(TestGpu& gpu, const std::string& cls, const std::string& method, const v1::Config& config,
                                                    const std::vector<Tensor>& args, const CudaCallOptions& options = {}) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Actor> actor, ActorRegistry::Std("cuda").Make(cls, config, gpu.device()));
  WEFT_ASSIGN_OR_RETURN(const int m, actor->Method(method));
  CudaTestContext ctx(&gpu);
  ctx.config_ = config;
  ctx.execution_ = options.execution;
  std::vector<Tensor> on_device, outs(options.outputs);
  for (const Tensor& a : args) on_device.push_back(gpu.Upload(a));
  WEFT_RETURN_IF_ERROR(actor->Call(m, ctx, on_device, &outs));
  std::vector<Tensor> host;
  for (const Tensor& t : outs) host.push_back(gpu.Download(t));
  if (options.word != nullptr) *options.word = ctx.word();
  return host;
}

// The same call on the CPU and on CUDA: equal bits of every output, or the same error.
inline void CheckAsOnCpu(TestGpu& gpu, const std::string& cls, const std::string& method, const v1::Config& config,
                         const std::vector<Tensor>& args, CudaCallOptions options = {}) {
  CAPTURE(cls, method, config.ShortDebugString());
  const auto cpu = CallStd(cls, method, config, args, options.outputs, options.execution);
  const auto cuda = CallCuda(gpu, cls, method, config, args, options);
  CAPTURE(cpu.status().ToString(), cuda.status().ToString());
  REQUIRE(cpu.ok() == cuda.ok());
  if (!cpu.ok()) {
    CHECK(cuda.status() == cpu.status());
    return;
  }
  REQUIRE(cpu->size() == cuda->size());
  for (size_t i = 0; i < cpu->size(); ++i) {
    CAPTURE(i, (*cpu)[i].ToString(), (*cuda)[i].ToString());
    CHECK(BitEqual((*cpu)[i], (*cuda)[i]));
  }
}

}  // namespace weft
