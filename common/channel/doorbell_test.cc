#include "common/channel/doorbell.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <thread>

namespace weft {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

Nanos In(Nanos d) { return Clock::Real()->Now() + d; }

TEST_CASE("doorbell: a ring before the wait is not lost") {
  auto bell = Doorbell::InProcess();
  const uint32_t seen = bell->Snapshot();
  bell->Ring();
  CHECK(bell->Wait(seen, kForever, 0));
  CHECK_FALSE(bell->Wait(bell->Snapshot(), In(1000000), 0));
  CHECK_FALSE(bell->Wait(bell->Snapshot(), 0, 0));
  CHECK_FALSE(bell->Wait(bell->Snapshot(), -5, 1000));
}

TEST_CASE("doorbell: no ring is lost between two threads, sleeping and spinning") {
  for (const Nanos spin : {Nanos{0}, Nanos{20000}}) {
    auto a = Doorbell::InProcess();
    auto b = Doorbell::InProcess();
    constexpr int kRounds = 3000;
    std::atomic<int> ping{0}, pong{0};
    std::thread other([&] {
      for (int i = 1; i <= kRounds; ++i) {
        for (;;) {
          const uint32_t seen = b->Snapshot();
          if (ping.load(std::memory_order_relaxed) >= i) break;
          b->Wait(seen, kForever, spin);
        }
        pong.store(i, std::memory_order_relaxed);
        a->Ring();
      }
    });
    for (int i = 1; i <= kRounds; ++i) {
      ping.store(i, std::memory_order_relaxed);
      b->Ring();
      for (;;) {
        const uint32_t seen = a->Snapshot();
        if (pong.load(std::memory_order_relaxed) >= i) break;
        a->Wait(seen, kForever, spin);
      }
    }
    other.join();
    CHECK(pong.load() == kRounds);
  }
}

TEST_CASE("doorbell: wakes another process") {
  auto bell = *Doorbell::Create();
  const uint32_t seen = bell->Snapshot();
  const pid_t child = fork();
  if (child == 0) {
    auto theirs = Doorbell::Attach(dup(bell->fd()));
    if (!theirs.ok()) _exit(1);
    (*theirs)->Ring();
    _exit(0);
  }
  CHECK(bell->Wait(seen, In(10 * kNanosPerSecond), 0));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("doorbell: what is no doorbell is refused") {
  CHECK_FALSE(Doorbell::Attach(-1).ok());
  int p[2];
  REQUIRE(pipe(p) == 0);
  CHECK_FALSE(Doorbell::Attach(p[0]).ok());
  close(p[1]);
  const int unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(unsealed, 4096) == 0);
  CHECK_FALSE(Doorbell::Attach(unsealed).ok());  // its owner could shrink it under us
}

TEST_CASE("doorbell: garbage in the word does no harm") {
  auto bell = *Doorbell::Create();
  void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bell->fd(), 0);
  REQUIRE(p != MAP_FAILED);
  const uint32_t seen = bell->Snapshot();
  std::memset(p, 0xA5, 4096);
  CHECK(bell->Wait(seen, In(kNanosPerSecond), 0));
  bell->Ring();
  CHECK_FALSE(bell->Wait(bell->Snapshot(), In(1000000), 1000));
  munmap(p, 4096);
}

}  // namespace
}  // namespace weft
