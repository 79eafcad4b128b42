#include "common/session/session_host.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// About what a wake-up costs; longer spinning would take the core from the workers that are being waited for.
constexpr Nanos kSpin = 10'000;

}  // namespace

SessionHost::SessionHost(Doorbell* doorbell) : doorbell_(doorbell), thread_([this] { Loop(); }) {}

SessionHost::~SessionHost() {
  stop_.store(true);
  doorbell_->Ring();
  thread_.join();
  std::vector<std::shared_ptr<SessionCore>> left;
  {
    MutexLock lock(&mu_);
    left.swap(cores_);
    left.insert(left.end(), leaving_.begin(), leaving_.end());
    leaving_.clear();
  }
  for (const auto& core : left) {
    core->Fail(absl::CancelledError("the session's process ends"));
    Nanos until = Event::kUnknown;
    core->Step(&until);
  }
}

void SessionHost::Add(std::shared_ptr<SessionCore> core) {
  {
    MutexLock lock(&mu_);
    cores_.push_back(std::move(core));
  }
  doorbell_->Ring();
}

void SessionHost::Remove(const std::shared_ptr<SessionCore>& core) {
  {
    MutexLock lock(&mu_);
    const auto it = std::find(cores_.begin(), cores_.end(), core);
    if (it == cores_.end()) return;
    cores_.erase(it);
    leaving_.push_back(core);
  }
  doorbell_->Ring();
}

void SessionHost::Loop() {
  std::vector<std::shared_ptr<SessionCore>> cores, leaving;
  while (!stop_.load()) {
    const uint32_t seen = doorbell_->Snapshot();
    {
      MutexLock lock(&mu_);
      cores = cores_;
      leaving.swap(leaving_);
    }
    Nanos until = Event::kUnknown;
    bool busy = false;
    bool in_flight = false;
    for (const auto& core : leaving) core->Step(&until);
    leaving.clear();
    for (const auto& core : cores) {
      busy |= core->Step(&until);
      const SessionCore::Counts counts = core->counts();
      in_flight |= counts.admitted > counts.completed;
    }
    cores.clear();
    if (!busy) doorbell_->Wait(seen, until, in_flight ? kSpin : 0);
  }
}

}  // namespace weft
