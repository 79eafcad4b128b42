#include "common/device/cuda/environment.h"

#include <unistd.h>

#include <cstdlib>

namespace weft {

void SetCudaEnvironment(const CudaEnvironment& e) {
  constexpr int kKeep = 0;
  // As many hardware queues as there can be, so that lanes do not wait for each other (DESIGN: streams must fit them).
  // Under MPS each of them costs every client memory of the server; with CUDA's own number several workers still start.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", getenv("CUDA_MPS_PIPE_DIRECTORY") == nullptr ? "32" : "8", kKeep);
  // All modules before the first transfer: loading one later waits for the device to be idle, and a receive may be waiting on it.
  setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  if (!e.share_gpu) return;
  setenv("NCCL_HOSTID", ("weft-" + (e.name.empty() ? std::to_string(getpid()) : e.name)).c_str(), kKeep);
  if (e.loopback) setenv("NCCL_SOCKET_IFNAME", "lo", kKeep);
  setenv("NCCL_SOCKET_NTHREADS", "4", kKeep);
  setenv("NCCL_NSOCKS_PERTHREAD", "4", kKeep);
}

}  // namespace weft
