#include "worker/session/quiet_time.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

// How long a waiting thread sleeps at most before it looks at its deadline again.
constexpr std::chrono::milliseconds kLook(10);

}  // namespace

QuietTime::QuietTime(const CudaDevice* device, DeferredFree* deferred, Doorbell* doorbell, const Clock* clock,
                     std::function<void(const absl::Status&)> on_hung)
    : device_(device), deferred_(deferred), doorbell_(doorbell), clock_(clock), on_hung_(std::move(on_hung)), thread_([this] { Loop(); }) {}

QuietTime::~QuietTime() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void QuietTime::Loop() {
  const_cast<CudaDevice*>(device_)->BindThread();
  MutexLock lock(&mu_);
  while (true) {
    while (!running_.load() && !stop_) changed_.Wait(&mu_);
    if (stop_) return;
    mu_.Unlock();
    device_->Collect();
    mu_.Lock();
    running_.store(false, std::memory_order_release);
    changed_.NotifyAll();
    doorbell_->Ring();
  }
}

bool QuietTime::Holds(bool at_rest) {
  if (running_.load(std::memory_order_acquire)) {
    if (!told_hung_ && clock_->Now() - since_.load() > kLimit) {
      told_hung_ = true;
      if (on_hung_) {
        on_hung_(absl::DeadlineExceededError(absl::StrCat("GPU ", device_->ordinal(), " of this worker: memory of graphs that have ended is being given back to "
                                                          "CUDA for more than ", ToSeconds(kLimit), " s: a call of CUDA or NCCL hangs")));
      }
    }
    return true;
  }
  if (!at_rest) return false;
  deferred_->Collect();
  if (!device_->HasAside()) return false;
  MutexLock lock(&mu_);
  if (users_ > 0) return false;
  since_.store(clock_->Now());
  running_.store(true, std::memory_order_release);
  changed_.NotifyAll();
  return true;
}

std::string QuietTime::WaitText() const {
  if (!running_.load(std::memory_order_acquire)) return "";
  return absl::StrFormat("memory of graphs that have ended has been being given back to CUDA for %.1f s, and until that is over nothing is put on GPU %d",
                         ToSeconds(std::max<Nanos>(0, clock_->Now() - since_.load())), device_->ordinal());
}

absl::StatusOr<std::shared_ptr<void>> QuietTime::Use(Nanos deadline, const std::function<absl::Status()>& cancelled) {
  MutexLock lock(&mu_);
  while (running_.load()) {
    if (const absl::Status s = cancelled ? cancelled() : absl::OkStatus(); !s.ok()) return s;
    if (clock_->Now() >= deadline) return absl::DeadlineExceededError(WaitText());
    changed_.WaitFor(&mu_, kLook);
  }
  ++users_;
  return std::shared_ptr<void>(this, [](void* p) {
    QuietTime* const self = static_cast<QuietTime*>(p);
    {
      MutexLock lock(&self->mu_);
      --self->users_;
    }
    self->doorbell_->Ring();
  });
}

void QuietTime::LookAgain() {
  deferred_->Collect();
  if (device_->HasAside()) doorbell_->Ring();
}

bool QuietTime::Await(Nanos timeout) {
  const Nanos until = Clock::Real()->Now() + timeout;
  while (true) {
    LookAgain();
    MutexLock lock(&mu_);
    if (!running_.load() && !device_->HasAside()) return true;
    const Nanos left = until - Clock::Real()->Now();
    if (left <= 0 || stop_) return false;
    // Words that a peer clears ring nothing here.
    changed_.WaitFor(&mu_, std::chrono::nanoseconds(std::min<Nanos>(left, 10'000'000)));
  }
}

}  // namespace weft
