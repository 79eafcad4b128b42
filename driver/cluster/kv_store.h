#pragma once

// The store in which communicators meet: keys of one compile of one graph (an attempt), gone with it.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "driver/cluster/actions.h"

namespace weft {

// Thread-safe; never blocks. Callbacks run without its lock, on the thread that makes them true.
class KvStore {
 public:
  using GetDone = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = 1 << 20;
  static constexpr size_t kMaxTotalBytes = size_t{256} << 20;

  explicit KvStore(const Clock* clock) : clock_(clock) {}

  void Open(const std::string& graph, const std::string& attempt);
  // Drops the keys; whoever waits gets Aborted with `cause`, and so does whoever comes later while it is remembered.
  void Close(const std::string& attempt, const absl::Status& cause);

  // InvalidArgument (sizes), AlreadyExists (another value under that key), Aborted (no such attempt, with its cause if known),
  // ResourceExhausted. Setting the same value again is fine.
  absl::Status Set(const std::string& graph, const std::string& attempt, const std::string& key, const std::string& value);

  // Calls `done` once: with the values, in order of `keys`, when all exist; DeadlineExceeded names the missing; Aborted as above.
  // Returns a number for Cancel.
  int64_t Get(const std::string& graph, const std::string& attempt, std::vector<std::string> keys, Nanos deadline, GetDone done);
  // `done` of that Get is not called any more (unless it is being called).
  void Cancel(int64_t get);

  // Ends what is overdue; whether anybody still waits.
  bool Tick();

 private:
  struct Space {
    std::string graph;
    std::map<std::string, std::string> values;
    size_t bytes = 0;
  };
  struct Waiter {
    std::string graph;
    std::string attempt;
    std::vector<std::string> keys;
    Nanos deadline = 0;
    Nanos since = 0;
    GetDone done;
  };
  absl::Status Unknown(const std::string& graph, const std::string& attempt) const WEFT_REQUIRES(mu_);
  void Satisfy(const std::string& attempt, Actions* after) WEFT_REQUIRES(mu_);

  const Clock* const clock_;
  mutable Mutex mu_;
  std::map<std::string, Space> spaces_ WEFT_GUARDED_BY(mu_);
  std::map<std::string, absl::Status> closed_ WEFT_GUARDED_BY(mu_);  // the last few attempts' causes
  std::vector<std::string> closed_order_ WEFT_GUARDED_BY(mu_);
  std::map<int64_t, Waiter> waiters_ WEFT_GUARDED_BY(mu_);
  int64_t next_ WEFT_GUARDED_BY(mu_) = 1;
};

}  // namespace weft
