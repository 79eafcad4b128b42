#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/mutex.h"

namespace weft {

// Calls that give something back to CUDA, until someone who knows that the device rests does them: see CudaDevice::PutAside. Thread-safe.
class AsideCalls {
 public:
  // At most so many of the long calls at a time.
  static constexpr int kAtATime = 8;

  // `what`, for people: what is given back. `is_long`: the call mostly waits, up to seconds, and needs none of the others to be done; such calls are done beside
  // each other, on threads of their own.
  void Put(const std::string& what, std::function<void()> call, bool is_long);
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Does all, and what that puts aside in turn; one caller at a time. `bind` is called first on each thread.
  void DoAll(const std::function<void()>& bind);
  // What is under way, longest first, and how many others wait; empty when nothing is.
  std::string Doing() const;
  // How many calls have ended so far: while that grows DoAll gets on.
  int64_t done() const { return done_.load(std::memory_order_acquire); }

 private:
  struct Call {
    std::string what;
    std::function<void()> call;
    bool is_long = false;
  };

  void Do(Call* call);

  mutable Mutex mu_;
  std::vector<Call> calls_ WEFT_GUARDED_BY(mu_);
  std::vector<std::string> under_way_ WEFT_GUARDED_BY(mu_);
  size_t left_ WEFT_GUARDED_BY(mu_) = 0;  // of those that were taken, not begun
  std::atomic<bool> any_{false};
  std::atomic<int64_t> done_{0};
};

}  // namespace weft
