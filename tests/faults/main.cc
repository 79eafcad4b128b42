// weft-worker on the machine's GPUs, with a kernel that breaks its GPU where the test says so (faulty_kernels.h).

#include "common/base/status_macros.h"
#include "common/device/cuda/library.h"
#include "tests/faults/faulty_kernels.h"
#include "worker/worker_main.h"

namespace {

absl::StatusOr<const weft::CudaPlugin*> LoadWithFaults(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const weft::CudaPlugin* const real, weft::LoadCudaPlugin(path));
  // Until the process ends, as the real one.
  auto* const faulty = new weft::CudaPlugin(*real);
  faulty->kernels = new weft::FaultyKernels(real->kernels);
  return faulty;
}

}  // namespace

int main(int argc, char** argv) { return weft::WorkerMain(argc, argv, LoadWithFaults); }
