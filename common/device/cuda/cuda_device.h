#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "common/device/cuda/api/plugin.h"
#include "common/device/device.h"

namespace weft {

// One GPU. Streams are CUDA streams, those of transfers at the highest priority; events carry no timing (unless asked) and come from a pool, so that
// an op in steady state allocates nothing on the device. Streams and events are used by the loop's thread, which alone launches; the rest is
// thread-safe after BindThread.
//
// The device waits for its own events, so ops are issued ahead of their inputs' completion, up to QueueDepth a lane.
class CudaDevice : public Device {
 public:
  static constexpr int kQueueDepth = 64;

  // Takes GPU `ordinal` for this process, and loads all kernels. The plugin and `clock` outlive it. Unavailable when there is no driver or no GPU, or the driver is
  // too old for the runtime; InvalidArgument when there are fewer GPUs. The message says which and what to do.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaPlugin& plugin, const Clock* clock, int ordinal);
  ~CudaDevice() override;

  std::string kind() const override { return "cuda"; }
  void BindThread() override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(v1::LaneKind lane) override;
  // cudaMalloc, not a stream-ordered pool: the memory can be opened by other processes through CUDA IPC. With the last reference it is put aside.
  absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  absl::StatusOr<std::shared_ptr<void>> AllocateForHost(size_t bytes) override { return AllocateHost(bytes); }
  int QueueDepth() const override { return kQueueDepth; }
  bool CanWaitFor(const EventRef& event) const override;
  absl::Status Fill(void* p, int value, size_t bytes, Stream* stream) override;
  absl::Status CombineStatus(const std::vector<const DeviceStatus*>& from, DeviceStatus* to, Stream* stream) override;
  EventRef Mark(Stream* stream) override;
  Nanos TimeOf(const EventRef& event) const override;
  void SetTiming(bool on) override;
  // NVTX: nothing where no profiler is attached.
  bool HasRanges() const override { return true; }
  void PushRange(const char* name) override { api()->RangePush(name); }
  void PopRange() override { api()->RangePop(); }
  bool Polls() const override { return true; }
  absl::Status Health() const override;

  int ordinal() const { return ordinal_; }
  const CudaDeviceInfo& info() const { return info_; }
  CudaApi* api() const { return plugin_.cuda; }
  KernelsApi* kernels() const { return plugin_.kernels; }
  NcclApi* nccl() const { return plugin_.nccl; }  // nullptr: nccl_problem()
  const char* nccl_problem() const { return plugin_.nccl_problem; }

  // OK for kCudaSuccess; otherwise an error that says what was done and what CUDA says: ResourceExhausted for memory, else Internal. A code
  // after which every later call of the process fails is remembered for Health().
  absl::Status Check(int code, const std::string& what) const;

  // Whether all that was put on `stream` is done. The loop's thread.
  bool IsIdle(CudaStreamHandle stream) const;
  // An event of what is on `stream` so far. The loop's thread.
  absl::StatusOr<EventRef> Record(CudaStreamHandle stream) const;

  // Device memory from the stream-ordered pool: for sizes that the plan does not know. Work on `stream` may use it at once, others after an event
  // of it. Given back with the last reference, which is dropped when no reader is left. ResourceExhausted names the size.
  absl::StatusOr<std::shared_ptr<void>> AllocateOn(CudaStreamHandle stream, size_t bytes) const;

  // Page-locked host memory. With the last reference it is put aside. ResourceExhausted names the size.
  absl::StatusOr<std::shared_ptr<void>> AllocateHost(size_t bytes) const;
  // Page-locks memory of someone else, such as a mapped file, until the result goes; then the unlocking is put aside, and `keep`, which holds the
  // memory, with it. `p` and `bytes` need no alignment.
  absl::StatusOr<std::shared_ptr<void>> RegisterHost(void* p, size_t bytes, std::shared_ptr<void> keep = nullptr) const;

  // For calls that give something back to CUDA: such a call waits until the whole device is idle, and holds up every other call of the process
  // until then. While a kernel of this process waits for a peer that is a deadlock: the peer may wait for what the loop would do next. So they are
  // put aside, until someone who knows that the device rests calls Collect. From any thread, which is bound to the device when it runs. `what` it gives back,
  // for people; `is_long`: as AsideCalls::Put.
  void PutAside(const std::string& what, std::function<void()> give_back, bool is_long = false) const;
  bool HasAside() const;
  // Does all that was put aside. Only while nothing of this process on the device waits for a peer. Blocks for as long as CUDA takes. One caller at a time.
  void Collect() const;
  // What Collect is at, such as "now link w0 -> w1 (NCCL); 3 more"; empty when at nothing. Any thread.
  std::string Collecting() const;
  // How many of the calls that were put aside have ended so far. Any thread.
  int64_t Collected() const;

 private:
  class EventPool;
  class CudaStream;
  CudaDevice(const CudaPlugin& plugin, const Clock* clock, int ordinal);

  const CudaPlugin plugin_;
  const Clock* const clock_;
  const int ordinal_;
  int high_priority_ = 0;
  CudaDeviceInfo info_{};
  std::shared_ptr<EventPool> events_;
  // A moment that both clocks know: set while timing is on.
  EventRef base_;
  Nanos base_time_ = 0;
};

}  // namespace weft
