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
    if (!wanted_.empty()) {
      // At once, while the device rests: clients that compile without pause would come between every time.
      since_.store(clock_->Now());
      resting_.store(true, std::memory_order_release);
    }
    running_.store(false, std::memory_order_release);
    changed_.NotifyAll();
    doorbell_->Ring();
  }
}

bool QuietTime::Holds(bool at_rest) {
  // In this order: a rest may follow giving back without a moment in between.
  const bool running = running_.load(std::memory_order_acquire), resting = resting_.load(std::memory_order_acquire);
  if (running || resting) {
    const Nanos now = clock_->Now();
    if (const int64_t given = device_->Collected(); given != given_) {
      given_ = given;
      moved_ = now;
    }
    if (!told_hung_ && now - std::max(moved_, since_.load()) > kLimit) {
      told_hung_ = true;
      if (on_hung_) {
        const std::string doing = device_->Collecting();
        const std::string what = !running ? absl::StrCat("device code that graph ", RestsFor(), " needs is being loaded")
                                         : absl::StrCat("memory of graphs that have ended is being given back to CUDA", doing.empty() ? "" : absl::StrCat(" (", doing, ")"),
                                                        ", of which no call has ended");
        on_hung_(absl::DeadlineExceededError(absl::StrCat("GPU ", device_->ordinal(), " of this worker: ", what, " for more than ", ToSeconds(kLimit),
                                                          " s: a call of CUDA or NCCL hangs")));
      }
    }
    return true;
  }
  if (!at_rest) return false;
  deferred_->Collect();
  const bool give_back = device_->HasAside();
  if (!give_back && !Pauses()) return false;
  MutexLock lock(&mu_);
  if (users_ > 0 || (!give_back && wanted_.empty())) return false;
  since_.store(clock_->Now());
  (give_back ? running_ : resting_).store(true, std::memory_order_release);
  changed_.NotifyAll();
  return true;
}

bool QuietTime::InUse() const {
  MutexLock lock(&mu_);
  return users_ > 0;
}

std::string QuietTime::RestsFor() const {
  MutexLock lock(&mu_);
  return wanted_.empty() ? "" : wanted_.front();
}

std::string QuietTime::WaitText() const {
  MutexLock lock(&mu_);
  return TextLocked();
}

std::string QuietTime::TextLocked() const {
  const auto for_so_long = [&](Nanos since) { return absl::StrFormat("%.1f s", ToSeconds(std::max<Nanos>(0, clock_->Now() - since))); };
  const std::string until = absl::StrCat(", and until that is over nothing is put on GPU ", device_->ordinal());
  if (running_.load()) {
    const std::string now = device_->Collecting();
    return absl::StrCat("memory of graphs that have ended has been being given back to CUDA for ", for_so_long(since_.load()), now.empty() ? "" : absl::StrCat(" (", now, ")"),
                        until);
  }
  if (resting_.load()) return absl::StrCat("device code that graph ", wanted_.front(), " needs has been being loaded for ", for_so_long(since_.load()), until);
  if (pauses_.load()) {
    return absl::StrCat("no execution has been begun for ", for_so_long(pauses_since_), ": when those under way are done, device code that graph ", wanted_.front(),
                        " needs is loaded on GPU ", device_->ordinal());
  }
  if (!wanted_.empty()) {
    return absl::StrCat("device code that graph ", wanted_.front(), " needs is loaded on GPU ", device_->ordinal(), " when no other graph of this worker is in its bootstrap");
  }
  return "";
}

void QuietTime::Tell() {
  const bool pauses = !wanted_.empty() && users_ == 0;
  if (pauses && !pauses_.load()) pauses_since_ = clock_->Now();
  pauses_.store(pauses, std::memory_order_release);
  changed_.NotifyAll();
  doorbell_->Ring();
}

absl::StatusOr<std::shared_ptr<void>> QuietTime::Rest(const std::string& graph, Nanos deadline, const std::function<absl::Status()>& cancelled) {
  MutexLock lock(&mu_);
  const auto me = wanted_.insert(wanted_.end(), graph);
  Tell();
  while (!resting_.load() || taken_ || me != wanted_.begin()) {
    absl::Status s = cancelled ? cancelled() : absl::OkStatus();
    if (s.ok() && clock_->Now() >= deadline) {
      s = absl::DeadlineExceededError(absl::StrCat(TextLocked(), "; that did not come: see what holds the others up with `weft inspect`, or remove them"));
    }
    if (!s.ok()) {
      EndRest(me, false);
      return s;
    }
    changed_.WaitFor(&mu_, kLook);
  }
  taken_ = true;
  return std::shared_ptr<void>(this, [me](void* p) {
    QuietTime* const self = static_cast<QuietTime*>(p);
    MutexLock lock(&self->mu_);
    self->EndRest(me, true);
  });
}

void QuietTime::EndRest(std::list<std::string>::iterator who, bool had) {
  wanted_.erase(who);
  // Whoever else waits for one goes on with this.
  if (had) {
    taken_ = false;
    since_.store(clock_->Now());
  }
  if (wanted_.empty()) resting_.store(false, std::memory_order_release);
  Tell();
}

absl::StatusOr<std::shared_ptr<void>> QuietTime::Use(Nanos deadline, const std::function<absl::Status()>& cancelled) {
  MutexLock lock(&mu_);
  while (running_.load() || resting_.load()) {
    if (const absl::Status s = cancelled ? cancelled() : absl::OkStatus(); !s.ok()) return s;
    if (clock_->Now() >= deadline) return absl::DeadlineExceededError(TextLocked());
    changed_.WaitFor(&mu_, kLook);
  }
  ++users_;
  Tell();
  return std::shared_ptr<void>(this, [](void* p) {
    QuietTime* const self = static_cast<QuietTime*>(p);
    MutexLock lock(&self->mu_);
    --self->users_;
    self->Tell();
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
