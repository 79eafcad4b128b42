#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/cluster_dir.h"
#include "common/base/clock.h"

namespace weft {

struct ClusterConfig {
  std::string name;
  int workers = 1;
  std::string device;
  std::string state_dir;  // empty: in the cluster's directory
  std::string listen;
  std::string log_level;
  bool verbose = false;   // children's logs go to stderr instead of files
  double start_timeout_s = 30;
  std::string token_file;  // absolute path; empty: no join token
  std::string token;       // its content
};

// How long a child that died waits to be started again: doubles with each death soon after its start, up to a few seconds, and starts
// over after one that lived.
class Backoff {
 public:
  static constexpr Nanos kFirst = 100'000'000;
  static constexpr Nanos kMost = 5 * kNanosPerSecond;
  // A child that lived so long is started again after kFirst.
  static constexpr Nanos kLived = 10 * kNanosPerSecond;

  Nanos Next(Nanos lived);
  // Deaths in a row, each soon after the start.
  int quick_deaths() const { return quick_; }

 private:
  int quick_ = 0;
};

// A driver and workers as child processes: starts them, starts them again when they die, ends them. Single-threaded; must run on the
// process's main thread, with SIGINT, SIGTERM, SIGHUP and SIGCHLD blocked.
class Supervisor {
 public:
  Supervisor(ClusterConfig config, const ClusterDir& dir) : config_(std::move(config)), dir_(dir) {}

  // Runs the cluster until a signal says to end it; all children are gone when it returns. `on_ready` is called once, with the driver's
  // address, when every worker is registered. Errors: the cluster did not start (DeadlineExceeded, FailedPrecondition: why, with the
  // last lines of the log).
  absl::Status Run(const std::function<void(const std::string& address)>& on_ready);

 private:
  struct Child {
    std::string name;
    std::vector<std::string> argv;
    std::string log;
    pid_t pid = -1;
    Nanos started = 0;
    Nanos start_at = 0;  // when pid is -1: when to start it
    bool wanted = false;
    Backoff backoff;
  };

  absl::Status Prepare();
  // With --device cuda: the GPUs of this machine, over which workers are dealt in turn. 0 otherwise. FailedPrecondition: none, or no library.
  absl::StatusOr<int> CountGpus() const;
  absl::Status StartDue();
  absl::Status Start(Child* child);
  absl::Status Reap();
  void PublishAddress();
  bool AllRegistered();
  std::string Missing();
  void StopAll();
  // Waits for a signal or until `until`; the number of a signal that ends the cluster, or 0.
  int WaitForSignal(Nanos until);
  Nanos NextStart() const;
  void Say(const std::string& text) const;

  const ClusterConfig config_;
  const ClusterDir& dir_;
  int signal_fd_ = -1;
  std::vector<Child> children_;  // the driver first
  std::string address_;
  bool ready_ = false;
};

}  // namespace weft
