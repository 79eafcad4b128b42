#pragma once

// A whole cluster in one process, as in_process.h, but with what is under the loop made real as far as one process goes: GPU workers run
// weft's own actors over fakes of CUDA and NCCL, edges are shared memory, CUDA IPC and NCCL, collectives are NCCL's. CPU workers run over a
// fake device. One thread drives all workers and the client; only the fakes' streams are threads.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel/doorbell.h"
#include "common/channel/shm/hub.h"
#include "common/channel/nccl/nccl_link.h"
#include "common/comm/fake/memory_store.h"
#include "common/comm/gloo/gloo_mesh.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "common/plan/plan.h"
#include "tests/integration/in_process.h"
#include "worker/run/graph_run.h"

namespace weft {

class GpuCluster {
 public:
  struct Options {
    FakePlugin::Options fakes;  // of every GPU worker
    size_t trace_capacity = 0;
    // Workers below this number make their links as where they share a GPU with others.
    int32_t share_gpu_below = 0;
    // Called between the making of edges and the loading of the graph: for faults.
    std::function<void(GpuCluster*)> before_load;
  };

  // Workers of the plan whose device is "cuda" have a fake GPU each; the plan outlives it.
  explicit GpuCluster(const Plan& plan) : GpuCluster(plan, Options()) {}
  GpuCluster(const Plan& plan, Options options);
  // Fails every run and waits until nothing uses its memory.
  ~GpuCluster();
  GpuCluster(const GpuCluster&) = delete;
  GpuCluster& operator=(const GpuCluster&) = delete;

  // Bootstrap, to the graphs being ready to run; once.
  absl::Status Start();

  // Runs so many more executions, with so many in flight; results in their order. An input may be an error. Internal when nothing moves for
  // 20 s: the message holds every worker's view.
  absl::StatusOr<std::vector<InProcessResult>> Run(int64_t executions, int in_flight,
                                                   const std::function<Value(const std::string& input, int64_t execution)>& input);
  // What is run from here on, on all workers (GraphRun::Replan). Pre: between two Runs.
  absl::Status Replan(const Plan& next);
  // The pieces of Run.
  bool StepWorkers();
  void Admit(int64_t execution) { admitted_ = execution; }
  absl::Status SendInputs(int64_t execution, const std::function<Value(const std::string&, int64_t)>& input);
  std::string Views() const;

  GraphRun* run(int worker) { return places_.at(worker).run.get(); }
  FakeCuda* cuda(int worker) { return &places_.at(worker).fakes->cuda; }
  // What the worker's links were closed with.
  const absl::Status& closed_with(int worker) { return places_.at(worker).closed_with; }
  // As if the worker's process had ended: its ends of all edges close with this.
  void CloseLinks(int worker, const absl::Status& why);

 private:
  // A worker, or the client (kClient).
  struct Place {
    std::unique_ptr<Doorbell> doorbell;
    std::unique_ptr<ShmHub> hub;
    std::map<int32_t, std::shared_ptr<ShmSegment>> to, from;  // by peer
    std::unique_ptr<FakePlugin> fakes;
    std::unique_ptr<FakeKernels> kernels;
    std::unique_ptr<CudaDevice> cuda;
    std::unique_ptr<Device> cpu;
    std::shared_ptr<void> memory;  // of the arena
    std::vector<std::shared_ptr<void>> locks;
    std::vector<std::function<void()>> releasers;
    std::shared_ptr<NcclQueue> queue;
    std::shared_ptr<NcclScratch> scratch;
    std::map<std::pair<int32_t, int32_t>, std::shared_ptr<NcclLink>> links;  // by source and destination
    std::vector<std::shared_ptr<NcclComm>> comms;
    std::vector<std::shared_ptr<GlooMesh>> meshes;
    LoadedGraph loaded;
    std::unique_ptr<GraphRun> run;
    absl::Status closed_with;
    Device* device() const { return cuda != nullptr ? static_cast<Device*>(cuda.get()) : cpu.get(); }
  };
  struct Output {
    const PlanEdge* edge;
    std::unique_ptr<RecvPort> port;
    int64_t next = 0;
  };
  struct Input {
    const PlanEdge* edge;
    std::unique_ptr<SendPort> port;
  };

  absl::Status MakePlace(int32_t id);
  absl::Status Connect();
  absl::Status MakePorts(int32_t id);
  absl::Status MakeLinks();
  absl::Status MakeGroups();
  // One communicator of each worker.
  absl::StatusOr<std::map<int32_t, std::shared_ptr<NcclComm>>> Join(const std::string& label, const std::vector<int32_t>& workers);
  absl::Status Load(int32_t id);
  absl::Status TryEdges();
  absl::StatusOr<bool> TakeOutputs(std::vector<InProcessResult>* results);
  std::string Key(int32_t writer, int32_t reader) const;

  const Plan& plan_;
  const Options options_;
  FakeClock clock_;  // of CPU workers
  std::map<int32_t, Place> places_;
  std::map<int32_t, Plan> parts_;
  MemoryStore store_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  int64_t admitted_ = -1;
  int64_t first_ = 0;
};

}  // namespace weft
