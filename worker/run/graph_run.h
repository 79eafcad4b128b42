#pragma once

// One graph on one worker, running: the interpreter of its part of the plan. All methods are for the loop's thread.
//
// Every lane is an in-order queue over executions 0, 1, 2, ... The head of a lane is issued when
//   - its execution is admitted,
//   - every wait holds: the op it names is done for that execution (or, where the device can wait for it, issued),
//   - its channel allows: a credit for SEND and WRITE, a message for READ.
// That is the only place where anything waits. Issuing never blocks. A done op gives its value to its readers; when all of them are
// done, the value's slot is released. An op whose argument carries an error does not run: it passes the error on, and transfers and
// collectives always take place, so that an admitted execution flows to its end on every worker whatever fails.
//
// On a GPU worker with options.launch GRAPH all of this happens within captured iterations (captured_run.h), which this class only drives.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "weft/v1/client_service.pb.h"
#include "worker/run/captured_run.h"
#include "worker/run/compute_call.h"
#include "worker/run/loaded_graph.h"
#include "worker/run/loop_place.h"
#include "worker/run/program.h"
#include "worker/run/trace_recorder.h"

namespace weft {

class PlannedPlaces;

class GraphRun {
 public:
  struct Options {
    const Clock* clock = nullptr;
    Device* device = nullptr;
    size_t trace_capacity = 0;  // records kept; 0: no trace
    std::string attempt;        // what attempt() says
  };

  // Takes all memory and resolves every reference. `clock` and `device` outlive it. Errors: InvalidArgument (the plan does not fit what was
  // loaded; names the op), ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<GraphRun>> Create(LoadedGraph loaded, const Options& options);
  // Pre: Quiescent(), or the device is gone.
  ~GraphRun();

  // From now on what it is inside of is told there, under that number. `place` outlives it.
  void TellPlace(LoopPlace* place, int number) {
    place_ = place;
    number_ = number;
  }
  // "method `make` of node x (actor a)" where the op's issue is a call of an actor, else the op's name. From any thread, but not while Replan runs.
  std::string CallName(LoopCall call, int op) const;

  // Completes what is done and issues what may be, until nothing moves. True when anything moved.
  bool Step();

  // While paused, executions that have not begun here do not begin, and count as not admitted; those that have go on to their end. `admitted`: those that
  // are admitted by now may begin too.
  void Pause(bool paused, bool admitted = false);

  // When Step might find something though no doorbell rang; Event::kUnknown if there is no such time.
  Nanos NextTime() const;
  // Whether anything is issued and not done.
  bool InFlight() const;
  // Whether something is issued whose end rings no doorbell (Device::Polls): the loop must ask.
  bool MustPoll() const;

  // Ends the graph with its first cause: nothing more is issued, links are closed. Later causes are ignored.
  void Fail(const absl::Status& cause);
  // Whether it could run by this part from some execution on: the same actors, nodes, edges and collectives, each op with as many buffers, in
  // whatever order. InvalidArgument names what differs; FailedPrecondition: this graph is one that cannot change (captured iterations).
  absl::Status CheckReplan(const Plan& part) const;
  // Runs executions from `from` on by that part; actors, ports, groups and buffers stay, and what was recorded is forgotten. Pre: all executions
  // below `from` are done here and none above is admitted, else FailedPrecondition. As CheckReplan, or what a stream could not be made
  // for; after an error everything is as before.
  absl::Status Replan(Plan part, int64_t from);

  // OK while it runs.
  const absl::Status& failure() const { return failure_; }
  // After Fail: no thread touches its memory any more.
  bool Quiescent();

  const std::string& name() const { return loaded_.plan.graph; }
  const std::string& attempt() const { return attempt_; }
  const Plan& plan() const { return loaded_.plan; }
  const TraceRecorder& trace() const { return trace_; }
  // Executions that are done on this worker.
  int64_t completed() const { return completed_; }
  int64_t admitted() const { return admitted_; }
  // Ops done since the start.
  int64_t progress() const { return progress_; }

  // What each lane does or waits for.
  v1::WorkerView Inspect() const;

 private:
  enum class Blocked { kNot, kAdmission, kWait, kPort, kLoads, kFailed };

  // What an op made in one execution, until nobody holds it. Kept by execution, not by buffer: where the device waits, the next user of
  // a buffer may be issued before the host has seen the last reader done.
  struct Made {
    std::vector<Value> values;  // one per output
    int holders = 0;            // readers that are not done, and the op itself until it is
  };
  struct Outstanding {
    int op = -1;
    int64_t execution = 0;
    EventRef event;
    Nanos start = 0;
    EventRef mark;          // when the device began, where it can tell
    bool finished = false;  // values are filled already
    bool ran = false;       // a COMPUTE that was called, not skipped for an error
  };
  struct OpState {
    int64_t issued = 0;  // executions issued
    int64_t done = 0;    // executions done
    std::deque<Made> made;   // of executions first_made, first_made + 1, ...; deque, since ports fill values in place
    int64_t first_made = 0;
    std::unique_ptr<ComputeCall> call;
    std::vector<EventRef> events;  // of issued, not done executions; oldest first (devices that queue)
    std::vector<std::shared_ptr<void>> buffers;  // READ that copies, RECV, COLLECTIVE: one per slot
    Actor* actor = nullptr;
    int method = 0;
    bool loads = false;  // COMPUTE: a call may load device code (Actor::LoadsByShape), for shapes that nobody knows before
    bool on_host = false;  // COMPUTE on a GPU: its outputs lie in memory that the host reaches
    SendPort* sender = nullptr;
    RecvPort* receiver = nullptr;
    Communicator* group = nullptr;
  };
  struct Lane {
    std::unique_ptr<Stream> stream;
    int64_t execution = 0;  // of the head
    size_t position = 0;    // of the head in LocalLane::ops
    std::deque<Outstanding> outstanding;  // oldest first
    bool in_order = false;  // the device ends its ops in the order of issue, so the end of one is that of all before it
    Nanos since = 0;        // last issue or completion
  };

  GraphRun(LoadedGraph loaded, const Options& options);
  absl::Status Prepare();
  absl::Status PrepareOp(int i);
  absl::Status PrepareCaptured();
  // Tells ports that care where values will lie.
  absl::Status PlanPlaces();
  absl::Status PlanPlace(PlannedPlaces* port, const Spec& spec, const std::shared_ptr<void>& memory, DeviceStatus* status);
  // For each op of `part` the op that does the same here.
  absl::StatusOr<std::vector<int>> MatchOps(const Plan& part, const Program& program) const;
  bool StepCaptured();
  absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes);
  // Whether all that a COMPUTE on a GPU makes is small and taken out by the host alone: then kernels write it to the host, which costs less than
  // a copy behind them.
  bool BelongsOnHost(const LocalOp& op) const;
  // With options.poison_released, on devices that queue: what the op is about to write is filled first.
  absl::Status PoisonAhead(int op, int64_t k, Lane* lane);
  // The status word of a RECV's, READ's or COLLECTIVE's buffer; nullptr without.
  DeviceStatus* StatusOf(int op, int64_t k) const;
  // The event of `op` in execution k, if it is not known to be done.
  EventRef EventOf(int op, int64_t k) const;

  // The device's first unrecoverable error, asked of the device now where that cannot block.
  absl::Status DeviceHealth() const;
  // The last execution that may begin.
  int64_t Allowed() const { return std::min(admitted_, most_); }
  bool CompleteFront(Lane* lane);
  bool IssueHead(Lane* lane, int lane_index);
  Blocked WhyBlocked(const LocalOp& op, const OpState& state, int64_t k, int* which_wait) const;
  bool WaitHolds(const LocalWait& w, int64_t k, Stream* stream) const;
  absl::Status Issue(int op, int64_t k, Lane* lane, Outstanding* out);
  absl::Status IssueCompute(int op, int64_t k, Lane* lane, Outstanding* out);
  absl::Status IssueReceive(int op, int64_t k, Lane* lane, Outstanding* out);
  absl::Status IssueSend(int op, int64_t k, Lane* lane, Outstanding* out);
  absl::Status IssueCollective(int op, int64_t k, Lane* lane, Outstanding* out);
  void FinishCompute(int op, int64_t k);
  void Complete(const Outstanding& o, Lane* lane);
  // One holder less of what `op` made in execution k; releases what nobody holds, in order.
  void Unhold(int op, int64_t k);
  void Release(int op, int64_t k, Made* made);
  const Value& ArgValue(const LocalArg& a, int64_t k) const;
  std::vector<Value>& ValuesOf(int op, int64_t k) { return state_[op].made[k - state_[op].first_made].values; }
  TaskErrorRef MakeError(int op, int64_t k, const absl::Status& s) const;
  std::string Describe(const LocalOp& op) const { return OpName(loaded_.plan, *op.plan); }
  std::string WaitText(const LocalOp& op, const OpState& state, int64_t k) const;
  void UpdateCompleted();
  void Enter(LoopCall call, int op = -1, int64_t k = 0) {
    if (place_ != nullptr) place_->Enter(call, number_, op, k);
  }
  // The next Enter begins then.
  void AtTime(Nanos now) {
    if (place_ != nullptr) place_->SetNow(now);
  }

  LoadedGraph loaded_;
  const Clock* const clock_;
  Device* const device_;
  const std::string attempt_;
  Program program_;  // points into loaded_.plan
  bool status_words_ = false;
  bool ranges_ = false;  // the device shows whoever profiles it what is issued
  std::string worker_;
  std::vector<OpState> state_;
  std::vector<Lane> lanes_;
  TraceRecorder trace_;
  LoopPlace* place_ = nullptr;
  int number_ = 0;
  std::unique_ptr<CapturedRun> captured_;  // set: lanes_ are its streams and nothing is issued here
  absl::Status failure_;
  int64_t admitted_ = -1;
  int64_t most_ = INT64_MAX;  // while paused: the last execution that has begun, or may
  int64_t completed_ = 0;
  int64_t progress_ = 0;
};

}  // namespace weft
