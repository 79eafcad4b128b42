#pragma once

// The workers that the driver knows: who lives, under which name and incarnation, and when each was last heard of.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "driver/cluster/worker_link.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

enum class WorkerState {
  kAlive,
  kUnresponsive,  // heartbeats are missing; nothing fails for that
  kLost,          // its stream ended; kept until a new incarnation takes the name
};
const char* WorkerStateName(WorkerState state);

// A worker as it was when asked.
struct WorkerSnapshot {
  std::string name;
  std::string incarnation;
  v1::Register registration;
  WorkerState state = WorkerState::kAlive;
  Nanos heartbeat_age = 0;
  int64_t progress = 0;
};

// Thread-safe. Calls nothing but WorkerLink::Send and Close while it holds its lock.
class WorkerRegistry {
 public:
  struct Options {
    std::string driver_incarnation;
    std::string host_id;
    std::string shm_address;
    double heartbeat_interval_s = 1.0;
    double unresponsive_after_s = 3.0;
  };
  // Most workers that may be registered at once, and most lost ones that are remembered.
  static constexpr int kMaxWorkers = 4096;

  WorkerRegistry(const Clock* clock, Options options) : clock_(clock), options_(std::move(options)) {}

  // Takes a worker's first message and answers with Welcome through `link`. Returns its name. InvalidArgument (not a Register, bad
  // name, no incarnation), AlreadyExists (a live worker has the name; says which), FailedPrecondition (another plan version),
  // ResourceExhausted.
  absl::StatusOr<std::string> Register(const v1::WorkerMessage& first, std::shared_ptr<WorkerLink> link);

  // The worker's stream ended. False when that incarnation was not alive (any more).
  bool Lose(const std::string& name, const std::string& incarnation);

  // Whether a message comes from the living incarnation; counts it as dropped otherwise.
  bool Accept(const std::string& name, const std::string& incarnation);
  void Heartbeat(const std::string& name, int64_t progress);
  // Counts a message that was dropped for another reason, such as its attempt.
  void CountDropped();
  int64_t dropped() const;

  // Queues `message` for a living worker; false when that incarnation is gone. An empty incarnation means whichever lives.
  bool Send(const std::string& name, const std::string& incarnation, v1::DriverMessage message);
  // Sends the same stream-ending status to all; for the driver's end.
  void CloseAll(const absl::Status& why);

  // All, by name in natural order (w2 before w10).
  std::vector<WorkerSnapshot> List() const;
  absl::StatusOr<WorkerSnapshot> Find(const std::string& name) const;
  // As its last heartbeat said; 0 for a worker that is not known.
  int64_t ProgressOf(const std::string& name) const;
  // "unresponsive for 3.2 s", "lost", or "" for a worker that answers.
  std::string Problem(const std::string& name) const;
  const Options& options() const { return options_; }

 private:
  struct Record {
    std::string incarnation;
    v1::Register registration;
    bool lost = false;
    Nanos lost_at = 0;
    Nanos last_heartbeat = 0;
    int64_t progress = 0;
    std::shared_ptr<WorkerLink> link;
  };
  WorkerSnapshot SnapshotOf(const std::string& name, const Record& record) const WEFT_REQUIRES(mu_);
  void ForgetOldestLost() WEFT_REQUIRES(mu_);

  const Clock* const clock_;
  const Options options_;
  mutable Mutex mu_;
  std::map<std::string, Record> workers_ WEFT_GUARDED_BY(mu_);
  int64_t dropped_ WEFT_GUARDED_BY(mu_) = 0;
};

// "w2" < "w10": runs of digits compare as numbers.
bool NaturalLess(const std::string& a, const std::string& b);

}  // namespace weft
