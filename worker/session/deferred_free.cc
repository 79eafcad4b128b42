#include "worker/session/deferred_free.h"

#include <errno.h>
#include <signal.h>

#include <utility>

#include "common/base/log.h"

namespace weft {
namespace {

bool ProcessAlive(uint32_t pid) { return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }

}  // namespace

DeferredFree::DeferredFree(const Clock* clock, std::function<bool(uint32_t pid)> alive)
    : clock_(clock), alive_(alive ? std::move(alive) : ProcessAlive) {}

DeferredFree::~DeferredFree() = default;

std::shared_ptr<DeferredFree::Held> DeferredFree::Hold(std::shared_ptr<void> memory) {
  return std::shared_ptr<Held>(new Held{std::move(memory), {}}, [this](Held* held) {
    {
      MutexLock lock(&mu_);
      ended_.push_back({std::move(*held), clock_->Now()});
    }
    delete held;
  });
}

bool DeferredFree::IsOpen(const Held& held) const {
  for (const Opened& o : held.opened) {
    const uint32_t pid = std::atomic_ref<uint32_t>(*o.word).load(std::memory_order_acquire);
    if (pid != 0 && alive_(pid)) return true;
  }
  return false;
}

void DeferredFree::Collect() {
  std::vector<Ended> free;  // given back without the lock
  {
    MutexLock lock(&mu_);
    const Nanos now = clock_->Now();
    for (size_t i = 0; i < ended_.size();) {
      const bool late = now - ended_[i].since > kLongest;
      if (IsOpen(ended_[i].held) && !late) {
        ++i;
        continue;
      }
      if (late) SPDLOG_WARN("device memory of an ended graph is given back though a peer still has it open after {} s", kLongest / 1'000'000'000);
      free.push_back(std::move(ended_[i]));
      ended_.erase(ended_.begin() + static_cast<int64_t>(i));
    }
  }
}

size_t DeferredFree::waiting() const {
  MutexLock lock(&mu_);
  return ended_.size();
}

}  // namespace weft
