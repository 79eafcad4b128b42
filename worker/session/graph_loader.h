#pragma once

// From a worker's part of a plan to ports, actors and communicators: the two phases of bootstrap. Blocking, under deadlines; runs on a
// graph's own thread, never on the loop's.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/channel/shm/hub.h"
#include "common/comm/gloo/gloo_mesh.h"
#include "common/device/device.h"
#include "common/plan/plan.h"
#include "weft/v1/worker_service.grpc.pb.h"
#include "worker/actor/actor.h"
#include "worker/run/loaded_graph.h"
#include "worker/run/program.h"
#include "worker/session/cancel_flag.h"
#include "worker/session/deferred_free.h"
#include "worker/session/worker_env.h"

namespace weft {

class Links;
class NcclComm;

class GraphLoader {
 public:
  // `env` and `cancel` outlive the loader.
  GraphLoader(WorkerEnv* env, std::shared_ptr<const Registration> registration, std::shared_ptr<v1::WorkerService::Stub> stub, Plan part,
              std::string attempt, CancelFlag* cancel);
  ~GraphLoader();

  // Phase 1: makes actors and what peers will ask for. Errors name the actor or edge.
  absl::Status Prepare();

  // Between the two: what device code the graph's calls make libraries load, while nothing of this worker is on the device (QuietTime::Rest). Nothing where
  // there is no GPU, or all has been loaded. DeadlineExceeded: the graphs of this worker did not rest.
  absl::Status LoadCode();

  // Phase 2: meets every peer and tries every edge once, in plan order, with a checked message. DeadlineExceeded and Unavailable name the
  // peer or edge; Cancelled carries the flag's cause.
  absl::StatusOr<LoadedGraph> Connect(const v1::Connect& peers);

  // When the graph is given to the loop, which alone uses its queue of NCCL's ops from then on.
  void Started();

 private:
  std::string Key(int32_t writer, int32_t reader) const;
  absl::Status CheckOpen(Nanos deadline, const std::string& what) const;
  absl::Status ImportSegments(const v1::Connect& peers, Nanos deadline);
  absl::Status MakeShmPorts(LoadedGraph* loaded);
  absl::Status MakeGlooPorts(LoadedGraph* loaded, Nanos deadline);
  absl::StatusOr<std::shared_ptr<GlooMesh>> Mesh(const std::string& label, std::vector<int32_t> workers, Nanos deadline);
  absl::Status MakeGroups(LoadedGraph* loaded, Nanos deadline);
  absl::Status MakeRemotePorts(LoadedGraph* loaded, Nanos deadline);
  // The parts that only a GPU worker has (graph_loader_cuda.cc); nothing elsewhere.
  absl::Status TakeArena();
  struct CodeCall;
  absl::StatusOr<std::vector<CodeCall>> CallsThatLoad(const Program& program);
  absl::Status RegisterSegments();
  absl::Status MakeIpcPorts(LoadedGraph* loaded, Nanos deadline);
  absl::Status StagePorts(LoadedGraph* loaded);
  // What goes over NCCL (graph_loader_nccl.cc); nothing where there is no such edge or group.
  struct NcclParts;
  absl::Status TakeBudget();
  absl::Status NeedNccl(const std::string& what);
  bool SameHost(const PlanEdge& e) const;
  absl::StatusOr<std::shared_ptr<NcclComm>> JoinNccl(const std::string& label, const std::vector<int32_t>& workers, Nanos deadline);
  absl::Status CheckOneLane(const std::vector<const PlanEdge*>& edges) const;
  absl::Status MakeNcclPorts(LoadedGraph* loaded, Nanos deadline);
  absl::Status MakeNcclGroup(const PlanGroup& g, LoadedGraph* loaded, Nanos deadline);
  absl::Status TryGroups(LoadedGraph* loaded, Nanos deadline);
  absl::Status TryGroup(const PlanGroup& g, LoadedGraph* loaded, Stream* stream, Nanos deadline);
  absl::Status TryEdges(LoadedGraph* loaded, Nanos deadline);
  absl::Status TryEdge(const PlanOp& op, LoadedGraph* loaded, Stream* stream, Nanos deadline);

  WorkerEnv* const env_;
  const std::shared_ptr<const Registration> registration_;
  const std::shared_ptr<v1::WorkerService::Stub> stub_;
  Plan part_;
  const std::string attempt_;
  CancelFlag* const cancel_;
  const int32_t me_;
  std::map<int32_t, std::unique_ptr<Actor>> actors_;
  std::map<int32_t, std::shared_ptr<ShmSegment>> to_;    // by peer, kClient included
  std::map<int32_t, std::shared_ptr<ShmSegment>> from_;  // by peer
  std::shared_ptr<Links> links_;  // shared with the LoadedGraph
  std::shared_ptr<DeferredFree::Held> held_;  // what lies below arena_
  std::shared_ptr<Arena> arena_;              // of planned device memory
  std::shared_ptr<NcclParts> nccl_;           // made by the first that needs it
  bool loads_at_calls_ = false;  // it counts in WorkerEnv::loads_at_calls
  bool handed_over_ = false;
};

}  // namespace weft
