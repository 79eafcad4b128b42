#include "common/device/cpu/cpu_device.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace weft {
namespace {

constexpr Nanos kForever = Event::kUnknown;

// Waits for `event` as the loop does.
void Await(Doorbell* bell, const EventRef& event) {
  for (;;) {
    const uint32_t seen = bell->Snapshot();
    if (IsReady(event)) return;
    bell->Wait(seen, event->ReadyAt(), 0);
  }
}

struct Fixture {
  FakeClock clock{1000};
  std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  std::unique_ptr<CpuDevice> device = std::make_unique<CpuDevice>(&clock, bell.get());
  std::unique_ptr<Stream> stream = *device->NewStream(v1::LANE_COMPUTE);
};

Work Do(Work::Where where, std::function<void()> f) {
  Work w;
  w.where = where;
  w.run = [f = std::move(f)] {
    f();
    return absl::OkStatus();
  };
  return w;
}

TEST_CASE("cpu: inline work runs on the caller's thread at once") {
  Fixture f;
  std::thread::id ran;
  absl::Status status = absl::UnknownError("not yet");
  Work w = Do(Work::kInline, [&] { ran = std::this_thread::get_id(); });
  w.status = &status;
  const EventRef e = *f.stream->Launch(std::move(w));
  CHECK(ran == std::this_thread::get_id());
  CHECK(IsReady(e));
  CHECK(status.ok());
}

TEST_CASE("cpu: thread work keeps the order of launches, across streams of one kind") {
  Fixture f;
  auto other = *f.device->NewStream(v1::LANE_COMPUTE);
  std::vector<int> order;
  EventRef last;
  for (int i = 0; i < 200; ++i) {
    last = *(i % 2 == 0 ? f.stream : other)->Launch(Do(Work::kThread, [&order, i] { order.push_back(i); }));
  }
  Await(f.bell.get(), last);
  REQUIRE(order.size() == 200);
  for (int i = 0; i < 200; ++i) CHECK(order[i] == i);
}

TEST_CASE("cpu: errors and exceptions become the status") {
  Fixture f;
  for (const Work::Where where : {Work::kInline, Work::kThread}) {
    absl::Status a, b;
    Work w;
    w.where = where;
    w.run = [] { return absl::InvalidArgumentError("no"); };
    w.status = &a;
    Await(f.bell.get(), *f.stream->Launch(std::move(w)));
    Work t;
    t.where = where;
    t.run = []() -> absl::Status { throw std::bad_alloc(); };
    t.status = &b;
    Await(f.bell.get(), *f.stream->Launch(std::move(t)));
    CHECK(a.code() == absl::StatusCode::kInvalidArgument);
    CHECK(b.code() == absl::StatusCode::kResourceExhausted);
  }
}

TEST_CASE("cpu: a hold is read after the work and ends by the clock") {
  Fixture f;
  Nanos hold = 0;
  Work w = Do(Work::kInline, [&] { hold = 500; });
  w.hold = &hold;
  const EventRef e = *f.stream->Launch(std::move(w));
  REQUIRE(e != nullptr);
  CHECK_FALSE(e->Ready());
  CHECK(e->ReadyAt() == 1500);
  f.clock.Advance(499);
  CHECK_FALSE(e->Ready());
  f.clock.Advance(1);
  CHECK(e->Ready());
}

TEST_CASE("cpu: an absurd hold does not overflow") {
  Fixture f;
  Nanos hold = std::numeric_limits<Nanos>::max();
  Work w = Do(Work::kInline, [] {});
  w.hold = &hold;
  const EventRef e = *f.stream->Launch(std::move(w));
  CHECK_FALSE(IsReady(e));
  CHECK(e->ReadyAt() == std::numeric_limits<Nanos>::max());
}

TEST_CASE("cpu: work behind a hold waits for it, work of other streams does not") {
  Fixture f;
  auto other = *f.device->NewStream(v1::LANE_COMPUTE);
  Nanos hold = 500;
  Work w = Do(Work::kInline, [] {});
  w.hold = &hold;
  const EventRef held = *f.stream->Launch(std::move(w));
  std::atomic<bool> behind{false};
  const EventRef e = *f.stream->Launch(Do(Work::kInline, [&] { behind = true; }));
  Await(f.bell.get(), *other->Launch(Do(Work::kThread, [] {})));
  CHECK_FALSE(behind.load());
  CHECK_FALSE(IsReady(e));
  f.clock.Advance(500);
  CHECK(held->Ready());
  Await(f.bell.get(), e);
  CHECK(behind.load());
}

TEST_CASE("cpu: a transfer's copy goes on beside a long computation") {
  Fixture f;
  auto send = *f.device->NewStream(v1::LANE_SEND);
  std::atomic<bool> stop{false};
  const EventRef compute = *f.stream->Launch(Do(Work::kThread, [&] {
    while (!stop.load()) std::this_thread::yield();
  }));
  Await(f.bell.get(), *send->Launch(Do(Work::kThread, [] {})));
  CHECK_FALSE(IsReady(compute));
  stop = true;
  Await(f.bell.get(), compute);
}

TEST_CASE("cpu: destruction drops what is queued and tells") {
  FakeClock clock;
  auto bell = Doorbell::InProcess();
  auto device = std::make_unique<CpuDevice>(&clock, bell.get());
  auto stream = *device->NewStream(v1::LANE_COMPUTE);
  std::atomic<bool> started{false}, go{false};
  const EventRef running = *stream->Launch(Do(Work::kThread, [&] {
    started = true;
    while (!go.load()) std::this_thread::yield();
  }));
  while (!started.load()) std::this_thread::yield();
  absl::Status status;
  bool ran = false;
  Work w = Do(Work::kThread, [&] { ran = true; });
  w.status = &status;
  const EventRef queued = *stream->Launch(std::move(w));
  std::thread helper([&] {
    while (!queued->Ready()) std::this_thread::yield();  // set although the thread is still busy
    go = true;
  });
  device.reset();
  helper.join();
  CHECK_FALSE(ran);
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(running->Ready());
  CHECK(stream->Launch(Do(Work::kInline, [] {})).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("cpu: destruction does not wait for a hold") {
  FakeClock clock;
  CpuDevice* device = new CpuDevice(&clock, nullptr);
  auto stream = *device->NewStream(v1::LANE_COMPUTE);
  Nanos hold = 1'000'000'000'000;
  Work w = Do(Work::kThread, [] {});
  w.hold = &hold;
  const EventRef first = *stream->Launch(std::move(w));
  absl::Status status;
  Work behind = Do(Work::kThread, [] {});
  behind.status = &status;
  const EventRef e = *stream->Launch(std::move(behind));
  while (first->ReadyAt() == kForever) std::this_thread::yield();
  delete device;
  CHECK(e->Ready());
  CHECK(status.code() == absl::StatusCode::kCancelled);
}

TEST_CASE("cpu: memory is aligned, and too much of it is an error that names the size") {
  Fixture f;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{255}, size_t{4097}}) {
    auto m = f.device->Allocate(n);
    REQUIRE(m.ok());
    CHECK(reinterpret_cast<uintptr_t>(m->get()) % 256 == 0);
  }
  for (const size_t n : {size_t{1} << 60, ~size_t{0}}) {
    auto m = f.device->Allocate(n);
    REQUIRE_FALSE(m.ok());
    CHECK(m.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(m.status().message()).find(std::to_string(n)) != std::string::npos);
  }
}

}  // namespace
}  // namespace weft
