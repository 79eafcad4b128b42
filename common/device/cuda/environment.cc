#include "common/device/cuda/environment.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace weft {
namespace {

constexpr uint64_t kChunksOfBuffer = 8;  // NCCL's own number

}  // namespace

bool UnderMps() { return getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr; }

uint64_t SharedChunkBytes(uint64_t host_bytes, bool mps) {
  constexpr uint64_t kLeast = uint64_t{128} << 10, kMost = uint64_t{8} << 20, kOfHost = 8192;
  const uint64_t most = mps ? kMost / 2 : kMost;
  uint64_t chunk = kLeast;
  while (chunk < most && 2 * chunk <= host_bytes / kOfHost) chunk *= 2;
  return chunk;
}

void SetCudaEnvironment(const CudaEnvironment& e) {
  constexpr int kKeep = 0;
  // As many hardware queues as there can be, so that lanes do not wait for each other (DESIGN: streams must fit them).
  // Under MPS each of them costs every client memory of the server; with CUDA's own number several workers still start.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", UnderMps() ? "8" : "32", kKeep);
  // All modules before the first transfer: loading one later waits for the device to be idle, and a receive may be waiting on it.
  setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  if (!e.share_gpu) return;
  setenv("NCCL_HOSTID", ("weft-" + (e.name.empty() ? std::to_string(getpid()) : e.name)).c_str(), kKeep);
  if (e.loopback) setenv("NCCL_SOCKET_IFNAME", "lo", kKeep);
  setenv("NCCL_SOCKET_NTHREADS", "4", kKeep);
  setenv("NCCL_NSOCKS_PERTHREAD", "4", kKeep);
  // A value goes through host memory chunk by chunk, by threads; large chunks make fewer steps of it. And where processes take turns on the GPU, a
  // sender can go on for as long as NCCL's buffers have room, by default a MiB a channel: with these most of a large value leaves in one turn.
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const uint64_t chunk = SharedChunkBytes(pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0, UnderMps());
  setenv("NCCL_P2P_NET_CHUNKSIZE", std::to_string(chunk).c_str(), kKeep);
  setenv("NCCL_BUFFSIZE", std::to_string(kChunksOfBuffer * chunk).c_str(), kKeep);
}

}  // namespace weft
