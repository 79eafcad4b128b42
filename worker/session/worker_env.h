#pragma once

// What belongs to a worker process rather than to one of its graphs.

#include <algorithm>
#include <atomic>
#include <functional>
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
#include "worker/actor/actor.h"
#include "worker/run/executor.h"
#include "worker/session/deferred_free.h"
#include "worker/session/device_budget.h"
#include "worker/session/quiet_time.h"

namespace weft {

// What a worker and a driver have told each other when the worker registered. Another registration is another object: bootstrap that began under the one
// before may still be in a call.
struct Registration {
  std::string worker_name;
  std::string incarnation;
  std::string driver_host_id;
  std::string driver_shm_address;
};

// What all graphs of one worker process share. Pointers outlive their users; the strings are set before any graph is loaded.
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

}  // namespace weft
