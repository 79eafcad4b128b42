#include "common/device/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cstring>

namespace weft {
namespace {

TEST_CASE("cuda device: without a GPU it says so and what to do; a GPU that does not exist is refused by number") {
  const auto gpu = CudaDevice::Create(0);
  const auto none = CudaDevice::Create(4096);
  if (gpu.ok()) {
    CHECK(absl::IsInvalidArgument(none.status()));
    CHECK(std::string(none.status().message()).find("4096") != std::string::npos);
  } else {
    CHECK(absl::IsUnavailable(gpu.status()));
    CHECK(std::string(gpu.status().message()).find("--device cpu") != std::string::npos);
    CHECK(none.status() == gpu.status());
  }
}

// [gpu] cases need one and are hidden from a plain run: //common/device/cuda:cuda_gpu_test runs them where there is a GPU.
TEST_CASE("cuda device: a stream runs in order, another waits for its event on the device", "[.][gpu]") {
  const auto device = CudaDevice::Create(0);
  REQUIRE(device.ok());
  CudaDevice* const d = device->get();
  constexpr size_t kBytes = 64 << 20;
  const auto memory = *d->Allocate(kBytes);
  auto a = *d->NewStream(v1::LANE_COMPUTE);
  auto b = *d->NewStream(v1::LANE_COPY);
  const auto stream = [](Stream* s) { return static_cast<cudaStream_t>(s->native()); };
  Work fill;
  fill.run = [&] { return cudaMemsetAsync(memory.get(), 7, kBytes, stream(a.get())) == cudaSuccess ? absl::OkStatus() : absl::InternalError("memset"); };
  const EventRef filled = *a->Launch(std::move(fill));
  REQUIRE(d->CanWaitFor(filled));
  b->WaitFor(filled);
  std::vector<char> host(kBytes, 0);
  Work copy;
  copy.run = [&] {
    return cudaMemcpyAsync(host.data(), memory.get(), kBytes, cudaMemcpyDeviceToHost, stream(b.get())) == cudaSuccess ? absl::OkStatus()
                                                                                                                       : absl::InternalError("copy");
  };
  const EventRef copied = *b->Launch(std::move(copy));
  while (!copied->Ready()) {
  }
  CHECK(filled->Ready());
  CHECK(host.front() == 7);
  CHECK(host.back() == 7);
  CHECK(d->Health().ok());
  CHECK_FALSE(d->CanWaitFor(std::make_shared<ManualEvent>()));
}

TEST_CASE("cuda device: work for a host thread is refused, and memory that is not there is named", "[.][gpu]") {
  const auto device = CudaDevice::Create(0);
  REQUIRE(device.ok());
  CudaDevice* const d = device->get();
  auto s = *d->NewStream(v1::LANE_COMPUTE);
  Work w;
  w.where = Work::kThread;
  CHECK(absl::IsInvalidArgument(s->Launch(std::move(w)).status()));
  const auto huge = d->Allocate(size_t{1} << 50);
  CHECK(absl::IsResourceExhausted(huge.status()));
}

}  // namespace
}  // namespace weft
