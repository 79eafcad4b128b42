#pragma once

#include <cstdint>
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

// Whether CUDA's work goes through an MPS server, as the environment says.
bool UnderMps();

// Bytes of NCCL's chunks over sockets where workers share a GPU, for a host with so much memory: NCCL page-locks some hundred of them for each
// pair of workers. A power of two, 128 KiB (NCCL's own) to 8 MiB (from 64 GiB on), or 4 MiB under CUDA MPS, where more bring nothing.
uint64_t SharedChunkBytes(uint64_t host_bytes, bool mps);

// Sets it for this process, before the first call of CUDA and while it has one thread. The user's own settings stand.
void SetCudaEnvironment(const CudaEnvironment& e);

}  // namespace weft
