#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

// Monotonic time in nanoseconds from an arbitrary origin, the same for all processes of one boot of one host.
using Nanos = int64_t;

constexpr Nanos kNanosPerSecond = 1'000'000'000;

inline double ToSeconds(Nanos n) { return static_cast<double>(n) * 1e-9; }
// Rounds to the nearest nanosecond; saturates, and NaN gives 0, since callers have checked user input before.
Nanos FromSeconds(double s);

// Injected wherever time matters, so that tests need no sleep. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos Now() const = 0;

  // CLOCK_MONOTONIC of this host.
  static Clock* Real();
};

// Stands still until told otherwise.
class FakeClock : public Clock {
 public:
  explicit FakeClock(Nanos start = 0) : now_(start) {}
  Nanos Now() const override { return now_.load(std::memory_order_acquire); }
  void Advance(Nanos d) { now_.fetch_add(d, std::memory_order_acq_rel); }
  void Set(Nanos t) { now_.store(t, std::memory_order_release); }

 private:
  std::atomic<Nanos> now_;
};

}  // namespace weft
