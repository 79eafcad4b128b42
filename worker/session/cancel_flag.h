#pragma once

#include <functional>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace weft {

// A first cause that ends waits. Thread-safe.
class CancelFlag {
 public:
  void Set(const absl::Status& cause) {
    MutexLock lock(&mu_);
    if (!cause_.ok()) return;
    cause_ = cause;
    if (on_set_) on_set_(cause);
  }
  // Called once, at once if it is set already; nullptr takes it back, and afterwards it is not being called. Must not call back.
  void OnSet(std::function<void(const absl::Status&)> f) {
    MutexLock lock(&mu_);
    on_set_ = std::move(f);
    if (on_set_ && !cause_.ok()) on_set_(cause_);
  }
  absl::Status Get() const {
    MutexLock lock(&mu_);
    return cause_;
  }

 private:
  mutable Mutex mu_;
  absl::Status cause_ WEFT_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> on_set_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
