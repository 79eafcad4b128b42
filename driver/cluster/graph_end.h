#pragma once

// The driver's own end of a graph's data plane, as the coordinator sees it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "weft/v1/client_service.pb.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

class Session;

// Real: driver/serve (shared memory or a Data stream); in tests: a fake. Thread-safe; nothing blocks; callbacks come from any thread,
// never from within the call that took them.
class GraphEnd {
 public:
  struct Counts {
    int64_t admitted = 0;   // executions 0 .. admitted - 1 were admitted
    int64_t completed = 0;  // executions 0 .. completed - 1 are done
    int64_t queued = 0;     // submitted, not yet admitted
  };

  virtual ~GraphEnd() = default;
  // Phase 1: makes what the workers will ask for in phase 2.
  virtual absl::Status Prepare() = 0;
  // Phase 2: connects to the workers and tries each client edge once; `done` by `deadline`.
  virtual void Connect(std::vector<v1::PeerAddress> peers, Nanos deadline, std::function<void(absl::Status)> done) = 0;
  // Executions may be admitted.
  virtual void Start() = 0;
  // Ends everything with `cause`: pending and later submits fail with it, links are closed. The first cause stays.
  virtual void Fail(const absl::Status& cause) = 0;
  // Takes no more submits; `done` when nothing is in flight (also after Fail).
  virtual void Drain(std::function<void()> done) = 0;
  // A worker (its index in the plan) says how many executions it completed; matters for graphs without outputs.
  virtual void Progress(int32_t worker, int64_t completed) = 0;
  virtual Counts counts() const = 0;
  // Admits nothing more until Resume, but takes submits as ever; `done` with how many are admitted then (not after Fail).
  virtual void Pause(std::function<void(int64_t admitted)> done) = 0;
  virtual void Resume() = 0;
  struct ExecutionTime {
    int64_t execution = 0;
    Nanos admitted = 0;
    Nanos done = 0;
  };
  // Of those executions from `first` on that are done, as far as they are kept; ascending.
  virtual std::vector<ExecutionTime> Times(int64_t first) const = 0;
  // The client's own lanes for Inspect: inputs that cannot be written and outputs that have not come.
  virtual v1::WorkerView View() const = 0;
  // What clients submit to; valid from Start on.
  virtual std::shared_ptr<Session> session() = 0;
};

// What a GraphEnd is made from.
struct GraphEndArgs {
  std::shared_ptr<const Plan> plan;
  std::string attempt;
  // Workers (indices in the plan) that have a part in the graph.
  std::vector<int32_t> workers;
  // To be called once when a link fails; the coordinator answers with Fail, with the cause that it found to be the first.
  std::function<void(absl::Status)> on_failed;
};
using GraphEndFactory = std::function<std::shared_ptr<GraphEnd>(GraphEndArgs)>;

}  // namespace weft
