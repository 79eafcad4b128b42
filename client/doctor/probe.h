#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"

namespace weft {

// The other end of a ProbeServer. One request at a time.
class Probe {
 public:
  virtual ~Probe() = default;
  // Errors: the probe has gone.
  virtual absl::Status Send(const std::string& request) = 0;
  // The answer to what was sent. DeadlineExceeded, by Clock::Real: it hangs; Unavailable: it has gone, and how; Cancelled.
  virtual absl::StatusOr<std::string> Receive(Nanos deadline) = 0;
};

// Errors say why no process could be started.
using StartProbe = std::function<absl::StatusOr<std::unique_ptr<Probe>>()>;

// Probes that are processes of their own: `argv` with a socket as descriptor kProbeFd, on which ServeProbe is to run. They end with their
// Probe, and with the thread that started them. Receive gives Cancelled soon after `cancelled` (may be called from any thread) says so.
constexpr int kProbeFd = 3;
absl::StatusOr<std::unique_ptr<Probe>> StartProbeProcess(const std::vector<std::string>& argv, std::function<bool()> cancelled);

// The main of such a process: answers what comes on `fd` until its end.
void ServeProbe(int fd, const std::function<std::string(const std::string&)>& answer);

}  // namespace weft
