#pragma once

// GPUs without a GPU, and an NCCL that can be slower and worse than the fake's own, for the tests of what rests on NcclComm.

#include <catch2/catch.hpp>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/fake/fake_plugin.h"

namespace weft {

// Nothing here launches a kernel.
class NoKernels : public KernelsApi {
 public:
  int Load(const char**) override { return kCudaSuccess; }
  int Fill(DeviceFill, double, uint64_t, ExecutionNumber, int, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Add(int, const void* const*, int, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Scale(int, const void*, double, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Reduce(DeviceReduce, int, const void*, int64_t, int64_t, int64_t, void*, void*) override { return kCudaInvalidValue; }
  int Matmul(int, DevicePrecision, const void*, const void*, void*, int64_t, int64_t, int64_t, void*) override { return kCudaInvalidValue; }
  int Linear(int, DevicePrecision, DeviceActivation, const void*, const void*, const void*, void*, int64_t, int64_t, int64_t, void*) override {
    return kCudaInvalidValue;
  }
  int Gemm(int, DevicePrecision, const void*, bool, const void*, bool, void*, int64_t, int64_t, int64_t, bool, void*) override { return kCudaInvalidValue; }
  int ActivationGradient(int, DeviceActivation, const void*, const void*, void*, int64_t, void*) override { return kCudaInvalidValue; }
  int Delay(int64_t, int, void*) override { return kCudaInvalidValue; }
  int Calibrate() override { return kCudaInvalidValue; }
  int CombineStatus(const DeviceStatus* const*, int, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int CheckFinite(int, const void*, int64_t, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int FailOn(const int64_t*, int, uint64_t, ExecutionNumber, DeviceStatus*, void*) override { return kCudaInvalidValue; }
  int Advance(int64_t*, void*) override { return kCudaInvalidValue; }
  int Nothing(void*) override { return kCudaInvalidValue; }
  int IllegalAddress(void*) override { return kCudaInvalidValue; }
};

// FakeNccl with more: every transfer can answer kNcclInProgress (so that whoever calls anything but GetAsyncError and CommAbort then is found
// out), aborts can hang, payloads can be damaged.
class TestNccl : public NcclApi {
 public:
  TestNccl(FakeNccl* inner, FakeCuda* cuda) : inner_(inner), cuda_(cuda) {}

  // Every call or group is in progress for so many calls of GetAsyncError, and is made only then. 0: as the fake does.
  std::atomic<int> polls{0};
  std::atomic<bool> hang_abort{false};
  std::atomic<bool> damage{false};       // sends send something else
  std::atomic<int> violations{0};        // calls while another was in progress
  // Communicators in the order in which calls were put on streams.
  std::vector<NcclCommHandle> launched() const {
    MutexLock lock(&mu_);
    return launched_;
  }

  const char* ErrorText(int code) override { return inner_->ErrorText(code); }
  const char* LastError(NcclCommHandle comm) override { return inner_->LastError(comm); }
  int Version(int* out) override { return inner_->Version(out); }
  int GetUniqueId(NcclId* out) override { return inner_->GetUniqueId(out); }
  int CommInit(NcclCommHandle* comm, int ranks, const NcclId& id, int rank, int max_ctas) override {
    return inner_->CommInit(comm, ranks, id, rank, max_ctas);
  }
  int GetAsyncError(NcclCommHandle comm, int* state) override {
    const int code = inner_->GetAsyncError(comm, state);
    if (code != kNcclSuccess || *state != kNcclSuccess) return code;
    MutexLock lock(&mu_);
    const auto it = waiting_.find(comm);
    if (it == waiting_.end()) return code;
    if (it->second.polls-- > 0) {
      *state = kNcclInProgress;
      return code;
    }
    const std::vector<Call> calls = std::move(it->second.calls);
    waiting_.erase(it);
    *state = Make(comm, calls);
    return code;
  }
  int CommAbort(NcclCommHandle comm) override {
    while (hang_abort.load()) std::this_thread::yield();
    return inner_->CommAbort(comm);
  }

  int GroupStart() override {
    const int code = inner_->GroupStart();
    if (code == kNcclSuccess) group().open = true;
    return code;
  }
  int GroupEnd() override {
    Group& g = group();
    if (polls.load() == 0 || g.calls.empty()) {
      g = Group();
      return inner_->GroupEnd();
    }
    const Group ended = std::exchange(g, Group());
    const int code = inner_->GroupEnd();  // an empty one
    if (code != kNcclSuccess) return code;
    return Defer(ended.comm, ended.calls);
  }
  int Send(const void* from, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override {
    if (damage.load()) (void)cuda_->MemsetAsync(const_cast<void*>(from), 0x5A, 3, stream);
    return Put(comm, [=](FakeNccl* n) { return n->Send(from, count, type, peer, comm, stream); });
  }
  int Recv(void* to, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override {
    return Put(comm, [=](FakeNccl* n) { return n->Recv(to, count, type, peer, comm, stream); });
  }
  int AllReduce(const void* from, void* to, size_t count, int type, int op, NcclCommHandle comm, void* stream) override {
    return Put(comm, [=](FakeNccl* n) { return n->AllReduce(from, to, count, type, op, comm, stream); });
  }
  int AllGather(const void* from, void* to, size_t count_each, int type, NcclCommHandle comm, void* stream) override {
    return Put(comm, [=](FakeNccl* n) { return n->AllGather(from, to, count_each, type, comm, stream); });
  }
  int ReduceScatter(const void* from, void* to, size_t count_each, int type, int op, NcclCommHandle comm, void* stream) override {
    return Put(comm, [=](FakeNccl* n) { return n->ReduceScatter(from, to, count_each, type, op, comm, stream); });
  }
  int Broadcast(const void* from, void* to, size_t count, int type, int root, NcclCommHandle comm, void* stream) override {
    return Put(comm, [=](FakeNccl* n) { return n->Broadcast(from, to, count, type, root, comm, stream); });
  }

 private:
  using Call = std::function<int(FakeNccl*)>;
  struct Waiting {
    int polls = 0;
    std::vector<Call> calls;
  };
  struct Group {
    bool open = false;
    NcclCommHandle comm = nullptr;
    std::vector<Call> calls;
  };

  Group& group() {
    thread_local std::map<TestNccl*, Group> groups;
    return groups[this];
  }

  int Put(NcclCommHandle comm, Call call) {
    {
      MutexLock lock(&mu_);
      if (waiting_.count(comm) > 0) ++violations;
    }
    if (polls.load() == 0) {
      MutexLock lock(&mu_);
      if (launched_.empty() || launched_.back() != comm) launched_.push_back(comm);
      return call(inner_);
    }
    if (!group().open) return Defer(comm, {std::move(call)});
    group().comm = comm;
    group().calls.push_back(std::move(call));
    return kNcclInProgress;
  }

  int Defer(NcclCommHandle comm, std::vector<Call> calls) {
    MutexLock lock(&mu_);
    waiting_[comm] = {polls.load(), std::move(calls)};
    return kNcclInProgress;
  }

  int Make(NcclCommHandle comm, const std::vector<Call>& calls) WEFT_REQUIRES(mu_) {
    if (launched_.empty() || launched_.back() != comm) launched_.push_back(comm);
    int worst = inner_->GroupStart();
    if (worst != kNcclSuccess) return worst;
    for (const Call& call : calls) {
      const int code = call(inner_);
      if (worst == kNcclSuccess) worst = code;
    }
    const int code = inner_->GroupEnd();
    return worst == kNcclSuccess ? code : worst;
  }

  FakeNccl* const inner_;
  FakeCuda* const cuda_;
  mutable Mutex mu_;
  std::map<NcclCommHandle, Waiting> waiting_ WEFT_GUARDED_BY(mu_);
  std::vector<NcclCommHandle> launched_ WEFT_GUARDED_BY(mu_);
};

// One worker's GPU.
struct TestGpu {
  explicit TestGpu(FakePlugin::Options options = {}) : fake(std::move(options)), nccl(&fake.nccl, &fake.cuda) {
    CudaPlugin plugin = fake.plugin(&kernels);
    plugin.nccl = &nccl;
    device = *CudaDevice::Create(plugin, Clock::Real(), 0);
  }

  // Device memory with these bytes; `dims` of `dtype`.
  Tensor Upload(const Tensor& host) {
    const std::shared_ptr<void> memory = *device->Allocate(host.bytes());
    if (host.bytes() > 0) std::memcpy(memory.get(), host.data(), host.bytes());
    return Tensor(host.dtype(), host.dims(), memory.get(), memory);
  }
  Tensor Buffer(DType dtype, const Dims& dims) {
    const std::shared_ptr<void> memory = *device->Allocate(static_cast<size_t>(*NumElements(dims)) * SizeOf(dtype));
    return Tensor(dtype, dims, memory.get(), memory);
  }
  // Pre: what fills it is done.
  Tensor Download(const Tensor& there) {
    const Tensor host = *Tensor::OnHost(there.dtype(), there.dims());
    if (host.bytes() > 0) std::memcpy(host.data(), there.data(), host.bytes());
    return host;
  }

  FakePlugin fake;
  NoKernels kernels;
  TestNccl nccl;
  std::unique_ptr<CudaDevice> device;
};

// Work on a stream that waits until it is opened.
class StreamGate {
 public:
  void Hold(TestGpu* gpu, Stream* stream) {
    FakeCuda* const cuda = &gpu->fake.cuda;
    REQUIRE(cuda->Enqueue(stream->native(), [cuda, open = open_] { cuda->WaitUntil([&] { return open->load(); }); }, "a gate") == kCudaSuccess);
  }
  void Open() { open_->store(true); }
  ~StreamGate() { Open(); }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

// Asks until it holds; the limit only keeps a broken build from hanging.
inline bool Until(const std::function<bool()>& holds) {
  const Nanos limit = Clock::Real()->Now() + 60 * kNanosPerSecond;
  while (!holds()) {
    if (Clock::Real()->Now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

inline std::vector<std::string> RankNames(int size) {
  std::vector<std::string> names;
  for (int i = 0; i < size; ++i) names.push_back("w" + std::to_string(i));
  return names;
}

inline NcclComm::Options CommOptions(TestGpu* gpu, int rank, int size, const std::string& label = "link w0 -> w1") {
  NcclComm::Options o;
  o.api = &gpu->nccl;
  o.device = gpu->device.get();
  o.clock = Clock::Real();
  o.label = label;
  o.workers = RankNames(size);
  o.rank = rank;
  return o;
}

// All ranks joined, one GPU each.
inline std::vector<std::shared_ptr<NcclComm>> JoinAll(const std::vector<TestGpu*>& gpus, const std::string& label = "link w0 -> w1") {
  const int size = static_cast<int>(gpus.size());
  NcclId id;
  REQUIRE(gpus[0]->nccl.GetUniqueId(&id) == kNcclSuccess);
  std::vector<std::shared_ptr<NcclComm>> comms;
  std::vector<absl::Status> status(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) comms.push_back(*NcclComm::Create(CommOptions(gpus[r], r, size, label)));
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { status[r] = comms[r]->Join(id, Clock::Real()->Now() + 60 * kNanosPerSecond); });
  }
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : status) {
    INFO(s.ToString());
    REQUIRE(s.ok());
  }
  return comms;
}

}  // namespace weft
