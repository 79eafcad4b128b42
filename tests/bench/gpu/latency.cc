// What the loop costs on a GPU beside the bare calls: an op, a chain of small kernels (streams, captured graphs), a value's way from a CPU worker through a
// GPU task to a CPU worker.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/channel/doorbell.h"
#include "driver/plan/compiler.h"
#include "tests/bench/gpu/bench.h"
#include "worker/actor/actor.h"
#include "worker/run/graph_run.h"

namespace weft::bench {
namespace {

void Check(const absl::Status& s) {
  if (!s.ok()) throw std::runtime_error(std::string(s.message()));
}

// An actor whose method launches a kernel that does nothing.
class Nothing : public Actor {
 public:
  explicit Nothing(KernelsApi* kernels) : kernels_(kernels) {}
  absl::StatusOr<int> Method(const std::string&) const override { return 0; }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>&, std::vector<Tensor>* outs) override {
    WEFT_ASSIGN_OR_RETURN(outs->at(0), ctx.AllocateOutput(0, v1::F32, {1}));
    return kernels_->Nothing(ctx.stream()->native()) == kCudaSuccess ? absl::OkStatus() : absl::InternalError("launch failed");
  }

 private:
  KernelsApi* const kernels_;
};

ClassTable Classes() {
  ClassTable table = ClassTable::Std();
  ClassSignature c;
  c.name = "bench.Nothing";
  MethodSignature m;
  m.name = "run";
  m.max_args = 1;
  m.infer = [](const v1::Config&, const std::vector<Spec>&) -> absl::StatusOr<std::vector<Spec>> {
    return std::vector<Spec>{{v1::F32, Shape::Of({1})}};
  };
  c.methods.push_back(m);
  table.Add(c);
  return table;
}

v1::Graph Chain(int length, const std::string& cls, const std::string& method, v1::Launch launch) {
  v1::Graph g;
  g.set_name("chain");
  v1::Actor* source = g.add_actor();
  source->set_name("source");
  source->set_class_("std.Constant");
  source->set_worker("w0");
  source->mutable_config()->set_dtype(v1::F32);
  source->mutable_config()->set_shape("[1]");
  v1::Actor* a = g.add_actor();
  a->set_name("a");
  a->set_class_(cls);
  a->set_worker("w0");
  if (cls == "std.Scale") a->mutable_config()->set_scale(1.0);
  v1::Node* first = g.add_node();
  first->set_name("first");
  first->set_actor("source");
  first->set_method("make");
  std::string last = "first";
  for (int i = 0; i < length; ++i) {
    v1::Node* n = g.add_node();
    n->set_name(absl::StrCat("n", i));
    n->set_actor("a");
    n->set_method(method);
    n->add_arg()->set_node(last);
    last = n->name();
  }
  g.mutable_options()->set_max_in_flight(8);
  g.mutable_options()->set_launch(launch);
  return g;
}

// A graph of one worker in this process, without a driver.
class Local {
 public:
  Local(const v1::Graph& graph, CudaDevice* device) {
    Cluster cluster;
    cluster.client_host_id = "h";
    cluster.workers.push_back({"w0", "h", "cuda"});
    auto plan = Compile(graph, Classes(), cluster);
    Check(plan.status());
    LoadedGraph loaded;
    loaded.plan = PartOf(*plan, 0);
    for (const PlanActor& a : loaded.plan.actors) {
      if (a.cls == "bench.Nothing") {
        loaded.actors[a.id] = std::make_unique<Nothing>(device->kernels());
        continue;
      }
      auto made = ActorRegistry::Std("cuda").Make(a.cls, a.config, device);
      Check(made.status());
      loaded.actors[a.id] = *std::move(made);
    }
    loaded.admitted = [this] { return admitted_; };
    GraphRun::Options o;
    o.clock = Clock::Real();
    o.device = device;
    auto run = GraphRun::Create(std::move(loaded), o);
    Check(run.status());
    run_ = *std::move(run);
  }

  // Until `executions` more are done; `in_flight` admitted ahead.
  void Go(int executions, int in_flight) {
    const int64_t target = run_->completed() + executions;
    const Nanos deadline = Clock::Real()->Now() + 60 * kNanosPerSecond;
    while (run_->completed() < target) {
      admitted_ = std::min<int64_t>(run_->completed() + in_flight, target) - 1;
      run_->Step();
      Check(run_->failure());
      if (Clock::Real()->Now() > deadline) throw std::runtime_error("the chain hangs");
    }
  }

  ~Local() {
    run_->Fail(absl::CancelledError("done"));
    while (!run_->Quiescent()) {
    }
  }

 private:
  int64_t admitted_ = -1;
  std::unique_ptr<GraphRun> run_;
};

// Calls that do nothing: what is left is the loop's own cost. Made by hand, since a fake that runs would cost more than the loop.
class NullCuda : public CudaApi {
 public:
  const char* ErrorName(int) override { return "none"; }
  const char* ErrorText(int) override { return "none"; }
  int Versions(int*, int*) override { return 0; }
  int DeviceCount(int* n) override { return *n = 1, 0; }
  int GetDeviceInfo(int, CudaDeviceInfo* out) override { return *out = {}, 0; }
  int MemInfo(uint64_t*, uint64_t*) override { return 0; }
  int CanAccessPeer(int, int, int*) override { return 0; }
  int SetDevice(int) override { return 0; }
  int StreamPriorityRange(int* a, int* b) override { return *a = *b = 0; }
  int StreamCreate(int, CudaStreamHandle* out) override { return *out = Next(), 0; }
  int StreamDestroy(CudaStreamHandle) override { return 0; }
  int StreamQuery(CudaStreamHandle) override { return 0; }
  int StreamSynchronize(CudaStreamHandle) override { return 0; }
  int EventCreate(bool, CudaEventHandle* out) override { return *out = Next(), 0; }
  int EventDestroy(CudaEventHandle) override { return 0; }
  int EventRecord(CudaEventHandle, CudaStreamHandle) override { return 0; }
  int EventQuery(CudaEventHandle) override { return 0; }
  int StreamWaitEvent(CudaStreamHandle, CudaEventHandle) override { return 0; }
  int EventElapsed(CudaEventHandle, CudaEventHandle, float*) override { return 0; }
  int Malloc(size_t, void** out) override { return *out = Next(), 0; }
  int Free(void*) override { return 0; }
  int MallocAsync(size_t, CudaStreamHandle, void** out) override { return *out = Next(), 0; }
  int FreeAsync(void*, CudaStreamHandle) override { return 0; }
  int HostAlloc(size_t, void** out) override { return *out = Next(), 0; }
  int HostFree(void*) override { return 0; }
  int HostRegister(void*, size_t) override { return 0; }
  int HostUnregister(void*) override { return 0; }
  int MemcpyAsync(void*, const void*, size_t, CudaStreamHandle) override { return 0; }
  int Memcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, CudaStreamHandle) override { return 0; }
  int MemsetAsync(void*, int, size_t, CudaStreamHandle) override { return 0; }
  int IpcGetHandle(void*, CudaIpcHandle*) override { return 0; }
  int IpcOpen(const CudaIpcHandle&, void**) override { return 0; }
  int IpcClose(void*) override { return 0; }
  int StreamWrite32(CudaStreamHandle, void*, uint32_t) override { return 0; }
  int StreamWait32(CudaStreamHandle, void*, uint32_t) override { return 0; }
  int BeginCapture(CudaStreamHandle) override { return 0; }
  int EndCapture(CudaStreamHandle, CudaGraphHandle*) override { return 0; }
  int GraphInstantiate(CudaGraphHandle, CudaGraphExecHandle*) override { return 0; }
  int GraphUpload(CudaGraphExecHandle, CudaStreamHandle) override { return 0; }
  int GraphLaunch(CudaGraphExecHandle, CudaStreamHandle) override { return 0; }
  int GraphDestroy(CudaGraphHandle) override { return 0; }
  int GraphExecDestroy(CudaGraphExecHandle) override { return 0; }
  void RangePush(const char*) override {}
  void RangePop() override {}

 private:
  void* Next() { return reinterpret_cast<void*>(next_ += 256); }
  uintptr_t next_ = 256;
};

class NullKernels : public KernelsApi {
 public:
  int Load(const char**) override { return 0; }
  int Fill(DeviceFill, double, uint64_t, ExecutionNumber, int, void*, int64_t, void*) override { return 0; }
  int Add(int, const void* const*, int, void*, int64_t, void*) override { return 0; }
  int Scale(int, const void*, double, void*, int64_t, void*) override { return 0; }
  int Reduce(DeviceReduce, int, const void*, int64_t, int64_t, int64_t, void*, void*) override { return 0; }
  int Matmul(int, DevicePrecision, const void*, const void*, void*, int64_t, int64_t, int64_t, void*) override { return 0; }
  int Linear(int, DevicePrecision, DeviceActivation, const void*, const void*, const void*, void*, int64_t, int64_t, int64_t, void*) override {
    return 0;
  }
  int Gemm(int, DevicePrecision, const void*, bool, const void*, bool, void*, int64_t, int64_t, int64_t, bool, void*) override { return 0; }
  int ActivationGradient(int, DeviceActivation, const void*, const void*, void*, int64_t, void*) override { return 0; }
  int Delay(int64_t, int, void*) override { return 0; }
  int Calibrate() override { return 0; }
  int CombineStatus(const DeviceStatus* const*, int, DeviceStatus*, void*) override { return 0; }
  int CheckFinite(int, const void*, int64_t, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return 0; }
  int FailOn(const int64_t*, int, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return 0; }
  int Advance(int64_t*, void*) override { return 0; }
  int Nothing(void*) override { return 0; }
  int IllegalAddress(void*) override { return 0; }
};

double SecondsOf(const std::function<void()>& f) {
  const Nanos begin = Clock::Real()->Now();
  f();
  return ToSeconds(Clock::Real()->Now() - begin);
}

void OpCost(CudaDevice* d) {
  constexpr int kOps = 64, kExecutions = 200;
  CudaApi* const api = d->api();
  const auto a = *d->NewStream(v1::LANE_COMPUTE);
  const auto b = *d->NewStream(v1::LANE_RECV);
  std::vector<CudaEventHandle> events(kOps);
  for (auto& e : events) Check(d->Check(api->EventCreate(false, &e), "event"));
  Local local(Chain(kOps, "bench.Nothing", "run", v1::STREAM), d);
  local.Go(50, 4);
  std::vector<double> bare, weft;
  for (int round = 0; round < 9; ++round) {
    bare.push_back(SecondsOf([&] {
                     for (int k = 0; k < kExecutions; ++k) {
                       for (int i = 0; i < kOps; ++i) {
                         d->kernels()->Nothing(a->native());
                         api->EventRecord(events[i], a->native());
                         api->StreamWaitEvent(b->native(), events[i]);
                       }
                     }
                     api->StreamSynchronize(a->native());
                     api->StreamSynchronize(b->native());
                   }) /
                   (kOps * kExecutions));
    weft.push_back(SecondsOf([&] { local.Go(kExecutions, 4); }) / ((kOps + 1) * kExecutions));
  }
  for (auto& e : events) api->EventDestroy(e);
  const double ratio = Median(weft) / Median(bare);
  Row("op cost of the loop", absl::StrFormat("%.2f us, bare launch + record + wait %.2f us: %s", Median(weft) * 1e6, Median(bare) * 1e6, Ratio(ratio)),
      "<= 1.30", ratio <= 1.30);
}

void LoopAlone() {
  NullCuda cuda;
  NullKernels kernels;
  CudaPlugin plugin;
  plugin.cuda = &cuda;
  plugin.kernels = &kernels;
  auto device = CudaDevice::Create(plugin, Clock::Real(), 0);
  Check(device.status());
  constexpr int kOps = 64, kExecutions = 500;
  std::vector<double> times;
  {
    Local local(Chain(kOps, "bench.Nothing", "run", v1::STREAM), device->get());
    local.Go(50, 4);
    for (int round = 0; round < 9; ++round) times.push_back(SecondsOf([&] { local.Go(kExecutions, 4); }) / ((kOps + 1) * kExecutions));
  }
  Row("op cost of the loop alone, over calls that do nothing", absl::StrFormat("%.2f us", Median(times) * 1e6), "", -1);
}

void Chains(CudaDevice* d) {
  constexpr int kOps = 32, kExecutions = 400;
  CudaApi* const api = d->api();
  const auto s = *d->NewStream(v1::LANE_COMPUTE);
  const auto memory = *d->Allocate(4096);
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  Check(d->Check(api->BeginCapture(s->native()), "capture"));
  for (int i = 0; i < kOps + 1; ++i) d->kernels()->Scale(v1::F32, memory.get(), 1.0, memory.get(), 1, s->native());
  Check(d->Check(api->EndCapture(s->native(), &graph), "capture"));
  Check(d->Check(api->GraphInstantiate(graph, &exec), "instantiate"));
  CudaEventHandle done = nullptr;
  Check(d->Check(api->EventCreate(false, &done), "event"));
  Local stream(Chain(kOps, "std.Scale", "scale", v1::STREAM), d), captured(Chain(kOps, "std.Scale", "scale", v1::GRAPH), d);
  std::vector<double> bare, as_stream, as_graph;
  for (int round = 0; round < 9; ++round) {
    bare.push_back(SecondsOf([&] {
                     for (int k = 0; k < kExecutions; ++k) {
                       api->GraphLaunch(exec, s->native());
                       api->EventRecord(done, s->native());
                       while (api->EventQuery(done) == kCudaNotReady) {
                       }
                     }
                   }) /
                   kExecutions);
    as_stream.push_back(SecondsOf([&] { stream.Go(kExecutions, 1); }) / kExecutions);
    as_graph.push_back(SecondsOf([&] { captured.Go(kExecutions, 1); }) / kExecutions);
  }
  api->EventDestroy(done);
  api->GraphExecDestroy(exec);
  api->GraphDestroy(graph);
  const double ratio = Median(as_graph) / Median(bare);
  Row("chain of 32 small kernels", absl::StrFormat("launch: graph %.1f us, stream %.1f us, bare replay %.1f us: %s", Median(as_graph) * 1e6,
                                                   Median(as_stream) * 1e6, Median(bare) * 1e6, Ratio(ratio)),
      "<= 1.20", ratio <= 1.20);
}

// Seconds of a shared-memory round trip between two spinning threads.
double ShmRoundTrip() {
  alignas(64) static std::atomic<uint32_t> there{0};
  alignas(64) static std::atomic<uint32_t> back{0};
  there = back = 0;
  constexpr uint32_t kTrips = 200000;
  std::thread peer([] {
    for (uint32_t i = 1; i <= kTrips; ++i) {
      while (there.load(std::memory_order_acquire) != i) {
      }
      back.store(i, std::memory_order_release);
    }
  });
  const double s = SecondsOf([] {
    for (uint32_t i = 1; i <= kTrips; ++i) {
      there.store(i, std::memory_order_release);
      while (back.load(std::memory_order_acquire) != i) {
      }
    }
  });
  peer.join();
  return s / kTrips;
}

// One execution goes `trips` times CPU worker -> GPU task -> CPU worker.
double RoundTrip(Client* client, int trips) {
  v1::Graph g;
  g.set_name("trips");
  const auto actor = [&](const char* name, const char* cls, const char* worker) {
    v1::Actor* a = g.add_actor();
    a->set_name(name);
    a->set_class_(cls);
    a->set_worker(worker);
    return a;
  };
  v1::Actor* source = actor("source", "std.Source", "w0");
  source->mutable_config()->set_dtype(v1::F32);
  source->mutable_config()->set_shape("[1]");
  actor("cpu", "std.Identity", "w0");
  actor("gpu", "std.Scale", "w1")->mutable_config()->set_scale(1.0);
  v1::Node* first = g.add_node();
  first->set_name("first");
  first->set_actor("source");
  std::string last = "first";
  for (int i = 0; i < trips; ++i) {
    for (const char* side : {"gpu", "cpu"}) {
      v1::Node* n = g.add_node();
      n->set_name(absl::StrCat(side, i));
      n->set_actor(side);
      n->add_arg()->set_node(last);
      last = n->name();
    }
  }
  v1::Output* out = g.add_output();
  out->set_name("out");
  out->set_node(last);
  g.mutable_options()->set_max_in_flight(1);
  const Steady s = Run(client, g, 10, 40);
  for (const ExecutionResult& r : s.results) {
    if (ElementAsDouble(r.outputs.at("out"), 0) != static_cast<double>(r.execution)) throw std::runtime_error("a wrong value came back");
  }
  std::vector<double> times;
  for (const ExecutionResult& r : s.results) times.push_back(static_cast<double>(r.done_ns - r.admitted_ns) * 1e-9);
  return Median(times);
}

void Trips(CudaDevice* d) {
  const auto s = *d->NewStream(v1::LANE_COMPUTE);
  std::vector<double> launches;
  for (int i = 0; i < 2000; ++i) {
    launches.push_back(SecondsOf([&] {
      d->kernels()->Nothing(s->native());
      d->api()->StreamSynchronize(s->native());
    }));
  }
  // Client and driver cost the same for few trips and for many. Where processes and threads come to lie decides much of it, on machines of several sockets:
  // the medians over some of each.
  constexpr int kFew = 10, kMany = 110, kPlacements = 3;
  std::vector<double> shms, wefts;
  for (int i = 0; i < kPlacements; ++i) {
    shms.push_back(ShmRoundTrip());
    Daemons cluster({"h0", "h0"}, "h0", {"cpu --spin 50ms", absl::StrCat(GpuOf(1), " --spin 50ms")});
    const auto client = cluster.Dial();
    const double few = RoundTrip(client.get(), kFew);
    wefts.push_back((RoundTrip(client.get(), kMany) - few) / (kMany - kFew));
  }
  const double launch = Median(launches), shm = Median(shms), weft = Median(wefts);
  const double ratio = weft / (launch + shm);
  const auto [least, most] = std::minmax_element(wefts.begin(), wefts.end());
  Row("CPU -> GPU -> CPU, 4 bytes", absl::StrFormat("%.1f us (%.1f to %.1f); launch + synchronise %.1f us + shared memory round trip %.2f us: %s", weft * 1e6,
                                                    *least * 1e6, *most * 1e6, launch * 1e6, shm * 1e6, Ratio(ratio)),
      "<= 2.0", ratio <= 2.0);
}

}  // namespace

int Latency(int argc, char** argv) {
  const std::set<std::string> parts = {"op", "chain", "trip", "loop"};
  if (argc > 2 || (argc > 1 && parts.count(argv[1]) == 0)) {
    throw std::runtime_error(absl::StrCat("\"", argv[argc - 1], "\" is no part of it: op, chain, trip or loop; without one, the first three"));
  }
  if (argc > 1 && std::string(argv[1]) == "loop") {
    LoopAlone();
    return 0;
  }
  CudaDevice* const d = BareDevice();
  Check(d->Check(d->kernels()->Calibrate(), "calibrating"));
  const std::string only = argc > 1 ? argv[1] : "";
  if (only.empty() || only == "op") OpCost(d);
  if (only.empty() || only == "chain") Chains(d);
  if (only.empty() || only == "trip") Trips(d);
  return 0;
}

}  // namespace weft::bench
