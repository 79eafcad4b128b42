#pragma once

#include <string>
#include <utility>

#include "common/device/cuda/api/plugin.h"
#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_nccl.h"

namespace weft {

// What libweft_cuda.so would hand out, without a GPU. One for each "worker" of a test. Kernels are made over `cuda` and outlive all that
// uses plugin(kernels); work that they have queued must not refer to them once they go.
class FakePlugin {
 public:
  struct Options {
    FakeCuda::Options cuda;
    FakeNccl::Options nccl;
    std::string nccl_problem;  // not empty: there is no NCCL, for this reason
  };

  FakePlugin() : FakePlugin(Options()) {}
  explicit FakePlugin(Options options)
      : cuda(std::move(options.cuda)), nccl(&cuda, options.nccl), nccl_problem_(std::move(options.nccl_problem)) {}

  // `kernels` may be nullptr where none is launched. Valid as long as this object.
  CudaPlugin plugin(KernelsApi* kernels) {
    CudaPlugin p;
    p.cuda = &cuda;
    p.kernels = kernels;
    p.nccl = nccl_problem_.empty() ? &nccl : nullptr;
    p.nccl_problem = nccl_problem_.empty() ? nullptr : nccl_problem_.c_str();
    return p;
  }

  FakeCuda cuda;
  FakeNccl nccl;  // goes first: its communicators are aborted before streams are joined

 private:
  const std::string nccl_problem_;
};

}  // namespace weft
