#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace weft {

// Device memory of graphs that have ended, until no peer has it open any more: a peer may still be copying out of it, and CUDA leaves undefined what
// happens when it is freed then. Thread-safe.
class DeferredFree {
 public:
  // A word in shared memory in which a peer says that it has the memory open: its process id, 0 when it has closed it.
  struct Opened {
    std::shared_ptr<void> keep;  // keeps the word mapped
    uint32_t* word = nullptr;
  };

  // `alive` says whether a process still runs; empty: asks the system.
  explicit DeferredFree(const Clock* clock, std::function<bool(uint32_t pid)> alive = {});
  // Gives back everything.
  ~DeferredFree();

  // Wraps `memory`: when the last reference to the result goes, `memory` is kept until every word is 0 or its process is gone, at most
  // kLongest, and then let go of within Collect. Words may be added while the result is held.
  struct Held {
    std::shared_ptr<void> memory;
    std::vector<Opened> opened;
  };
  std::shared_ptr<Held> Hold(std::shared_ptr<void> memory);

  // Lets go of what nobody has open any more.
  void Collect();

  size_t waiting() const;

  static constexpr Nanos kLongest = 60'000'000'000;

 private:
  struct Ended {
    Held held;
    Nanos since = 0;
  };
  bool IsOpen(const Held& held) const;

  const Clock* const clock_;
  const std::function<bool(uint32_t)> alive_;
  mutable Mutex mu_;
  std::vector<Ended> ended_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
