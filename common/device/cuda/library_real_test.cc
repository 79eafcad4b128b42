// The library that was built, on this machine: with a GPU or without.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/library.h"

namespace weft {
namespace {

const CudaPlugin& Plugin() {
  const auto plugin = LoadCudaPlugin("common/device/cuda/plugin/libweft_cuda.so");
  INFO(plugin.status().ToString());
  REQUIRE(plugin.ok());
  return **plugin;
}

TEST_CASE("real cuda library: it loads, once, and is of this version") {
  const CudaPlugin& plugin = Plugin();
  CHECK(plugin.version == kCudaPluginVersion);
  CHECK(&Plugin() == &plugin);
}

TEST_CASE("real cuda library: it counts GPUs, or says in a code and words why it cannot") {
  CudaApi& cuda = *Plugin().cuda;
  int count = -1;
  const int code = cuda.DeviceCount(&count);
  if (code == kCudaSuccess) {
    CHECK(count > 0);
  } else {
    CHECK(count == 0);
    CHECK(std::strlen(cuda.ErrorName(code)) > 0);
    CHECK(std::strlen(cuda.ErrorText(code)) > 0);
    WARN("DeviceCount: " << code << " " << cuda.ErrorName(code) << ", " << cuda.ErrorText(code));
    // And so does everything else, without a crash.
    CHECK(cuda.SetDevice(0) != kCudaSuccess);
    CudaDeviceInfo info;
    CHECK(cuda.GetDeviceInfo(0, &info) != kCudaSuccess);
    CudaStreamHandle stream = nullptr;
    CHECK(cuda.StreamCreate(0, &stream) != kCudaSuccess);
    uint32_t word = 0;
    CHECK(cuda.StreamWrite32(nullptr, &word, 1) != kCudaSuccess);
    CHECK(cuda.StreamWait32(nullptr, &word, 0) != kCudaSuccess);
    const char* problem = nullptr;
    CHECK(Plugin().kernels->Load(&problem) != kCudaSuccess);
    REQUIRE(problem != nullptr);
    CHECK(std::strlen(problem) > 0);
    CHECK(Plugin().kernels->Nothing(nullptr) != kCudaSuccess);
  }
  int driver = -1, runtime = -1;
  CHECK(cuda.Versions(&driver, &runtime) == kCudaSuccess);
  CHECK(runtime >= 12000);
  cuda.RangePush("range");
  cuda.RangePop();
}

TEST_CASE("real cuda library: NCCL is there, or it is said why not") {
  const CudaPlugin& plugin = Plugin();
  if (plugin.nccl == nullptr) {
    REQUIRE(plugin.nccl_problem != nullptr);
    WARN(plugin.nccl_problem);
    CHECK(std::strlen(plugin.nccl_problem) > 0);
    return;
  }
  int version = 0;
  REQUIRE(plugin.nccl->Version(&version) == kNcclSuccess);
  CHECK(version >= 21800);
  CHECK(std::strlen(plugin.nccl->ErrorText(kNcclInvalidUsage)) > 0);
}

TEST_CASE("real cuda library: what kernels do not take is refused before anything is launched") {
  KernelsApi& k = *Plugin().kernels;
  const ExecutionNumber e = {nullptr, 0};
  CHECK(k.Fill(DeviceFill::kNumber, 0, 0, e, 77, nullptr, 1, nullptr) == kCudaInvalidValue);
  CHECK(k.Fill(DeviceFill::kNumber, 0, 0, e, kDeviceF32, nullptr, -1, nullptr) == kCudaInvalidValue);
  CHECK(k.Add(kDeviceBool, nullptr, 1, nullptr, 1, nullptr) == kCudaInvalidValue);
  CHECK(k.Add(kDeviceF32, nullptr, 65, nullptr, 1, nullptr) == kCudaInvalidValue);
  CHECK(k.Scale(0, nullptr, 1, nullptr, 1, nullptr) == kCudaInvalidValue);
  CHECK(k.Reduce(DeviceReduce::kMean, kDeviceI32, nullptr, 1, 1, 1, nullptr, nullptr) == kCudaInvalidValue);
  CHECK(k.Matmul(kDeviceBool, DevicePrecision::kFp32, nullptr, nullptr, nullptr, 1, 1, 1, nullptr) == kCudaInvalidValue);
  CHECK(k.Linear(kDeviceI32, DevicePrecision::kFp32, DeviceActivation::kNone, nullptr, nullptr, nullptr, nullptr, 1, 1, 1, nullptr) ==
        kCudaInvalidValue);
  CHECK(k.CheckFinite(kDeviceI32, nullptr, 1, 0, e, nullptr, nullptr) == kCudaInvalidValue);
  CHECK(k.Delay(1, 0, nullptr) == kCudaInvalidValue);
  CHECK(k.CombineStatus(nullptr, 65, nullptr, nullptr) == kCudaInvalidValue);
}

}  // namespace
}  // namespace weft
