#include "common/device/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cstring>

namespace weft {
namespace {

// nullptr where there is no GPU; then the refusal itself is what is tested.
std::unique_ptr<CudaDevice> GpuOrNull() {
  auto d = CudaDevice::Create(0);
  if (d.ok()) return *std::move(d);
  CHECK(absl::IsUnavailable(d.status()));
  CHECK(std::string(d.status().message()).find("--device cpu") != std::string::npos);
  WARN("no GPU here, so nothing ran on one: " << std::string(d.status().message()));
  return nullptr;
}

TEST_CASE("cuda device: without a GPU it says so; a GPU that does not exist is refused by number") {
  if (GpuOrNull() == nullptr) return;
  const auto none = CudaDevice::Create(4096);
  CHECK(absl::IsInvalidArgument(none.status()));
  CHECK(std::string(none.status().message()).find("4096") != std::string::npos);
}

TEST_CASE("cuda device: a stream runs in order, another waits for its event on the device") {
  const std::unique_ptr<CudaDevice> d = GpuOrNull();
  if (d == nullptr) return;
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

TEST_CASE("cuda device: work for a host thread is refused, and memory that is not there is named") {
  const std::unique_ptr<CudaDevice> d = GpuOrNull();
  if (d == nullptr) return;
  auto s = *d->NewStream(v1::LANE_COMPUTE);
  Work w;
  w.where = Work::kThread;
  CHECK(absl::IsInvalidArgument(s->Launch(std::move(w)).status()));
  const auto huge = d->Allocate(size_t{1} << 50);
  CHECK(absl::IsResourceExhausted(huge.status()));
}

}  // namespace
}  // namespace weft
