#include "common/device/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kThreads = 3;
// Another clock than the real one cannot wake a thread: work behind a hold then looks at it this often.
constexpr Nanos kForeignClockPoll = 1'000'000;

int ThreadOf(v1::LaneKind lane) {
  switch (lane) {
    case v1::LANE_SEND:
    case v1::LANE_RECV:
    case v1::LANE_COPY:
      return 1;
    case v1::LANE_COLLECTIVE:
      return 2;
    default:
      return 0;
  }
}

// Done, and then held until a time.
class WorkEvent : public Event {
 public:
  explicit WorkEvent(const Clock* clock) : clock_(clock) {}
  bool Ready() const override {
    return done_.load(std::memory_order_acquire) && (held_until_ == kNoHold || clock_->Now() >= held_until_);
  }
  Nanos ReadyAt() const override { return done_.load(std::memory_order_acquire) ? held_until_ : kUnknown; }
  void Set(Nanos held_until) {
    held_until_ = held_until;
    done_.store(true, std::memory_order_release);
  }
  static constexpr Nanos kNoHold = std::numeric_limits<Nanos>::min();

 private:
  const Clock* const clock_;
  std::atomic<bool> done_{false};
  Nanos held_until_ = kNoHold;  // written before done_
};

absl::Status Run(const Work& work) {
  if (!work.run) return absl::OkStatus();
  try {
    return work.run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory left for the work");
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("the work threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("the work threw something that is no std::exception");
  }
}

// Saturates: an absurd hold is a long one, not an overflow.
Nanos EndOfHold(const Clock* clock, const Work& work) {
  if (work.hold == nullptr || *work.hold <= 0) return WorkEvent::kNoHold;
  const Nanos now = clock->Now();
  return *work.hold > std::numeric_limits<Nanos>::max() - now ? std::numeric_limits<Nanos>::max() : now + *work.hold;
}

}  // namespace

// Everything that streams and threads share. One mutex: work is short-listed under it and run outside.
class CpuDevice::Core {
 public:
  Core(Clock* clock, Doorbell* doorbell) : clock_(clock), doorbell_(doorbell) {}

  struct StreamState {
    int thread = 0;
    int queued = 0;                     // including the one that runs
    bool running = false;
    Nanos held_until = WorkEvent::kNoHold;  // of its last finished work
  };

  absl::StatusOr<EventRef> Launch(const std::shared_ptr<StreamState>& stream, Work work) WEFT_EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (stopped_) return absl::CancelledError("the device is shut down");
      const bool idle = stream->queued == 0 && !Held(*stream);
      ++stream->queued;
      if (work.where != Work::kInline || !idle) {
        auto event = std::make_shared<WorkEvent>(clock_);
        Lane& lane = lanes_[stream->thread];
        lane.queue.push_back({stream, std::move(work), event});
        if (!lane.thread.joinable()) lane.thread = std::thread([this, index = stream->thread] { Loop(index); });
        lane.wake.NotifyOne();
        return EventRef(std::move(event));
      }
      stream->running = true;
    }
    const Nanos until = Execute(&work, stream.get());
    if (until == WorkEvent::kNoHold) return EventRef();
    auto event = std::make_shared<WorkEvent>(clock_);
    event->Set(until);
    return EventRef(std::move(event));
  }

  void Stop() WEFT_EXCLUDES(mu_) {
    std::vector<Item> dropped;
    {
      MutexLock lock(&mu_);
      stopped_ = true;
      for (Lane& lane : lanes_) {
        for (Item& item : lane.queue) dropped.push_back(std::move(item));
        lane.queue.clear();
        lane.wake.NotifyAll();
      }
    }
    for (Item& item : dropped) {
      if (item.work.status != nullptr) *item.work.status = absl::CancelledError("the device is shut down");
      item.work.run = nullptr;  // whatever it holds goes before anyone is told
      item.event->Set(WorkEvent::kNoHold);
    }
    // No thread starts any more, so the handles may be read without the lock.
    for (Lane& lane : lanes_) {
      if (lane.thread.joinable()) lane.thread.join();
    }
    if (!dropped.empty() && doorbell_ != nullptr) doorbell_->Ring();
  }

 private:
  struct Item {
    std::shared_ptr<StreamState> stream;
    Work work;
    std::shared_ptr<WorkEvent> event;
  };
  struct Lane {
    std::thread thread;
    std::deque<Item> queue;
    CondVar wake;
  };

  bool Held(const StreamState& s) const { return s.held_until != WorkEvent::kNoHold && clock_->Now() < s.held_until; }

  // Runs it and frees the stream, so that whoever then sees the event finds the stream idle. Returns the end of its hold.
  Nanos Execute(Work* work, StreamState* stream) WEFT_EXCLUDES(mu_) {
    absl::Status status = Run(*work);
    const Nanos until = EndOfHold(clock_, *work);
    work->run = nullptr;  // what it holds goes before anyone is told
    if (work->status != nullptr) *work->status = std::move(status);
    MutexLock lock(&mu_);
    stream->running = false;
    --stream->queued;
    stream->held_until = until;
    if (stream->queued > 0) lanes_[stream->thread].wake.NotifyOne();  // inline work that launched some itself
    return until;
  }

  // The first work whose stream is free: a hold of one stream does not keep others. Null: `*wait` says how long until one may be.
  bool Next(Lane* lane, Item* out, Nanos* wait) WEFT_REQUIRES(mu_) {
    *wait = Event::kUnknown;
    std::vector<const StreamState*> passed;
    for (auto it = lane->queue.begin(); it != lane->queue.end(); ++it) {
      const StreamState* s = it->stream.get();
      if (std::find(passed.begin(), passed.end(), s) != passed.end()) continue;
      if (s->running) {
        passed.push_back(s);
        continue;
      }
      if (Held(*s)) {
        passed.push_back(s);
        *wait = std::min(*wait, clock_ == Clock::Real() ? s->held_until - clock_->Now() : kForeignClockPoll);
        continue;
      }
      *out = std::move(*it);
      lane->queue.erase(it);
      return true;
    }
    return false;
  }

  void Loop(int index) WEFT_EXCLUDES(mu_) {
    for (;;) {
      Item item;
      {
        MutexLock lock(&mu_);
        Nanos wait;
        while (!stopped_ && !Next(&lanes_[index], &item, &wait)) {
          if (wait == Event::kUnknown) {
            lanes_[index].wake.Wait(&mu_);
          } else {
            // In steps, so that no sum with the time of day overflows.
            lanes_[index].wake.WaitFor(&mu_, std::chrono::nanoseconds(std::clamp<Nanos>(wait, 1000, kNanosPerSecond)));
          }
        }
        // What was taken still runs; Stop has taken the rest.
        if (item.stream == nullptr) return;
        item.stream->running = true;
      }
      item.event->Set(Execute(&item.work, item.stream.get()));
      if (doorbell_ != nullptr) doorbell_->Ring();
    }
  }

  Clock* const clock_;
  Doorbell* const doorbell_;
  Mutex mu_;
  bool stopped_ WEFT_GUARDED_BY(mu_) = false;
  Lane lanes_[kThreads];  // guarded by mu_, but for joining
};

class CpuDevice::CpuStream : public Stream {
 public:
  CpuStream(std::shared_ptr<Core> core, int thread) : core_(std::move(core)), state_(std::make_shared<Core::StreamState>()) {
    state_->thread = thread;
  }
  absl::StatusOr<EventRef> Launch(Work work) override { return core_->Launch(state_, std::move(work)); }
  // Never called: CanWaitFor is false for every event.
  void WaitFor(const EventRef&) override {}

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Core::StreamState> state_;
};

CpuDevice::CpuDevice(Clock* clock, Doorbell* doorbell) : core_(std::make_shared<Core>(clock, doorbell)) {}

CpuDevice::~CpuDevice() { core_->Stop(); }

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::NewStream(v1::LaneKind lane) {
  return std::unique_ptr<Stream>(new CpuStream(core_, ThreadOf(lane)));
}

absl::StatusOr<std::shared_ptr<void>> CpuDevice::Allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  // Beyond the largest tensor is a mistake; not every allocator survives being asked.
  void* p = bytes > kMaxTensorBytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (p == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for a buffer of ", bytes, " bytes on the cpu"));
  return std::shared_ptr<void>(p, std::free);
}

}  // namespace weft
