#include "common/device/cuda/api/plugin.h"

#include "common/device/cuda/plugin/kernels.h"
#include "common/device/cuda/plugin/nccl.h"
#include "common/device/cuda/plugin/runtime.h"

extern "C" __attribute__((visibility("default"))) const weft::CudaPlugin* weft_cuda_plugin(int version) {
  if (version != weft::kCudaPluginVersion) return nullptr;
  static const weft::CudaPlugin plugin = [] {
    weft::CudaPlugin p;
    p.cuda = weft::gpu::RuntimeApi();
    p.kernels = weft::gpu::Kernels();
    p.nccl = weft::gpu::OpenNccl(&p.nccl_problem);
    return p;
  }();
  return &plugin;
}
