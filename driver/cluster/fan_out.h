#pragma once

// Asks several workers one question and gathers what comes back until a deadline.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "driver/cluster/actions.h"
#include "driver/cluster/registry.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

// Thread-safe; never blocks. Callbacks run without its lock.
class FanOut {
 public:
  struct Result {
    // What each worker sent, in order.
    std::map<std::string, std::vector<v1::WorkerMessage>> answers;
    // Workers that did not finish their answer in time, and why.
    std::map<std::string, std::string> problems;
  };
  using Done = std::function<void(Result)>;

  FanOut(const Clock* clock, WorkerRegistry* registry) : clock_(clock), registry_(registry) {}

  // `make` builds the question for a request number. `done` is called once, at the latest at `deadline`.
  void Ask(const std::vector<std::string>& workers, Nanos deadline, std::function<v1::DriverMessage(int64_t request)> make,
           Done done);
  // A worker's answer to `request`. Late ones are dropped: false.
  bool Answer(int64_t request, const std::string& worker, const v1::WorkerMessage& message, bool last);
  // That worker will not answer any more.
  void Lost(const std::string& worker, const std::string& why);
  // Ends what is overdue; whether anything is left.
  bool Tick();

 private:
  struct Request {
    std::set<std::string> open;
    Nanos deadline = 0;
    Result result;
    Done done;
  };
  void FinishIfDone(std::map<int64_t, Request>::iterator it, Actions* after) WEFT_REQUIRES(mu_);

  const Clock* const clock_;
  WorkerRegistry* const registry_;
  Mutex mu_;
  std::map<int64_t, Request> requests_ WEFT_GUARDED_BY(mu_);
  int64_t next_ WEFT_GUARDED_BY(mu_) = 1;
};

}  // namespace weft
