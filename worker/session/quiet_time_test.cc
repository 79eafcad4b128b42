#include "worker/session/quiet_time.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
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

  // Puts aside something whose giving back lasts until `given`.
  void PutBlock(const std::atomic<bool>* given) {
    device->PutAside("a block", [given] {
      while (!given->load()) std::this_thread::yield();
    });
  }
  // A bootstrap that puts something on the device, as soon as it may.
  std::thread UseOnce(std::atomic<bool>* used) {
    return std::thread([this, used] {
      const std::shared_ptr<void> use = *quiet.Use();
      used->store(true);
    });
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
  w.PutBlock(&given);
  CHECK_FALSE(w.Turn());
  std::thread bootstrap = w.UseOnce(&used);
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(w.Turn());
  CHECK_FALSE(used.load());
  given.store(true);
  bootstrap.join();
  CHECK(used.load());
  CHECK(w.TurnUntil([] { return true; }));
}

// A thread that asks for a rest and keeps it until it is told to end.
struct Rester {
  Rester(QuietTime* quiet, const std::string& graph, Nanos deadline = std::numeric_limits<Nanos>::max(), std::function<absl::Status()> cancelled = {})
      : thread([=, this] {
          auto rest = quiet->Rest(graph, deadline, cancelled);
          status = rest.status();
          rests.store(rest.ok());
          while (rest.ok() && !end.load()) std::this_thread::yield();
        }) {}
  ~Rester() { End(); }
  void End() {
    end.store(true);
    if (thread.joinable()) thread.join();
  }

  std::atomic<bool> rests{false}, end{false};
  absl::Status status;  // once it has ended
  std::thread thread;
};

bool Soon(const std::function<bool()>& holds) {
  const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (!holds()) {
    if (Clock::Real()->Now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_CASE("quiet time: who loads device code has the device alone once nothing is under way, and no execution begins until then") {
  Worker w;
  CHECK_FALSE(w.quiet.Pauses());
  CHECK(w.quiet.WaitText().empty());
  Rester first(&w.quiet, "g");
  REQUIRE(Soon([&] { return w.quiet.Pauses(); }));
  CHECK(w.quiet.WaitText().find("no execution has been begun for 0.") == 0);
  CHECK(w.quiet.WaitText().find(" s: when those under way are done, device code that graph g needs is loaded on GPU 0") != std::string::npos);
  for (int i = 0; i < 100; ++i) CHECK(w.Turn(/*at_rest=*/false));
  CHECK_FALSE(first.rests.load());
  CHECK_FALSE(w.Turn());
  REQUIRE(Soon([&] { return first.rests.load(); }));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(w.Turn());
  CHECK(w.quiet.WaitText().find("device code that graph g needs has been being loaded for ") == 0);
  // Bootstrap of others waits, and says for what; who else loads comes next.
  CHECK(w.quiet.Use(Clock::Real()->Now()).status().message().find("device code that graph g needs") == 0);
  const uint32_t before = w.doorbell->Snapshot();
  Rester second(&w.quiet, "h");
  REQUIRE(Soon([&] { return w.doorbell->Snapshot() != before; }));  // it waits
  first.End();
  REQUIRE(Soon([&] { return second.rests.load(); }));
  CHECK(w.quiet.WaitText().find("device code that graph h needs has been being loaded for ") == 0);
  CHECK_FALSE(w.Turn());
  const uint32_t seen = w.doorbell->Snapshot();
  second.End();
  CHECK(w.doorbell->Snapshot() != seen);
  CHECK(w.Turn());
  CHECK_FALSE(w.quiet.Pauses());
  CHECK(w.quiet.WaitText().empty());
  CHECK(w.quiet.Use().ok());
}

TEST_CASE("quiet time: while another graph is in its bootstrap nobody rests, and executions begin as ever") {
  Worker w;
  CHECK_FALSE(w.quiet.InUse());
  std::shared_ptr<void> use = *w.quiet.Use();
  CHECK(w.quiet.InUse());
  Rester rester(&w.quiet, "g");
  REQUIRE(Soon([&] { return !w.quiet.WaitText().empty(); }));
  CHECK(w.quiet.WaitText() == "device code that graph g needs is loaded on GPU 0 when no other graph of this worker is in its bootstrap");
  CHECK_FALSE(w.quiet.Pauses());
  for (int i = 0; i < 100; ++i) CHECK(w.Turn());
  CHECK_FALSE(rester.rests.load());
  use.reset();
  CHECK_FALSE(w.quiet.InUse());
  CHECK(w.quiet.Pauses());
  CHECK_FALSE(w.Turn());
  REQUIRE(Soon([&] { return rester.rests.load(); }));
}

TEST_CASE("quiet time: a rest that does not come is given up at its deadline or when it is told to, and leaves nobody waiting") {
  Worker w;
  FakeClock clock(kNanosPerSecond);
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock);
  const absl::Status late = quiet.Rest("g", clock.Now()).status();
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(late.message() == "no execution has been begun for 0.0 s: when those under way are done, device code that graph g needs is loaded on GPU 0; that did not "
                          "come: see what holds the others up with `weft inspect`, or remove them");
  CHECK_FALSE(quiet.Pauses());
  CHECK_FALSE(quiet.Holds(true));
  std::atomic<bool> cancel{false};
  Rester rester(&quiet, "g", clock.Now() + 1, [&] { return cancel.load() ? absl::CancelledError("the graph was removed") : absl::OkStatus(); });
  REQUIRE(Soon([&] { return quiet.Pauses(); }));
  cancel.store(true);
  rester.End();
  CHECK(rester.status == absl::CancelledError("the graph was removed"));
  CHECK_FALSE(quiet.Pauses());
  CHECK_FALSE(quiet.Holds(true));
}

TEST_CASE("quiet time: who gives up waiting for a rest is named no more, and what the one that has it may take goes on being counted") {
  Worker w;
  FakeClock clock(kNanosPerSecond);
  std::vector<std::string> told;
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock, [&](const absl::Status& s) { told.emplace_back(s.message()); });
  const Nanos never = std::numeric_limits<Nanos>::max();
  std::atomic<bool> first_gives_up{false}, third_gives_up{false};
  const auto when = [](const std::atomic<bool>* up) { return [up] { return up->load() ? absl::CancelledError("removed") : absl::OkStatus(); }; };
  Rester first(&quiet, "first", never, when(&first_gives_up));
  REQUIRE(Soon([&] { return quiet.WaitText().find("graph first needs") != std::string::npos; }));
  Rester second(&quiet, "second", never);
  first_gives_up = true;
  first.End();
  REQUIRE(Soon([&] { return quiet.WaitText().find("graph second needs") != std::string::npos; }));
  CHECK(quiet.Holds(true));
  REQUIRE(Soon([&] { return second.rests.load(); }));
  Rester third(&quiet, "third", never, when(&third_gives_up));
  clock.Advance(QuietTime::kLimit);
  third_gives_up = true;
  third.End();
  CHECK(quiet.Holds(true));
  CHECK(told.empty());
  CHECK(quiet.WaitText().find("device code that graph second needs has been being loaded for 60.0 s") == 0);
  clock.Advance(1);
  CHECK(quiet.Holds(true));
  CHECK(told.size() == 1);
}

TEST_CASE("quiet time: who waits for a rest has it as soon as memory is given back, ahead of bootstraps that wait for that too") {
  Worker w;
  std::atomic<bool> given{false}, used{false};
  w.PutBlock(&given);
  CHECK_FALSE(w.Turn());
  std::thread bootstrap = w.UseOnce(&used);
  Rester rester(&w.quiet, "g");
  REQUIRE(Soon([&] { return w.quiet.Pauses(); }));
  given.store(true);
  // Though the loop does not come to rest again.
  REQUIRE(Soon([&] { return rester.rests.load(); }));
  CHECK_FALSE(w.Turn(/*at_rest=*/false));
  CHECK_FALSE(used.load());
  rester.End();
  bootstrap.join();
  CHECK(used.load());
  CHECK(w.TurnUntil([] { return true; }));
}

TEST_CASE("quiet time: many threads that rest, use and give up, beside memory that goes back, each alone on the device and none left behind") {
  Worker w;
  std::atomic<int> resting{0}, using_{0}, giving{0}, wrong{0}, rests{0}, ended{0};
  std::atomic<bool> at_rest{false};
  constexpr int kThreads = 8, kRounds = 100;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < kRounds; ++k) {
        if (i % 4 == 3) {
          const auto use = w.quiet.Use();
          ++using_;
          if (resting > 0 || giving > 0) ++wrong;
          std::this_thread::yield();
          --using_;
        } else if (i % 4 == 2) {
          w.device->PutAside("a block", [&] {
            ++giving;
            if (resting > 0 || using_ > 0) ++wrong;
            --giving;
          });
          w.quiet.LookAgain();
        } else {
          int asked = 0;  // every third gives up soon
          const auto rest = w.quiet.Rest("g", std::numeric_limits<Nanos>::max(), [&] {
            return k % 3 == 0 && ++asked > 2 ? absl::CancelledError("removed") : absl::OkStatus();
          });
          if (!rest.ok()) continue;
          if (++resting > 1 || using_ > 0 || giving > 0 || !at_rest) ++wrong;
          std::this_thread::yield();
          ++rests;
          --resting;
        }
      }
      ++ended;
    });
  }
  // The loop, for which something is under way every other turn unless it is to keep off.
  const Nanos until = Clock::Real()->Now() + 60 * kNanosPerSecond;
  bool held = false;
  for (int turn = 0; ended < kThreads && Clock::Real()->Now() < until; ++turn) {
    if (!held) at_rest = turn % 2 == 0;
    held = w.quiet.Holds(at_rest);
    std::this_thread::yield();
  }
  REQUIRE(ended == kThreads);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(rests >= kThreads / 2 * kRounds * 2 / 3);
  CHECK_FALSE(w.quiet.Pauses());
  CHECK(w.TurnUntil([&] { return !w.device->HasAside(); }));
  CHECK(w.quiet.WaitText().empty());
}

TEST_CASE("quiet time: memory goes back before anyone rests, and a load that hangs is told once, by its GPU") {
  Worker w;
  FakeClock clock;
  std::vector<std::string> told;
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock, [&](const absl::Status& s) { told.emplace_back(s.message()); });
  std::atomic<bool> given{false};
  w.PutBlock(&given);
  Rester rester(&quiet, "g");
  REQUIRE(Soon([&] { return quiet.Pauses(); }));
  for (int i = 0; i < 100; ++i) CHECK(quiet.Holds(true));
  CHECK_FALSE(rester.rests.load());
  CHECK(quiet.WaitText().find("memory of graphs that have ended") == 0);
  given.store(true);
  REQUIRE(Soon([&] { return quiet.Holds(true) && rester.rests.load(); }));
  clock.Advance(QuietTime::kLimit);
  CHECK(quiet.Holds(true));
  CHECK(told.empty());
  clock.Advance(1);
  CHECK(quiet.Holds(true));
  CHECK(quiet.Holds(true));
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "GPU 0 of this worker: device code that graph g needs is being loaded for more than 60 s: a call of CUDA or NCCL hangs");
}

TEST_CASE("quiet time: who waits for memory to be given back can say so, and gives up at its deadline or when it is told to") {
  Worker w;
  FakeClock clock(kNanosPerSecond);
  std::atomic<bool> given{false};
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock);
  CHECK(quiet.WaitText().empty());
  w.PutBlock(&given);
  REQUIRE(quiet.Holds(true));
  clock.Advance(1'500'000'000);
  std::string text;
  REQUIRE(Soon([&] {
    text = quiet.WaitText();
    return text.find("(now") != std::string::npos;
  }));
  CHECK(text == "memory of graphs that have ended has been being given back to CUDA for 1.5 s (now a block), and until that is over nothing is put on GPU 0");
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
  w.PutBlock(&given);
  CHECK(quiet.Holds(true));
  REQUIRE(Soon([&] { return w.device->Collecting() == "now a block"; }));
  clock.Advance(QuietTime::kLimit);
  CHECK(quiet.Holds(true));
  CHECK(told.empty());
  clock.Advance(1);
  for (int i = 0; i < 3; ++i) CHECK(quiet.Holds(true));
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "GPU 0 of this worker: memory of graphs that have ended is being given back to CUDA (now a block), of which no call has ended for more than 60 s: "
                   "a call of CUDA or NCCL hangs");
  given.store(true);
}

TEST_CASE("quiet time: many calls that give back, none of which hangs, may take longer together than one may") {
  Worker w;
  FakeClock clock;
  std::atomic<int> may_end{0};
  constexpr int kCalls = 5;
  std::vector<std::string> told;
  QuietTime quiet(w.device.get(), &w.deferred, w.doorbell.get(), &clock, [&](const absl::Status& s) { told.emplace_back(s.message()); });
  for (int i = 0; i < kCalls; ++i) {
    w.device->PutAside(absl::StrCat("block ", i), [&may_end, i] {
      while (may_end.load() <= i) std::this_thread::yield();
    });
  }
  CHECK(quiet.Holds(true));
  for (int i = 0; i < kCalls - 1; ++i) {
    clock.Advance(QuietTime::kLimit - 1);
    CHECK(quiet.Holds(true));
    const int64_t ended = w.device->Collected();
    may_end.store(i + 1);
    REQUIRE(Soon([&] { return w.device->Collected() == ended + 1; }));
    CHECK(quiet.Holds(true));
  }
  CHECK(told.empty());
  REQUIRE(Soon([&] { return w.device->Collecting() == "now block 4"; }));
  clock.Advance(QuietTime::kLimit + 1);
  CHECK(quiet.Holds(true));
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("(now block 4), of which no call has ended for more than 60 s") != std::string::npos);
  may_end.store(kCalls);
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
