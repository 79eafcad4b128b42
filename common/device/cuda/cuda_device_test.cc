#include "common/device/cuda/cuda_device.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"

namespace weft {
namespace {

struct Gpu {
  explicit Gpu(FakePlugin::Options options = {}) : fake(std::move(options)), kernels(&fake.cuda) {}
  absl::StatusOr<std::unique_ptr<CudaDevice>> Make(int ordinal = 0) { return CudaDevice::Create(fake.plugin(&kernels), Clock::Real(), ordinal); }

  FakePlugin fake;
  FakeKernels kernels;
};

bool Soon(const EventRef& event) {
  const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (!IsReady(event)) {
    if (Clock::Real()->Now() > until) return false;
  }
  return true;
}

TEST_CASE("cuda device: no GPU, and one that does not exist, are refused with what to do") {
  FakePlugin::Options none;
  none.cuda.device_count = 0;
  Gpu without(none);
  const absl::Status refused = without.Make().status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(std::string(refused.message()).find("--device cpu") != std::string::npos);

  Gpu one;
  const absl::Status missing = one.Make(7).status();
  CHECK(absl::IsInvalidArgument(missing));
  CHECK(std::string(missing.message()).find("GPU 7") != std::string::npos);
  one.kernels.FailLoad(kCudaOutOfMemory, "no cuBLAS");
  CHECK(std::string(one.Make().status().message()).find("no cuBLAS") != std::string::npos);
}

TEST_CASE("cuda device: a stream waits on the device for an event of another") {
  Gpu gpu;
  const auto device = *gpu.Make();
  const auto a = *device->NewStream(v1::LANE_COMPUTE), b = *device->NewStream(v1::LANE_COPY);
  std::atomic<bool> go{false};
  std::atomic<int> order{0};
  int first = 0, second = 0;
  Work slow;
  slow.run = [&] {
    gpu.fake.cuda.Enqueue(a->native(), [&] {
      gpu.fake.cuda.WaitUntil([&] { return go.load(); });
      first = ++order;
    });
    return absl::OkStatus();
  };
  const EventRef made = *a->Launch(std::move(slow));
  REQUIRE(device->CanWaitFor(made));
  b->WaitFor(made);
  Work after;
  after.run = [&] {
    gpu.fake.cuda.Enqueue(b->native(), [&] { second = ++order; });
    return absl::OkStatus();
  };
  const EventRef done = *b->Launch(std::move(after));
  CHECK_FALSE(made->Ready());
  CHECK_FALSE(done->Ready());
  go = true;
  REQUIRE(Soon(done));
  CHECK(made->Ready());
  CHECK(first == 1);
  CHECK(second == 2);
  CHECK_FALSE(device->CanWaitFor(std::make_shared<ManualEvent>()));
}

TEST_CASE("cuda device: work for a host thread is refused, and what a launch returns is handed on") {
  Gpu gpu;
  const auto device = *gpu.Make();
  const auto s = *device->NewStream(v1::LANE_COMPUTE);
  Work thread;
  thread.where = Work::kThread;
  CHECK(absl::IsInvalidArgument(s->Launch(std::move(thread)).status()));
  absl::Status status;
  Work fails;
  fails.run = [] { return absl::InternalError("launch failed"); };
  fails.status = &status;
  REQUIRE(s->Launch(std::move(fails)).ok());
  CHECK(status.message() == "launch failed");
}

TEST_CASE("cuda device: after an error for good every event is ready and Health names the GPU and the cause") {
  Gpu gpu;
  const auto device = *gpu.Make();
  const auto s = *device->NewStream(v1::LANE_COMPUTE);
  Work waits;
  waits.run = [&] {
    gpu.fake.cuda.Enqueue(s->native(), [&] { gpu.fake.cuda.WaitUntil([] { return false; }); });
    return absl::OkStatus();
  };
  const EventRef never = *s->Launch(std::move(waits));
  CHECK(device->Health().ok());
  gpu.fake.cuda.BreakDevice(kCudaIllegalAddress);
  CHECK(Soon(never));
  CHECK(std::string(device->Health().message()).find("GPU 0") != std::string::npos);
}

TEST_CASE("cuda device: work that has put nothing on the stream has no event") {
  Gpu gpu;
  const auto device = *gpu.Make();
  const auto s = *device->NewStream(v1::LANE_COMPUTE);
  for (const bool nothing : {true, false}) {
    for (const bool fails : {true, false}) {
      const int64_t records = gpu.fake.cuda.calls("EventRecord");
      absl::Status status;
      bool said = false;
      Work work;
      work.run = [&] {
        said = nothing;
        return fails ? absl::InternalError("no") : absl::OkStatus();
      };
      work.status = &status;
      work.nothing = &said;
      const EventRef e = *s->Launch(std::move(work));
      CHECK((e == nullptr) == (nothing && !fails));
      CHECK(gpu.fake.cuda.calls("EventRecord") == records + (e == nullptr ? 0 : 1));
      CHECK(status.ok() == !fails);
      CHECK(Soon(e));
    }
  }
}

TEST_CASE("cuda device: memory goes at Collect, and what is not there is named") {
  Gpu gpu;
  {
    const auto device = *gpu.Make();
    int order = 0;
    auto memory = *device->Allocate(1000);
    auto host = *device->AllocateHost(1000);
    const auto books = gpu.fake.cuda.books();
    memory.reset();
    host.reset();
    CHECK(device->HasAside());
    CHECK(gpu.fake.cuda.books().allocations == books.allocations);
    CHECK(gpu.fake.cuda.books().host_allocations == books.host_allocations);
    device->PutAside("one", [&] { device->PutAside("another", [&] { order = 1; }); });
    device->Collect();
    CHECK_FALSE(device->HasAside());
    CHECK(order == 1);
    CHECK(gpu.fake.cuda.books().allocations == books.allocations - 1);
    CHECK(gpu.fake.cuda.books().host_allocations == books.host_allocations - 1);
    gpu.fake.cuda.FailCall("Malloc", 1, kCudaOutOfMemory);
    const absl::Status full = device->Allocate(123456).status();
    CHECK(absl::IsResourceExhausted(full));
    CHECK(std::string(full.message()).find("123456") != std::string::npos);
  }
}

TEST_CASE("cuda device: with timing on, marks tell when the device came to them") {
  Gpu gpu;
  const auto device = *gpu.Make();
  const auto s = *device->NewStream(v1::LANE_COMPUTE);
  CHECK(device->Mark(s.get()) == nullptr);
  device->SetTiming(true);
  const Nanos before = Clock::Real()->Now();
  const EventRef mark = device->Mark(s.get());
  REQUIRE(mark != nullptr);
  REQUIRE(Soon(mark));
  const Nanos at = device->TimeOf(mark);
  CHECK(at > before - kNanosPerSecond);
  CHECK(at < Clock::Real()->Now() + kNanosPerSecond);
  device->SetTiming(false);
  CHECK(device->TimeOf(mark) == -1);
  CHECK(gpu.fake.cuda.calls("StreamSynchronize") == 0);
}

// Goes on by `step` with each look at it.
class SteppingClock : public Clock {
 public:
  Nanos Now() const override { return now_ += step; }
  Nanos step = 0;

 private:
  mutable Nanos now_ = 0;
};

TEST_CASE("cuda device: a GPU whose streams stand still has no times, and holds nobody up") {
  Gpu gpu;
  SteppingClock clock;
  const auto device = *CudaDevice::Create(gpu.fake.plugin(&gpu.kernels), &clock, 0);
  const auto s = *device->NewStream(v1::LANE_COMPUTE);
  for (int64_t k = 1; k <= 100; ++k) gpu.fake.cuda.FailCall("EventQuery", k, kCudaNotReady);
  clock.step = 30'000'000;
  device->SetTiming(true);
  const int64_t asked = gpu.fake.cuda.calls("EventQuery");
  CHECK(asked > 1);
  CHECK(asked < 20);
  CHECK(device->Mark(s.get()) == nullptr);
  CHECK(device->Health().ok());
  for (int64_t k = asked; k <= 100; ++k) (void)gpu.fake.cuda.EventQuery(nullptr);
  clock.step = 0;
  device->SetTiming(true);
  CHECK(device->Mark(s.get()) != nullptr);
}

}  // namespace
}  // namespace weft
