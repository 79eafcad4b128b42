#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/progress.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"
#include "common/base/clock.h"

namespace weft {

// What the driver knows of its graphs and workers at one moment.
struct DriverState {
  v1::ListGraphsReply graphs;
  v1::ListWorkersReply workers;
};
using AskDriver = std::function<absl::StatusOr<DriverState>()>;

// Asks through `client`, which must outlive it; a call takes two seconds at most.
AskDriver AskThrough(Client* client);

// "worker w1 (pid 4242)", with the pid where the driver knows it.
std::string WorkerWithPid(const v1::ListWorkersReply& workers, const std::string& worker);
// What to do about a worker that does not answer, as sentences to follow the one that says so; empty for one that is lost.
std::string AdviceForSilent(const v1::ListWorkersReply& workers, const std::string& worker);

// Waits for executions of one graph. While one takes longer than a second it asks the driver, about once a second, whether anything is
// wrong, and says so on stderr: a worker of the graph that is unresponsive, and GraphInfo.stalled. Each is said once, until it is over and happens
// anew. Nothing ends an execution for that: it may go on. Not thread-safe.
class TellingWait {
 public:
  using Tell = std::function<void(const std::string& text)>;
  // How far things are, given the seconds that this wait has lasted.
  using Doing = std::function<std::string(double waited_s)>;

  // `ask` empty: nothing is asked.
  TellingWait(ClientSession* session, std::string graph, AskDriver ask);
  TellingWait(ClientSession* session, std::string graph, AskDriver ask, const Clock* clock, Tell tell);

  // As ClientSession::Wait, with `doing` on `progress` meanwhile.
  absl::StatusOr<ExecutionResult> Wait(ClientSession::Handle handle, double limit_s, ProgressLine* progress, const Doing& doing);

 private:
  void Ask(ProgressLine* progress);
  // What has not been said yet of it, a text each; remembers them as said.
  std::vector<std::string> News(const DriverState& state);

  ClientSession* const session_;
  const std::string graph_;
  const AskDriver ask_;
  const Clock* const clock_;
  const Tell tell_;
  Nanos asked_at_ = 0;
  std::string stalled_;
  // Worker -> when it was last heard of, for those of which it was said.
  std::map<std::string, Nanos> silent_;
};

}  // namespace weft
