#pragma once

// What the coordinator knows of one graph. Plain data, guarded by the coordinator's lock.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/plan/plan.h"
#include "driver/cluster/graph_end.h"
#include "driver/cluster/replan_record.h"
#include "weft/v1/client_service.pb.h"

namespace weft {

enum class GraphState {
  kCompiling,    // on a client's thread
  kLoading,      // phase 1: LoadPlan sent, LoadReply awaited
  kConnecting,   // phase 2: Connect sent, ConnectReply and the driver's own end awaited
  kStarting,     // Start sent, StartReply awaited
  kReady,
  kFailed,
  kDraining,     // teardown: executions in flight finish
  kUnloading,    // teardown: Unload sent, UnloadReply awaited
};

struct GraphMember {
  int32_t index = 0;  // in the plan's workers
  std::string name;
  std::string incarnation;
  int64_t pid = 0;
  bool gone = false;      // its stream ended
  bool answered = false;  // the message that the current phase waits for
};

struct GraphRecord {
  using CompileDone = std::function<void(absl::StatusOr<v1::CompileReply>)>;
  using TeardownDone = std::function<void(absl::Status)>;

  std::string name;
  std::string attempt;  // "" for a graph known only from the state directory
  GraphState state = GraphState::kCompiling;
  // A client's thread is in the compiler for it, and will finish or remove it.
  bool in_compiler = false;
  bool bootstrapping() const {
    return state == GraphState::kLoading || state == GraphState::kConnecting || state == GraphState::kStarting;
  }

  std::shared_ptr<const v1::Graph> graph;
  std::shared_ptr<const Plan> plan;
  std::vector<GraphMember> members;
  std::shared_ptr<GraphEnd> session;
  bool session_connected = false;

  // Bootstrap.
  v1::CompileReply reply;
  CompileDone compile_done;
  Nanos bootstrap_began = 0;
  Nanos phase_deadline = 0;
  bool asked = false;                        // what those do that have not answered the phase
  std::map<std::string, std::string> doing;  // what they said

  // The first cause. While `settle_at` is set it is provisional: a report that a peer is gone waits a moment for the death itself.
  absl::Status cause;
  Nanos settle_at = 0;

  // Teardown.
  std::vector<TeardownDone> teardown_done;
  double drain_timeout_s = 0;
  Nanos deadline = 0;

  // Progress.
  int64_t progress = -1;
  Nanos progress_at = 0;
  bool stall_reported = false;
  std::string stalled;

  // While it is re-planned.
  std::shared_ptr<ReplanRecord> replan;

  // Executions that were admitted and done when the session was dropped.
  GraphEnd::Counts last_counts;
};

const char* GraphStateName(GraphState state);

}  // namespace weft
