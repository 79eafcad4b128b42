#pragma once

// From a worker's part of a plan to ports, actors and communicators: the two phases of bootstrap. Blocking, under deadlines; runs on a
// graph's own thread, never on the loop's.

#include <algorithm>
#include <atomic>
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
#include "common/channel/shm/hub.h"
#include "common/comm/gloo/gloo_mesh.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/comm/nccl/nccl_work.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/device.h"
#include "common/plan/plan.h"
#include "weft/v1/worker_service.grpc.pb.h"
#include "worker/actor/actor.h"
#include "worker/run/executor.h"
#include "worker/run/loaded_graph.h"
#include "worker/session/deferred_free.h"
#include "worker/session/quiet_time.h"
#include "worker/session/device_budget.h"

namespace weft {

// What all graphs of one worker process share. Pointers outlive their users; the strings are set before any graph is loaded.
// What a worker and a driver have told each other when the worker registered. Another registration is another object: bootstrap that began under the one
// before may still be in a call.
struct Registration {
  std::string worker_name;
  std::string incarnation;
  std::string driver_host_id;
  std::string driver_shm_address;
};

struct WorkerEnv {
  const Clock* clock = nullptr;
  Device* device = nullptr;
  CudaDevice* cuda = nullptr;        // `device` where it is a GPU, else nullptr
  DeferredFree* deferred = nullptr;  // of its memory
  QuietTime* quiet = nullptr;
  Doorbell* doorbell = nullptr;
  ShmHub* hub = nullptr;
  Executor* executor = nullptr;
  const ActorRegistry* registry = nullptr;
  std::string host_id;
  std::string data_address;
  std::string token;
  // Most SMs that a kernel of NCCL takes: more moves data faster, and slows what computes beside it.
  int nccl_max_ctas = NcclComm::Options().max_ctas;
  bool shares_gpu = false;  // with other workers
  bool under_mps = false;   // by CUDA MPS, not in time slices
  // CUDA_DEVICE_MAX_CONNECTIONS.
  int cuda_connections = 32;
  // Told when the GPU can no longer be used though CUDA says nothing of it (an abort of NCCL that hangs); the worker should end. From any
  // thread; may be empty.
  std::function<void(const absl::Status&)> on_device_lost;

  // Of the GPU. Pre: cuda is set. Thread-safe.
  DeviceBudget* Budget() {
    MutexLock lock(&budget_mu);
    if (budget == nullptr) budget = std::make_unique<DeviceBudget>(DeviceBudget::Default(cuda->info().sm_count, cuda_connections));
    return budget.get();
  }
  Mutex budget_mu;
  std::unique_ptr<DeviceBudget> budget WEFT_GUARDED_BY(budget_mu);

  // Made at first use: a worker without Gloo edges opens no socket for them. Thread-safe.
  absl::StatusOr<std::shared_ptr<GlooDevice>> Gloo() {
    MutexLock lock(&gloo_mu);
    if (gloo == nullptr) {
      absl::StatusOr<std::shared_ptr<GlooDevice>> made = GlooDevice::Create(data_address);
      if (!made.ok()) return made.status();
      gloo = *std::move(made);
    }
    return gloo;
  }
  // Kinds of calls whose device code this process has loaded. Thread-safe.
  bool HasCode(const std::string& key) {
    MutexLock lock(&code_mu);
    return code.count(key) > 0;
  }
  void AddCode(const std::string& key) {
    MutexLock lock(&code_mu);
    code.insert(key);
  }
  Mutex code_mu;
  std::set<std::string> code WEFT_GUARDED_BY(code_mu);
  // Of graphs whose calls may have shapes that nobody knows before, and so may load code when they are made. The result counts for as long as it is held.
  std::shared_ptr<void> LoadsAtCalls() {
    ++*loads_at_calls;
    return std::shared_ptr<void>(loads_at_calls.get(), [count = loads_at_calls](void*) { --*count; });
  }
  const std::shared_ptr<std::atomic<int>> loads_at_calls = std::make_shared<std::atomic<int>>(0);

  // Of graphs that run: the loop's thread asks whether any of them owes a peer something (NcclQueue::Owes). Thread-safe, but for the queues themselves.
  void AddQueue(std::weak_ptr<NcclQueue> queue) {
    MutexLock lock(&queues_mu);
    queues.push_back(std::move(queue));
  }
  bool Owes() {
    MutexLock lock(&queues_mu);
    queues.erase(std::remove_if(queues.begin(), queues.end(), [](const std::weak_ptr<NcclQueue>& q) { return q.expired(); }), queues.end());
    return std::any_of(queues.begin(), queues.end(), [](const std::weak_ptr<NcclQueue>& q) {
      const std::shared_ptr<NcclQueue> queue = q.lock();
      if (queue == nullptr) return false;
      queue->Pump();
      return queue->Owes();
    });
  }
  Mutex queues_mu;
  std::vector<std::weak_ptr<NcclQueue>> queues WEFT_GUARDED_BY(queues_mu);

  Mutex gloo_mu;
  std::shared_ptr<GlooDevice> gloo WEFT_GUARDED_BY(gloo_mu);
};

// A first cause that ends waits. Thread-safe.
class CancelFlag {
 public:
  void Set(const absl::Status& cause) {
    MutexLock lock(&mu_);
    if (!cause_.ok()) return;
    cause_ = cause;
    if (on_set_) on_set_(cause);
  }
  // Called once, at once if it is set already; nullptr takes it back, and afterwards it is not being called. Must not call back.
  void OnSet(std::function<void(const absl::Status&)> f) {
    MutexLock lock(&mu_);
    on_set_ = std::move(f);
    if (on_set_ && !cause_.ok()) on_set_(cause_);
  }
  absl::Status Get() const {
    MutexLock lock(&mu_);
    return cause_;
  }

 private:
  mutable Mutex mu_;
  absl::Status cause_ WEFT_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> on_set_ WEFT_GUARDED_BY(mu_);
};

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
