#pragma once

// CUDA without a GPU: memory is the host's, streams are threads, and everything else keeps CUDA's order, return codes and refusals,
// so that all code above CudaApi really runs, also between processes of one machine. Where CUDA leaves behaviour open, the fake takes
// the harsher choice: new memory holds rubbish, the branches of a graph run at the same time, freed memory cannot be touched.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/device/cuda/api/cuda_api.h"

namespace weft {

class FakeMemory;

// Those of cudaError_t that only the fake gives; the numbers are CUDA's.
enum FakeCudaCode : int {
  kCudaInvalidPitch = 12,
  kCudaInsufficientDriver = 35,
  kCudaInvalidDevice = 101,
  kCudaInvalidHandle = 400,  // cudaErrorInvalidResourceHandle
  kCudaIllegalState = 401,
  kCudaHostMemoryNotRegistered = 713,
  kCudaCaptureUnsupported = 900,
  kCudaCaptureInvalidated = 901,
  kCudaCaptureMerge = 902,
  kCudaCaptureUnmatched = 903,
  kCudaCaptureUnjoined = 904,
  kCudaCaptureIsolation = 905,
  kCudaCapturedEvent = 907,
  kCudaCaptureWrongThread = 908,
};

// Thread-safe. Handles are numbers that are never used twice in a process, so that a stale one, or one of another FakeCuda, is refused.
class FakeCuda : public CudaApi {
 public:
  struct Options {
    int device_count = 1;         // 0: DeviceCount says kCudaNoDevice
    int driver_version = 13000;   // 0, or older than the runtime's major: DeviceCount says kCudaInsufficientDriver
    int runtime_version = 13000;
    std::string name = "Fake GPU";
    int sm_count = 132;
    int major = 9, minor = 0;
    uint64_t memory_bytes = uint64_t{8} << 30;  // of each device; kCudaOutOfMemory beyond. Only what is written takes the host's memory.
    uint64_t l2_bytes = uint64_t{50} << 20;
    bool peer_access = true;
    uint64_t copy_bytes_per_s = 0;  // of each MemcpyAsync of more than 64 KiB, which then takes its time; 0: as fast as the host
    // The branches of a launched graph run at the same time, each on a thread of its own, held only by the dependencies that were captured.
    // false: one after another, in the order of capture.
    bool parallel_graphs = true;
    // Free, HostFree, HostUnregister and LoadCode wait for all streams, and hold up every other call meanwhile.
    // StreamSynchronize, and what waits for all streams: after so long they say on stderr what is stuck and break the device with kCudaLaunchTimeout.
    std::chrono::nanoseconds hang_limit = std::chrono::seconds(30);
  };

  FakeCuda();
  explicit FakeCuda(Options options);
  // Ends what is under way; what is queued and has not begun is dropped. Nothing may be called any more.
  ~FakeCuda() override;

  // --- for fakes of kernels and of NCCL

  // Calls that keep their order on whatever streams they are put, as NCCL does for those of one communicator.
  struct Order;
  static std::shared_ptr<Order> NewOrder();

  // Puts `work` on the stream, or into the graph that is captured there; then it runs at each launch. It runs on some thread of the
  // fake, must give way soon once ended() holds, and must not call what blocks on streams. `what` stays valid; it names the work in
  // State(). Counted and failed as "Enqueue".
  int Enqueue(CudaStreamHandle s, std::function<void()> work, const char* what = "kernel");
  int EnqueueInOrder(CudaStreamHandle s, std::function<void()> work, const char* what, const std::shared_ptr<Order>& order);

  // What a library does when it first needs a piece of its device code: waits for all streams of the process, also within a capture.
  int LoadCode();

  // The device is broken or the fake is going: work gives way.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Polls until holds(); false when ended() came first. For work on a stream.
  bool WaitUntil(const std::function<bool()>& holds) const;
  // [p, p + bytes) is live device memory, opened IPC memory, or host memory that was allocated or registered here.
  bool DeviceReachable(const void* p, size_t bytes) const;

  // --- for tests

  // The nth call from now (1: the next) of `method`, a name of CudaApi such as "Malloc", returns `code` and does nothing else.
  void FailCall(const std::string& method, int64_t nth, int code);
  // While `hold`, calls of `method` do not return, as when a driver hangs; those of other methods do.
  void HoldCalls(const std::string& method, bool hold);
  // Calls that are being held now.
  int held_calls() const;
  // A sticky error: from now on every call returns `code`, streams stop, blocking calls return. Also from work on a stream.
  void BreakDevice(int code);
  int64_t calls(const std::string& method) const;
  // Copies from or to host memory that is neither allocated nor registered here: CUDA would stage them and could block.
  int64_t pageable_copies() const { return pageable_copies_.load(); }

  // What has not been given back.
  struct Books {
    int streams = 0, events = 0, graphs = 0, graph_execs = 0;
    int allocations = 0, host_allocations = 0, registrations = 0, ipc_opened = 0;
  };
  Books books() const;
  // One line for each stream that has work: what it runs and how much is behind it.
  std::string State() const;

  // --- CudaApi
  const char* ErrorName(int code) override;
  const char* ErrorText(int code) override;
  int Versions(int* driver, int* runtime) override;
  int DeviceCount(int* count) override;
  int GetDeviceInfo(int ordinal, CudaDeviceInfo* out) override;
  int MemInfo(uint64_t* free_bytes, uint64_t* total_bytes) override;
  int CanAccessPeer(int device, int peer, int* can) override;
  int SetDevice(int ordinal) override;

  int StreamPriorityRange(int* least, int* greatest) override;
  int StreamCreate(int priority, CudaStreamHandle* out) override;
  int StreamDestroy(CudaStreamHandle s) override;
  int StreamQuery(CudaStreamHandle s) override;
  int StreamSynchronize(CudaStreamHandle s) override;

  int EventCreate(bool timing, CudaEventHandle* out) override;
  int EventDestroy(CudaEventHandle e) override;
  int EventRecord(CudaEventHandle e, CudaStreamHandle s) override;
  int EventQuery(CudaEventHandle e) override;
  int StreamWaitEvent(CudaStreamHandle s, CudaEventHandle e) override;
  int EventElapsed(CudaEventHandle start, CudaEventHandle end, float* ms) override;

  int Malloc(size_t bytes, void** out) override;
  int Free(void* p) override;
  int MallocAsync(size_t bytes, CudaStreamHandle s, void** out) override;
  int FreeAsync(void* p, CudaStreamHandle s) override;
  int HostAlloc(size_t bytes, void** out) override;
  int HostFree(void* p) override;
  int HostRegister(void* p, size_t bytes) override;
  int HostUnregister(void* p) override;

  int MemcpyAsync(void* to, const void* from, size_t bytes, CudaStreamHandle s) override;
  int Memcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                    CudaStreamHandle s) override;
  int MemsetAsync(void* p, int value, size_t bytes, CudaStreamHandle s) override;

  int IpcGetHandle(void* allocation, CudaIpcHandle* out) override;
  int IpcOpen(const CudaIpcHandle& handle, void** out) override;  // also in the process that made it, where CUDA refuses
  int IpcClose(void* p) override;

  int StreamWrite32(CudaStreamHandle s, void* word, uint32_t value) override;
  int StreamWait32(CudaStreamHandle s, void* word, uint32_t value) override;

  int BeginCapture(CudaStreamHandle s) override;
  int EndCapture(CudaStreamHandle s, CudaGraphHandle* out) override;
  int GraphInstantiate(CudaGraphHandle graph, CudaGraphExecHandle* out) override;
  int GraphUpload(CudaGraphExecHandle exec, CudaStreamHandle s) override;
  int GraphLaunch(CudaGraphExecHandle exec, CudaStreamHandle s) override;
  int GraphDestroy(CudaGraphHandle graph) override;
  int GraphExecDestroy(CudaGraphExecHandle exec) override;

  void RangePush(const char* name) override;
  void RangePop() override;

 private:
  struct Mark;     // a point of a stream, or of a capture
  struct FStream;  // a stream and its thread
  struct FEvent;
  struct Capture;
  struct Graph;
  struct Exec;
  using Closure = std::function<void()>;

  // Counts the call; the code that it must return at once, or kCudaSuccess.
  int Enter(const char* method);
  int EnterLocked(const char* method) WEFT_REQUIRES(mu_);
  int current_device() const;

  std::shared_ptr<FStream> FindStream(CudaStreamHandle s) WEFT_REQUIRES(mu_);
  std::shared_ptr<FEvent> FindEvent(CudaEventHandle e) WEFT_REQUIRES(mu_);
  int Push(FStream* s, Closure work, const char* what) WEFT_REQUIRES(mu_);
  std::shared_ptr<Mark> PushMark(FStream* s) WEFT_REQUIRES(mu_);
  int PushWait(FStream* s, const std::shared_ptr<Mark>& mark) WEFT_REQUIRES(mu_);
  void AwaitMark(const std::shared_ptr<Mark>& mark) WEFT_EXCLUDES(mu_);
  void RunStream(FStream* s) WEFT_EXCLUDES(mu_);
  void ReapStreams() WEFT_EXCLUDES(mu_);
  // Blocks until every stream for which `which` holds has done what is queued now.
  int AwaitIdle(const std::function<bool(const FStream&)>& which, const char* method) WEFT_EXCLUDES(mu_);
  std::string StateLocked() const WEFT_REQUIRES(mu_);

  // In a thread that captures, calls that could wait for the device are refused and spoil its captures.
  int RefuseInCapture() WEFT_REQUIRES(mu_);
  int Join(FStream* s, const std::shared_ptr<Mark>& mark) WEFT_REQUIRES(mu_);
  void LeaveCapture(Capture* capture) WEFT_REQUIRES(mu_);
  void RunGraph(const Graph& graph) WEFT_EXCLUDES(mu_);

  // Run on a stream. Usable breaks the device when the memory has gone.
  void Copy(char* to, const char* from, size_t bytes);
  bool Usable(const void* p, size_t bytes, const char* what);
  void NotePageable(const void* p, size_t bytes);

  const Options options_;
  const std::unique_ptr<FakeMemory> memory_;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> pageable_copies_{0};

  mutable Mutex mu_;
  CondVar progress_;  // a mark was passed, a stream became idle, ended()
  int broken_ WEFT_GUARDED_BY(mu_) = 0;
  int freeing_ WEFT_GUARDED_BY(mu_) = 0;  // calls that wait for the whole device
  std::map<std::string, int64_t> calls_ WEFT_GUARDED_BY(mu_);
  std::set<std::string> held_ WEFT_GUARDED_BY(mu_);
  int held_calls_ WEFT_GUARDED_BY(mu_) = 0;
  std::multimap<std::string, std::pair<int64_t, int>> failures_ WEFT_GUARDED_BY(mu_);  // method -> (number of the call, code)
  std::map<CudaStreamHandle, std::shared_ptr<FStream>> streams_ WEFT_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<FStream>> threads_ WEFT_GUARDED_BY(mu_);  // also of destroyed streams
  std::map<CudaEventHandle, std::shared_ptr<FEvent>> events_ WEFT_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Capture>> captures_ WEFT_GUARDED_BY(mu_);
  std::map<CudaGraphHandle, std::shared_ptr<Graph>> graphs_ WEFT_GUARDED_BY(mu_);
  std::map<CudaGraphExecHandle, std::shared_ptr<Exec>> execs_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
