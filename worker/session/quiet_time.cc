#include "worker/session/quiet_time.h"

#include <algorithm>
#include <chrono>

namespace weft {

QuietTime::QuietTime(const CudaDevice* device, DeferredFree* deferred, Doorbell* doorbell)
    : device_(device), deferred_(deferred), doorbell_(doorbell), thread_([this] { Loop(); }) {}

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
  if (running_.load(std::memory_order_acquire)) return true;
  if (!at_rest) return false;
  deferred_->Collect();
  if (!device_->HasAside()) return false;
  MutexLock lock(&mu_);
  if (users_ > 0) return false;
  running_.store(true, std::memory_order_release);
  changed_.NotifyAll();
  return true;
}

std::shared_ptr<void> QuietTime::Use() {
  MutexLock lock(&mu_);
  while (running_.load()) changed_.Wait(&mu_);
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
