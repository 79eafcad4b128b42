// weft-worker over fakes of CUDA and NCCL that run on the CPU: what `--device cuda` does, with real processes, on a machine without a GPU.

#include <cstdlib>
#include <string>

#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  using weft::FakeKernels;
  using weft::FakePlugin;
  // Never destroyed: streams may still run when the worker ends by _exit.
  auto* const fakes = new FakePlugin;
  auto* const kernels = new FakeKernels(&fakes->cuda);
  auto* const plugin = new weft::CudaPlugin(fakes->plugin(kernels));
  return weft::WorkerMain(argc, argv,
                          [plugin](const std::string&) -> absl::StatusOr<const weft::CudaPlugin*> { return plugin; });
}
