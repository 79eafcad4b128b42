// What the fake of the kernels adds to their contract; the contract itself is tested on it by kernels_cases.cc.

#include "common/device/cuda/fake/fake_kernels.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {
namespace {

const ExecutionNumber kNone = {nullptr, 0};

TEST_CASE("fake kernels: nothing runs before they are loaded, and a load can be made to fail") {
  FakeCuda cuda;
  FakeKernels kernels(&cuda);
  const CudaStreamHandle s = NewStream(&cuda);
  CHECK(kernels.Nothing(s) != kCudaSuccess);
  kernels.FailLoad(kCudaOutOfMemory, "no room");
  const char* problem = nullptr;
  CHECK(kernels.Load(&problem) == kCudaOutOfMemory);
  CHECK(std::strcmp(problem, "no room") == 0);
  CHECK(kernels.Nothing(s) != kCudaSuccess);
  CHECK(kernels.Load(&problem) == kCudaSuccess);
  CHECK(kernels.Nothing(s) == kCudaSuccess);
  CHECK(kernels.Delay(1, 1, s) == kCudaInvalidValue);  // not calibrated
  CHECK(kernels.Nothing(reinterpret_cast<void*>(1)) != kCudaSuccess);  // no stream
  CHECK(kernels.OpenStream(s) == kCudaSuccess);
  CHECK(kernels.open_streams() == 1);
  kernels.CloseStream(s);
  CHECK(kernels.open_streams() == 0);
}

TEST_CASE("fake kernels: memory that no device reaches breaks the device, as does address 0") {
  for (const bool host : {true, false}) {
    FakeCuda cuda;
    FakeKernels kernels(&cuda);
    const char* problem = nullptr;
    REQUIRE(kernels.Load(&problem) == kCudaSuccess);
    const CudaStreamHandle s = NewStream(&cuda);
    float x[4] = {};
    if (host) {
      REQUIRE(kernels.Fill(DeviceFill::kNumber, 1, 0, kNone, kDeviceF32, x, 4, s) == kCudaSuccess);
    } else {
      REQUIRE(kernels.IllegalAddress(s) == kCudaSuccess);
    }
    CHECK(cuda.StreamSynchronize(s) == kCudaIllegalAddress);
    CHECK(x[0] == 0);
    CHECK(kernels.Nothing(s) == kCudaIllegalAddress);
  }
}

TEST_CASE("fake kernels: FailOn touches its word in the executions that fail, and in no other") {
  FakeCuda cuda;
  FakeKernels kernels(&cuda);
  const char* problem = nullptr;
  REQUIRE(kernels.Load(&problem) == kCudaSuccess);
  const CudaStreamHandle s = NewStream(&cuda);
  auto* const on = NewMemory<int64_t>(&cuda, 1);
  *on = 3;
  REQUIRE(kernels.FailOn(on, 1, 0, {nullptr, 2}, nullptr, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  REQUIRE(kernels.FailOn(on, 1, 0, {nullptr, 3}, nullptr, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaIllegalAddress);
}

TEST_CASE("fake kernels: a delay holds its stream and no other, and gives way when the device ends") {
  FakeCuda cuda;
  FakeKernels kernels(&cuda);
  const char* problem = nullptr;
  REQUIRE(kernels.Load(&problem) == kCudaSuccess);
  REQUIRE(kernels.Calibrate() == kCudaSuccess);
  const CudaStreamHandle slow = NewStream(&cuda), other = NewStream(&cuda);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(kernels.Delay(30'000'000, 5, slow) == kCudaSuccess);
  CHECK(kernels.last_delay_blocks() == 5);
  CHECK(kernels.last_delay_ns() == 30'000'000);
  REQUIRE(kernels.Nothing(other) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(slow) == kCudaSuccess);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));
  REQUIRE(kernels.Delay(3'600'000'000'000, 1, slow) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(other) == kCudaSuccess);
  CHECK(cuda.StreamQuery(slow) == kCudaNotReady);
}  // an hour is not waited for

TEST_CASE("fake kernels: the first product of a shape waits for what is on the device, the next does not") {
  FakeCuda cuda;
  FakeKernels kernels(&cuda);
  const char* problem = nullptr;
  REQUIRE(kernels.Load(&problem) == kCudaSuccess);
  const CudaStreamHandle busy = NewStream(&cuda), s = NewStream(&cuda);
  float* const x = NewMemory<float>(&cuda, 64);
  const auto product = [&](int64_t n) {
    return kernels.Gemm(kDeviceF32, DevicePrecision::kFp32, x, false, x + 16, false, x + 32, n, n, n, false, s);
  };
  Gate gate;
  REQUIRE(gate.Hold(&cuda, busy) == kCudaSuccess);
  std::atomic<int> code{-1};
  std::thread loads([&] { code = product(4); });
  CHECK(Eventually([&] { return cuda.calls("LoadCode") == 1; }));
  CHECK(code == -1);
  gate.Open();
  loads.join();
  CHECK(code == kCudaSuccess);
  Gate again;
  REQUIRE(again.Hold(&cuda, busy) == kCudaSuccess);
  CHECK(product(4) == kCudaSuccess);  // does not wait
  CHECK(cuda.calls("LoadCode") == 1);
  again.Open();
  CHECK(product(3) == kCudaSuccess);
  CHECK(cuda.calls("LoadCode") == 2);
}

TEST_CASE("fake kernels: what is captured runs for each launch, with the counter's number") {
  FakeCuda cuda;
  FakeKernels kernels(&cuda);
  const char* problem = nullptr;
  REQUIRE(kernels.Load(&problem) == kCudaSuccess);
  const CudaStreamHandle s = NewStream(&cuda);
  int64_t* const counter = NewMemory<int64_t>(&cuda, 1);
  float* const x = NewMemory<float>(&cuda, 3);
  *counter = -1;
  REQUIRE(cuda.BeginCapture(s) == kCudaSuccess);
  REQUIRE(kernels.Advance(counter, s) == kCudaSuccess);
  REQUIRE(kernels.Fill(DeviceFill::kExecution, 0, 0, {counter, 99}, kDeviceF32, x, 3, s) == kCudaSuccess);
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(cuda.EndCapture(s, &graph) == kCudaSuccess);
  REQUIRE(cuda.GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (int k = 0; k < 3; ++k) {
    REQUIRE(cuda.GraphLaunch(exec, s) == kCudaSuccess);
    REQUIRE(cuda.StreamSynchronize(s) == kCudaSuccess);
    CHECK(x[2] == k);
  }
}

}  // namespace
}  // namespace weft
