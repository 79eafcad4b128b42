#pragma once

// The client's end of a graph's data plane as a state machine: admits executions, writes their inputs, reads their outputs. It has no
// thread: one thread calls Step whenever its doorbell rang (session_host.h); tests call it by hand.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/plan/plan.h"
#include "common/session/client_edges.h"
#include "common/session/inline_stream.h"
#include "common/session/session.h"

namespace weft {

// The way in which one worker learns what is admitted, and by which either end says that it is over.
class AdmissionLink {
 public:
  virtual ~AdmissionLink() = default;
  // The highest admitted execution. Session's thread.
  virtual void Publish(int64_t execution) = 0;
  // OK while open; then why not. Any thread.
  virtual absl::Status closed() const = 0;
  // Ends it for both sides. Any thread; idempotent.
  virtual void Close(const absl::Status& cause) = 0;
};

// What Step needs to run a graph. Ports stand in the order of ClientEdges.
struct SessionPorts {
  std::vector<std::unique_ptr<SendPort>> inputs;
  std::vector<std::unique_ptr<RecvPort>> outputs;
  std::vector<std::unique_ptr<AdmissionLink>> links;  // one per worker with a part
};

class SessionCore : public Session {
 public:
  struct Options {
    const Clock* clock = Clock::Real();
    // Rung by every call that gives Step something to do. Outlives the core.
    Doorbell* doorbell = nullptr;
    // Called once, on Step's thread, when a link or port closes by itself. The session goes on until Fail.
    std::function<void(absl::Status)> on_link_failed;
    // Workers (plan indices) whose Progress says that an execution is done in a graph without outputs.
    std::vector<int32_t> workers;
  };
  struct Counts {
    int64_t admitted = 0;   // executions 0 .. admitted - 1
    int64_t completed = 0;  // executions 0 .. completed - 1
    int64_t queued = 0;
  };
  struct ExecutionTime {
    int64_t execution = 0;
    Nanos admitted = 0;
    Nanos done = 0;
  };
  // What one edge of the client waits for, for Inspect.
  struct EdgeView {
    std::string op;  // "WRITE x:0 -> square0:0"
    bool output = false;
    int64_t execution = -1;
    std::string waits_for;  // "" while it has nothing to do
    double since_s = 0;
  };

  // `plan` is the whole plan and is kept.
  static absl::StatusOr<std::shared_ptr<SessionCore>> Create(std::shared_ptr<const Plan> plan, Options options);
  ~SessionCore() override;

  const ClientEdges& edges() const { return edges_; }

  // ---- bootstrap, in this order
  // Gives it its ports and starts to try each edge once with a checked message, on Step's thread: `done` with OK when all went through,
  // or with what went wrong; DeadlineExceeded names the edges that carried nothing.
  void Connect(SessionPorts ports, Nanos deadline, std::function<void(absl::Status)> done);
  // Executions may be admitted.
  void Start();

  // ---- Session
  const SessionSpec& spec() const override { return edges_.spec; }
  absl::StatusOr<Ticket> Submit(SessionSubmit submit) override;
  void Forget(Ticket ticket) override;
  void Fail(const absl::Status& cause) override;
  absl::Status status() const override;

  // Takes no more submits; `done` once nothing is queued or in flight.
  void Drain(std::function<void()> done);
  // Admits nothing more until Resume; `done`, on Step's thread, with how many are admitted then. Submits are taken as ever. Not after Fail.
  void Pause(std::function<void(int64_t admitted)> done);
  void Resume();
  // Worker `worker` has completed that many executions.
  void Progress(int32_t worker, int64_t completed);
  // When executions were admitted and done, of those from `first` on that are done, ascending; the last 4096 are kept.
  std::vector<ExecutionTime> Times(int64_t first) const;

  Counts counts() const;
  std::vector<EdgeView> View() const;

  // Does what can be done; true when anything was. `*until` is lowered to when it wants to be called again without a ring.
  // Always by the same thread.
  bool Step(Nanos* until);

 private:
  struct Pending {
    Ticket ticket = 0;
    SessionSubmit submit;
    Nanos give_up = Event::kUnknown;
  };
  struct Running {
    Ticket ticket = 0;
    int64_t execution = 0;
    SessionSubmit submit;
    std::vector<SessionOutput> outputs;
    int missing = 0;
    Nanos admitted = 0;
  };
  struct InputState {
    std::unique_ptr<SendPort> port;
    EventRef event;                  // of the last send
    Tensor sending;                  // held until that event
    std::atomic<int64_t> next{-1};   // the next execution to write; -1: the trial
    std::atomic<Nanos> since{0};
  };
  struct OutputState {
    std::unique_ptr<RecvPort> port;
    Value value;   // of the receive under way
    Tensor buffer;
    EventRef event;
    bool receiving = false;
    std::atomic<int64_t> next{-1};
    std::atomic<Nanos> since{0};
  };

  SessionCore(std::shared_ptr<const Plan> plan, ClientEdges edges, Options options);
  bool Deliver();                         // a failure
  bool TryEdges(Nanos* until);            // bootstrap
  bool Admit(Nanos* until);
  bool WriteInputs(Nanos* until);
  bool ReadOutputs(Nanos* until);
  // One receive on one edge; true when a value was taken into *value (then the slot is released).
  bool Take(size_t index, int64_t execution, bool discard, SessionOutput* value, absl::Status* error, Nanos* until);
  bool Complete();
  void CheckLinks();
  void LinkFailed(const absl::Status& why);
  absl::Status Refusal() const WEFT_REQUIRES(mu_);
  std::string OpNameOf(const PlanEdge& edge, bool output) const;

  const std::shared_ptr<const Plan> plan_;
  const ClientEdges edges_;
  const Options options_;

  // Step's thread.
  std::deque<Running> running_;  // consecutive executions, ending with the last admitted
  // Inputs of executions that were done before every edge had written them, since no output depends on them.
  std::map<int64_t, std::vector<Tensor>> kept_;
  std::deque<std::unique_ptr<InputState>> inputs_;
  std::deque<std::unique_ptr<OutputState>> outputs_;
  std::vector<std::unique_ptr<AdmissionLink>> links_;
  InlineStream stream_;
  int64_t published_ = -1;
  bool trying_ = false;
  Nanos try_deadline_ = 0;
  std::function<void(absl::Status)> try_done_;
  bool link_failed_ = false;
  bool delivered_ = false;
  bool connected_ = false;

  std::atomic<int64_t> admitted_{0};
  std::atomic<int64_t> completed_{0};
  std::atomic<bool> ports_visible_{false};

  mutable Mutex mu_;
  Ticket next_ticket_ WEFT_GUARDED_BY(mu_) = 1;
  std::deque<Pending> queue_ WEFT_GUARDED_BY(mu_);
  std::set<Ticket> forgotten_ WEFT_GUARDED_BY(mu_);  // of running executions only
  std::set<Ticket> running_tickets_ WEFT_GUARDED_BY(mu_);
  bool started_ WEFT_GUARDED_BY(mu_) = false;
  bool draining_ WEFT_GUARDED_BY(mu_) = false;
  bool paused_ WEFT_GUARDED_BY(mu_) = false;
  std::function<void(int64_t)> pause_done_ WEFT_GUARDED_BY(mu_);
  std::deque<ExecutionTime> times_ WEFT_GUARDED_BY(mu_);
  absl::Status failed_ WEFT_GUARDED_BY(mu_);
  std::vector<std::function<void()>> drained_ WEFT_GUARDED_BY(mu_);
  std::vector<int64_t> worker_completed_ WEFT_GUARDED_BY(mu_);
  bool have_new_ports_ WEFT_GUARDED_BY(mu_) = false;
  SessionPorts new_ports_ WEFT_GUARDED_BY(mu_);
  Nanos new_deadline_ WEFT_GUARDED_BY(mu_) = 0;
  std::function<void(absl::Status)> new_done_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
