// The CUDA library beside this program, on a GPU: that what was packed together works together. Everything of it is tested in its own
// package.

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "common/device/cuda/library.h"
#include "common/tensor/fill.h"

namespace weft {
namespace {

TEST_CASE("package: a kernel of the library beside this program gives the host's values, bit for bit", "[.][gpu][kernels]") {
  const auto plugin = LoadCudaPlugin("");
  INFO(plugin.status().message());
  REQUIRE(plugin.ok());
  CudaApi& cuda = *(*plugin)->cuda;
  REQUIRE(cuda.SetDevice(0) == kCudaSuccess);
  const char* problem = nullptr;
  const int loaded = (*plugin)->kernels->Load(&problem);
  INFO((problem == nullptr ? "" : problem));
  REQUIRE(loaded == kCudaSuccess);

  constexpr int64_t kElements = 100003;
  constexpr size_t kBytes = kElements * sizeof(float);
  CudaStreamHandle stream = nullptr;
  void* device = nullptr;
  void* host = nullptr;
  REQUIRE(cuda.StreamCreate(0, &stream) == kCudaSuccess);
  REQUIRE(cuda.Malloc(kBytes, &device) == kCudaSuccess);
  REQUIRE(cuda.HostAlloc(kBytes, &host) == kCudaSuccess);
  REQUIRE((*plugin)->kernels->Fill(DeviceFill::kRandom, 0, 42, {nullptr, 7}, v1::F32, device, kElements, stream) == kCudaSuccess);
  REQUIRE(cuda.MemcpyAsync(host, device, kBytes, stream) == kCudaSuccess);
  REQUIRE(cuda.StreamSynchronize(stream) == kCudaSuccess);

  Fill fill;
  fill.kind = Fill::kRandom;
  const Tensor want = *Tensor::OnHost(v1::F32, {kElements});
  FillTensor(fill, 42, 7, want);
  CHECK(std::memcmp(want.data(), host, kBytes) == 0);
  CHECK(cuda.HostFree(host) == kCudaSuccess);
  CHECK(cuda.Free(device) == kCudaSuccess);
  CHECK(cuda.StreamDestroy(stream) == kCudaSuccess);
}

}  // namespace
}  // namespace weft
