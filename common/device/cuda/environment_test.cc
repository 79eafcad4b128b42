#include "common/device/cuda/environment.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace weft {
namespace {

std::string Env(const char* name) {
  const char* const v = getenv(name);
  return v == nullptr ? "(unset)" : v;
}

void Clear() {
  for (const char* name : {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MODULE_LOADING", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME",
                           "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_BUFFSIZE"}) {
    unsetenv(name);
  }
}

TEST_CASE("cuda environment: a GPU of one's own leaves NCCL alone; MPS leaves fewer queues") {
  Clear();
  SetCudaEnvironment({});
  CHECK(Env("CUDA_DEVICE_MAX_CONNECTIONS") == "32");
  CHECK(Env("CUDA_MODULE_LOADING") == "EAGER");
  CHECK(Env("NCCL_HOSTID") == "(unset)");
  CHECK(Env("NCCL_SOCKET_IFNAME") == "(unset)");
  Clear();
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
  SetCudaEnvironment({});
  CHECK(Env("CUDA_DEVICE_MAX_CONNECTIONS") == "8");
  Clear();
}

TEST_CASE("cuda environment: processes of one GPU are hosts of their own to NCCL, over loopback where the peers are here") {
  Clear();
  SetCudaEnvironment({.share_gpu = true, .name = "w3", .loopback = true});
  CHECK(Env("NCCL_HOSTID") == "weft-w3");
  CHECK(Env("NCCL_SOCKET_IFNAME") == "lo");
  CHECK(Env("NCCL_NSOCKS_PERTHREAD") == "4");
  // NCCL cuts the chunks down to an eighth of its buffers.
  CHECK(std::stoll(Env("NCCL_BUFFSIZE")) == 8 * std::stoll(Env("NCCL_P2P_NET_CHUNKSIZE")));
  Clear();
  SetCudaEnvironment({.share_gpu = true, .name = "", .loopback = false});
  CHECK(Env("NCCL_HOSTID").rfind("weft-", 0) == 0);
  CHECK(Env("NCCL_SOCKET_IFNAME") == "(unset)");
}

TEST_CASE("cuda environment: NCCL's buffers stay as they are where nobody shares a GPU") {
  Clear();
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
  SetCudaEnvironment({.share_gpu = true, .name = "w3", .loopback = true});
  CHECK(Env("NCCL_HOSTID") == "weft-w3");
  CHECK(std::stoll(Env("NCCL_P2P_NET_CHUNKSIZE")) <= 4 << 20);
  CHECK(std::stoll(Env("NCCL_BUFFSIZE")) == 8 * std::stoll(Env("NCCL_P2P_NET_CHUNKSIZE")));
  Clear();
  SetCudaEnvironment({});
  CHECK(Env("NCCL_BUFFSIZE") == "(unset)");
}

TEST_CASE("cuda environment: NCCL's chunks are of a size that the host's memory can bear") {
  constexpr uint64_t kGiB = uint64_t{1} << 30, kKiB = 1024;
  CHECK(SharedChunkBytes(0, false) == 128 * kKiB);
  CHECK(SharedChunkBytes(2 * kGiB, false) == 256 * kKiB);
  CHECK(SharedChunkBytes(16 * kGiB, false) == 2048 * kKiB);
  CHECK(SharedChunkBytes(63 * kGiB, false) == 4096 * kKiB);
  CHECK(SharedChunkBytes(64 * kGiB, false) == 8192 * kKiB);
  CHECK(SharedChunkBytes(2048 * kGiB, false) == 8192 * kKiB);
  CHECK(SharedChunkBytes(16 * kGiB, true) == 2048 * kKiB);
  CHECK(SharedChunkBytes(2048 * kGiB, true) == 4096 * kKiB);
}

TEST_CASE("cuda environment: what the user has set stands") {
  Clear();
  setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
  SetCudaEnvironment({.share_gpu = true, .name = "w0", .loopback = true});
  CHECK(Env("NCCL_SOCKET_IFNAME") == "eth7");
  CHECK(Env("CUDA_DEVICE_MAX_CONNECTIONS") == "4");
}

}  // namespace
}  // namespace weft
