#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/session/session_core.h"

namespace weft {

// The thread that serves all sessions of a process: sleeps on the process's doorbell, and polls only while something is in flight.
// Thread-safe.
class SessionHost {
 public:
  // `doorbell` is rung by peers and by the sessions' own calls; outlives the host.
  explicit SessionHost(Doorbell* doorbell);
  // Fails what is left with Cancelled, delivers that, and joins. Not from a session's callback.
  ~SessionHost();

  void Add(std::shared_ptr<SessionCore> core);
  // The core is served no more once its failure was delivered; to be called after Fail.
  void Remove(const std::shared_ptr<SessionCore>& core);

 private:
  void Loop();

  Doorbell* const doorbell_;
  std::atomic<bool> stop_{false};
  Mutex mu_;
  std::vector<std::shared_ptr<SessionCore>> cores_ WEFT_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<SessionCore>> leaving_ WEFT_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace weft
