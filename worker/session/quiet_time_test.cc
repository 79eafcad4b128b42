#include "worker/session/quiet_time.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"

namespace weft {
namespace {

struct Worker {
  Worker() : kernels(&fake.cuda), device(*CudaDevice::Create(fake.plugin(&kernels), Clock::Real(), 0)), doorbell(*Doorbell::Create()) {}

  // What the loop does in a turn; false when it was told to keep off the device.
  bool Turn(bool at_rest = true) { return !quiet.Holds(at_rest); }
  // Turns until memory is not being given back.
  bool TurnUntil(const std::function<bool()>& holds) {
    const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
    while (!Turn() || !holds()) {
      if (Clock::Real()->Now() > until) return false;
    }
    return true;
  }

  FakePlugin fake{{}};
  FakeKernels kernels;
  const std::unique_ptr<CudaDevice> device;
  const std::unique_ptr<Doorbell> doorbell;
  DeferredFree deferred{Clock::Real()};
  QuietTime quiet{device.get(), &deferred, doorbell.get()};
};

TEST_CASE("quiet time: memory goes back when the loop rests, and not while something is under way or being connected") {
  Worker w;
  auto memory = *w.device->Allocate(1000);
  const int before = w.fake.cuda.books().allocations;
  CHECK(w.Turn());
  memory.reset();
  for (int i = 0; i < 100; ++i) CHECK(w.Turn(/*at_rest=*/false));
  std::shared_ptr<void> use = *w.quiet.Use();
  for (int i = 0; i < 100; ++i) CHECK(w.Turn());
  CHECK(w.fake.cuda.books().allocations == before);
  const uint32_t seen = w.doorbell->Snapshot();
  use.reset();
  CHECK(w.doorbell->Snapshot() != seen);
  CHECK_FALSE(w.Turn());
  CHECK(w.TurnUntil([&] { return w.fake.cuda.books().allocations == before - 1; }));
}

TEST_CASE("quiet time: the loop keeps off the device, and bootstrap waits, while memory is being given back") {
  Worker w;
  std::atomic<bool> given{false}, used{false};
  w.device->PutAside([&] {
    while (!given.load()) std::this_thread::yield();
  });
  CHECK_FALSE(w.Turn());
  std::thread bootstrap([&] {
    const std::shared_ptr<void> use = *w.quiet.Use();
    used.store(true);
  });
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(w.Turn());
  CHECK_FALSE(used.load());
  given.store(true);
  bootstrap.join();
  CHECK(used.load());
  CHECK(w.TurnUntil([] { return true; }));
}

TEST_CASE("quiet time: who waits for memory to be given back can say so, and gives up at its deadline or when it is told to") {
  Worker w;
  FakeClock clock(kNanosPerSecond);
  std::atomic<bool> given{false};
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock);
  CHECK(quiet.WaitText().empty());
  w.device->PutAside([&] {
    while (!given.load()) std::this_thread::yield();
  });
  REQUIRE(quiet.Holds(true));
  clock.Advance(1'500'000'000);
  const std::string text = quiet.WaitText();
  CHECK(text == "memory of graphs that have ended has been being given back to CUDA for 1.5 s, and until that is over nothing is put on GPU 0");
  const absl::Status late = quiet.Use(clock.Now()).status();
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(late.message() == text);
  std::atomic<bool> cancel{false};
  absl::Status told;
  std::thread bootstrap([&] {
    told = quiet.Use(clock.Now() + 1, [&] { return cancel.load() ? absl::CancelledError("the graph was removed") : absl::OkStatus(); }).status();
  });
  cancel.store(true);
  bootstrap.join();
  CHECK(told == absl::CancelledError("the graph was removed"));
  given.store(true);
  CHECK(quiet.Use().ok());
}

TEST_CASE("quiet time: a call that hangs while memory is being given back is told once, by its GPU") {
  Worker w;
  FakeClock clock;
  std::atomic<bool> given{false};
  std::vector<std::string> told;
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock, [&](const absl::Status& s) { told.emplace_back(s.message()); });
  w.device->PutAside([&] {
    while (!given.load()) std::this_thread::yield();
  });
  CHECK(quiet.Holds(true));
  clock.Advance(QuietTime::kLimit);
  CHECK(quiet.Holds(true));
  CHECK(told.empty());
  clock.Advance(1);
  for (int i = 0; i < 3; ++i) CHECK(quiet.Holds(true));
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("GPU 0") != std::string::npos);
  CHECK(told[0].find("hangs") != std::string::npos);
  given.store(true);
}

TEST_CASE("quiet time: whoever needs memory waits for it, and is told when the graphs do not rest") {
  Worker w;
  auto memory = *w.device->Allocate(1000);
  memory.reset();
  CHECK_FALSE(w.quiet.Await(1));
  std::atomic<bool> stop{false};
  std::thread loop([&] {
    while (!stop.load()) w.Turn();
  });
  CHECK(w.quiet.Await(20 * kNanosPerSecond));
  stop.store(true);
  loop.join();
  CHECK_FALSE(w.device->HasAside());
}

TEST_CASE("quiet time: memory that a peer has open waits for the peer") {
  Worker w;
  uint32_t word = 1;  // a process that is always there
  {
    const auto held = w.deferred.Hold(*w.device->Allocate(1000));
    held->opened.push_back({nullptr, &word});
  }
  const int before = w.fake.cuda.books().allocations;
  for (int i = 0; i < 100; ++i) CHECK(w.Turn());
  CHECK(w.deferred.waiting() == 1);
  word = 0;
  const uint32_t seen = w.doorbell->Snapshot();
  w.quiet.LookAgain();
  CHECK(w.doorbell->Snapshot() != seen);
  CHECK(w.TurnUntil([&] { return w.fake.cuda.books().allocations == before - 1; }));
}

}  // namespace
}  // namespace weft
