#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

// Messages on their way to the driver. Thread-safe; never blocks the sender, so the loop may use it.
class Outbox {
 public:
  void Push(v1::WorkerMessage message) {
    MutexLock lock(&mu_);
    PushLocked(std::move(message));
  }
  // An answer to what came between that Open and the Close after it. Later it is dropped: the next driver's requests may have the same numbers.
  void Push(int64_t opening, v1::WorkerMessage message) {
    MutexLock lock(&mu_);
    if (opening == openings_) PushLocked(std::move(message));
  }

  // The next message; nullopt when `timeout` passed without one, or after Close.
  std::optional<v1::WorkerMessage> Pop(std::chrono::nanoseconds timeout) {
    MutexLock lock(&mu_);
    if (queue_.empty() && !closed_ && !finishing_) cv_.WaitFor(&mu_, timeout);
    if (queue_.empty()) return std::nullopt;
    v1::WorkerMessage m = std::move(queue_.front());
    queue_.pop_front();
    return m;
  }

  // Forgets what is queued and refuses more, until Open.
  void Close() {
    MutexLock lock(&mu_);
    closed_ = true;
    queue_.clear();
    cv_.NotifyAll();
  }
  // The opening's number, from 1.
  int64_t Open() {
    MutexLock lock(&mu_);
    closed_ = false;
    finishing_ = false;
    queue_.clear();
    return ++openings_;
  }
  // Takes no more; what is queued still goes.
  void Finish() {
    MutexLock lock(&mu_);
    finishing_ = true;
    cv_.NotifyAll();
  }
  // Nothing is left to send after Finish.
  bool finished() {
    MutexLock lock(&mu_);
    return finishing_ && queue_.empty();
  }
  bool closed() {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  void PushLocked(v1::WorkerMessage message) WEFT_REQUIRES(mu_) {
    if (closed_ || finishing_) return;
    queue_.push_back(std::move(message));
    cv_.NotifyOne();
  }

  Mutex mu_;
  CondVar cv_;
  std::deque<v1::WorkerMessage> queue_ WEFT_GUARDED_BY(mu_);
  int64_t openings_ WEFT_GUARDED_BY(mu_) = 0;
  bool closed_ WEFT_GUARDED_BY(mu_) = true;
  bool finishing_ WEFT_GUARDED_BY(mu_) = false;
};

}  // namespace weft
