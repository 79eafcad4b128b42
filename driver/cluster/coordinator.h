#pragma once

// Everything that the driver knows and decides: which graph is where, in which phase, and why it failed. A state machine that is fed
// with workers' messages, clients' calls, sessions' reports and time; it starts no thread, blocks nowhere (but in the compiler, on the
// caller's thread), and speaks to the outside through WorkerLink and GraphEnd only, so that tests drive it by hand.
//
// A compile goes: compile -> phase 1 (LoadPlan / LoadReply) -> phase 2 (Connect / ConnectReply, and the driver's own end) -> Start /
// StartReply -> ready. Each phase has a deadline; whatever fails first ends the attempt everywhere and is what everybody is told.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/plan/plan.h"
#include "driver/cluster/actions.h"
#include "driver/cluster/clock_sync.h"
#include "driver/cluster/fan_out.h"
#include "driver/cluster/graph_record.h"
#include "driver/cluster/graph_end.h"
#include "driver/cluster/graph_store.h"
#include "driver/cluster/kv_store.h"
#include "driver/cluster/registry.h"
#include "weft/v1/client_service.pb.h"
#include "weft/v1/costs.pb.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

// Plain timeouts of the coordinator, in seconds. They nest: each inner one ends, with its own words, before the outer one does.
struct CoordinatorTimeouts {
  // A report that a peer is gone waits so long for that peer's own end to be noticed, which is then the cause.
  double settle_s = 0.25;
  double inspect_s = 1.0;
  double trace_s = 10.0;
  double unload_s = 5.0;
  // Part of bootstrap_timeout_s that a worker gets for phase 2.
  double worker_share = 0.9;
};

// Thread-safe.
class Coordinator {
 public:
  // Compiles for the given live workers. Called without locks, on the thread of Compile's caller.
  // `costs` may be nullptr.
  using CompileFn =
      std::function<absl::StatusOr<Plan>(const v1::Graph& graph, const std::vector<WorkerSnapshot>& workers, const v1::Costs* costs)>;
  // Another plan for a graph that runs, on the same workers; and what costs predict for both, in seconds per execution.
  struct Recompiled {
    Plan plan;
    double old_predicted_s = 0;
    double new_predicted_s = 0;
  };
  using RecompileFn = std::function<absl::StatusOr<Recompiled>(const v1::Graph& graph, const Plan& running, const v1::Costs& costs)>;
  using InspectDone = std::function<void(v1::InspectReply)>;
  // Measured tracks with their clock offsets, and which workers gave none and why.
  using TraceDone = std::function<void(std::vector<v1::TraceTrack> tracks, std::map<std::string, std::string> problems)>;

  // `clock` and `store` outlive it; without a `store` nothing is kept.
  Coordinator(const Clock* clock, WorkerRegistry::Options options, CoordinatorTimeouts timeouts, CompileFn compile,
              GraphEndFactory make_session, const GraphStore* store, RecompileFn recompile = nullptr);
  ~Coordinator();

  // Lists the graphs of the state directory as failed: the driver that ran them is gone.
  absl::Status Recover();

  // ---- workers
  absl::StatusOr<std::string> WorkerJoined(const v1::WorkerMessage& first, std::shared_ptr<WorkerLink> link);
  void WorkerSaid(const std::string& name, const v1::WorkerMessage& message);
  // The stream of that incarnation ended: all its graphs fail.
  void WorkerLost(const std::string& name, const std::string& incarnation);

  // ---- clients
  // `done` is called once, from any thread, perhaps before this returns. Returns the attempt, for CancelCompile; "" when there is none.
  // Errors: AlreadyExists, InvalidArgument, the compiler's, and those of the bootstrap, which name worker and phase.
  std::string Compile(const v1::Graph& graph, bool trace, GraphRecord::CompileDone done, const v1::Costs* costs = nullptr);
  // The client that asked has gone: ends that bootstrap if it still runs.
  void CancelCompile(const std::string& graph, const std::string& attempt);
  void Teardown(const std::string& graph, double drain_timeout_s, GraphRecord::TeardownDone done);
  // Compiles the graph anew by these costs (on this thread), changes to the new plan between two executions if it is predicted to be faster,
  // measures both on what clients execute, and keeps the faster. `executions` and `timeout_s`: see ReplanRequest. `done` is called once,
  // from any thread. Errors: NotFound; FailedPrecondition (not ready, re-planned already, or a worker cannot change); DeadlineExceeded (too
  // few executions, or one in flight did not end); the compiler's; or the graph's first cause. After an error, unless the graph has
  // failed, it runs by the plan of before.
  // Returns what CancelReplan takes.
  std::weak_ptr<ReplanRecord> Replan(const std::string& graph, const v1::Costs& costs, int64_t executions, double timeout_s,
                                     ReplanRecord::Done done);
  // The client that asked has gone: before any worker is told to change, that is the end of it; a change under way is finished, or taken
  // back, within its deadlines.
  void CancelReplan(const std::string& graph, const std::weak_ptr<ReplanRecord>& which);
  v1::ListGraphsReply ListGraphs() const;
  v1::ListWorkersReply ListWorkers() const;
  // Of one graph, or of all (""): then also what workers still remove that is forgotten here. Reply within inspect_s. NotFound for an unknown graph.
  absl::Status Inspect(const std::string& graph, InspectDone done);
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const std::string& graph) const;
  absl::Status Trace(const std::string& graph, int32_t executions, TraceDone done);
  // Of a ready graph. NotFound; FailedPrecondition with the first cause, or with the state it is in.
  absl::StatusOr<std::shared_ptr<GraphEnd>> SessionOf(const std::string& graph) const;
  // Of one attempt, whatever its state, for its worker's Data stream.
  absl::StatusOr<std::shared_ptr<GraphEnd>> SessionOfAttempt(const std::string& graph, const std::string& attempt,
                                                                 const std::string& worker, const std::string& incarnation) const;

  // ---- time and end
  // Does what is due. Returns whether anything waits for time to pass: then it is to be called again in 50 ms or so, otherwise a
  // quarter of a second later is soon enough.
  bool Tick();
  // Fails every graph and ends every pending call with `cause`; nothing new is taken.
  void Shutdown(const absl::Status& cause);
  bool shut_down() const;

  KvStore* store() { return &kv_; }
  WorkerRegistry* registry() { return &registry_; }

 private:
  using Pieces = std::vector<std::vector<v1::DriverMessage>>;  // by member

  // coordinator.cc
  std::vector<std::string> Names() const WEFT_REQUIRES(mu_);
  void TickGraph(GraphRecord* g, Nanos now, Actions* after) WEFT_REQUIRES(mu_);
  // coordinator_compile.cc
  absl::Status Reserve(const v1::Graph& graph, const std::string& attempt, Actions* after) WEFT_REQUIRES(mu_);
  void BeginBootstrap(GraphRecord* g, Pieces pieces, Actions* after) WEFT_REQUIRES(mu_);
  void Drop(std::map<std::string, GraphRecord>::iterator it, Actions* after) WEFT_REQUIRES(mu_);
  // coordinator_bootstrap.cc
  GraphRecord* FindAttempt(const std::string& graph, const std::string& attempt) WEFT_REQUIRES(mu_);
  GraphMember* FindMember(GraphRecord* g, const std::string& worker) WEFT_REQUIRES(mu_);
  void Answered(GraphRecord* g, GraphState phase, GraphMember* member, const absl::Status& status, Actions* after)
      WEFT_REQUIRES(mu_);
  void EnterPhase(GraphRecord* g, GraphState phase) WEFT_REQUIRES(mu_);
  void AdvanceIfAnswered(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  void SendToMember(GraphRecord* g, GraphMember* m, v1::DriverMessage message, Actions* after) WEFT_REQUIRES(mu_);
  void SessionConnected(const std::string& graph, const std::string& attempt, const absl::Status& status);
  void AskWhatHolds(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  void PhaseOverdue(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  // coordinator_failure.cc
  void SessionFailed(const std::string& graph, const std::string& attempt, const absl::Status& status);
  void Fail(GraphRecord* g, const absl::Status& cause, bool provisional, Actions* after) WEFT_REQUIRES(mu_);
  void Settle(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  std::string Situation(const GraphRecord& g) const WEFT_REQUIRES(mu_);
  // coordinator_teardown.cc
  void Drained(const std::string& graph, const std::string& attempt);
  void BeginUnload(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  void FinishUnloadIfAnswered(const std::string& graph, Actions* after) WEFT_REQUIRES(mu_);
  // coordinator_replan.cc
  void TickReplan(GraphRecord* g, Nanos now, Actions* after) WEFT_REQUIRES(mu_);
  void MeasureReplan(GraphRecord* g, bool overdue, Actions* after) WEFT_REQUIRES(mu_);
  void LoadReplan(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  void NextPlanAnswered(GraphRecord* g, const GraphMember& member, const absl::Status& status, Actions* after) WEFT_REQUIRES(mu_);
  void PauseReplan(GraphRecord* g, Actions* after) WEFT_REQUIRES(mu_);
  void ReplanPaused(const std::string& graph, const std::string& attempt, int64_t admitted);
  void SendSwaps(GraphRecord* g, ReplanRecord::Phase phase, Actions* after) WEFT_REQUIRES(mu_);
  void SwapAnswered(GraphRecord* g, const GraphMember& member, const std::string& hash, const absl::Status& status, Actions* after)
      WEFT_REQUIRES(mu_);
  void EndReplan(GraphRecord* g, const absl::Status& status, Actions* after) WEFT_REQUIRES(mu_);
  // coordinator_query.cc
  v1::GraphInfo InfoOf(const GraphRecord& g) const WEFT_REQUIRES(mu_);
  void CheckProgress(GraphRecord* g, Nanos now, Actions* after) WEFT_REQUIRES(mu_);
  void ReportStall(const std::string& graph, const std::string& attempt, double since_s, double limit_s);
  void LogChangedWorkers();

  const Clock* const clock_;
  const CoordinatorTimeouts timeouts_;
  const CompileFn compile_;
  const RecompileFn recompile_;
  const GraphEndFactory make_session_;
  const GraphStore* const graphs_on_disk_;
  WorkerRegistry registry_;
  FanOut fan_out_;
  ClockSync clock_sync_;
  KvStore kv_;

  mutable Mutex mu_;
  std::map<std::string, GraphRecord> graphs_ WEFT_GUARDED_BY(mu_);
  absl::Status shut_down_ WEFT_GUARDED_BY(mu_);
  // Sessions are let go by Tick, never on a thread of their own.
  std::vector<std::shared_ptr<GraphEnd>> graveyard_ WEFT_GUARDED_BY(mu_);
  Nanos next_worker_check_ WEFT_GUARDED_BY(mu_) = 0;
  std::map<std::string, WorkerState> logged_states_ WEFT_GUARDED_BY(mu_);
};

// A worker's part of another plan for a graph that runs, in pieces.
std::vector<v1::DriverMessage> NextPlanMessages(const Plan& plan, int32_t worker, const std::string& attempt);

// Workers (plan indices) that have an op or an actor in the plan.
std::vector<int32_t> WorkersWithAPart(const Plan& plan);

}  // namespace weft
