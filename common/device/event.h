#pragma once

#include <atomic>
#include <limits>
#include <memory>

#include "common/base/clock.h"

namespace weft {

// A moment in a lane's work. Whoever reads a value whose event is set waits for it first. Thread-safe.
class Event {
 public:
  // ReadyAt() of an event whose time nobody knows: a doorbell will ring.
  static constexpr Nanos kUnknown = std::numeric_limits<Nanos>::max();

  virtual ~Event() = default;
  // Whether the work before it is done and its effects are visible to the caller. Never blocks.
  virtual bool Ready() const = 0;
  // When to ask again if no doorbell rings before.
  virtual Nanos ReadyAt() const { return kUnknown; }
  // Once Ready: when the work began, where that was later than its issue and is known (a transfer begins when both ends have issued
  // it); otherwise -1. For traces.
  virtual Nanos StartedAt() const { return -1; }
  // Whether the work has its place on its stream, so that what is put there from now on comes behind it. Work that is put there later, when
  // the host has seen something, says no until then.
  virtual bool Queued() const { return true; }
  // Does what the host can do for the work by now. Called now and then while nobody asks whether it is ready: what others wait for must not
  // depend on whoever waits for this event.
  virtual void MoveOn() {}
  // For an event of the host that rests on one of the device: that one, once there is one, for a stream to wait for in its place (the host
  // still checks more). nullptr otherwise.
  virtual const Event* OnDevice() const { return nullptr; }
};

// nullptr means ready.
using EventRef = std::shared_ptr<Event>;

inline bool IsReady(const EventRef& e) { return e == nullptr || e->Ready(); }

// Set once by some thread; what that thread wrote before is then visible.
class ManualEvent : public Event {
 public:
  bool Ready() const override { return done_.load(std::memory_order_acquire); }
  void Set() { done_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> done_{false};
};

// Ready from a time on.
class TimedEvent : public Event {
 public:
  TimedEvent(const Clock* clock, Nanos at) : clock_(clock), at_(at) {}
  bool Ready() const override { return clock_->Now() >= at_; }
  Nanos ReadyAt() const override { return at_; }

 private:
  const Clock* const clock_;
  const Nanos at_;
};

}  // namespace weft
