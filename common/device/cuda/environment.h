#pragma once

#include <string>

namespace weft {

// What CUDA and NCCL read of the environment when they start.
struct CudaEnvironment {
  // Other processes use this GPU too. NCCL refuses two ranks on one GPU of one host; each under a host id of its own, they meet over sockets.
  bool share_gpu = false;
  // Of this process among those of the GPU; empty: its pid.
  std::string name;
  // The peers are on this machine, so their sockets are too.
  bool loopback = true;
};

// Whether CUDA MPS serves this process, as its environment says: then the work of several processes is on a GPU at the same time, which otherwise
// they use in turns.
bool UnderMps();

// Sets it for this process, before the first call of CUDA and while it has one thread. The user's own settings stand.
void SetCudaEnvironment(const CudaEnvironment& e);

}  // namespace weft
