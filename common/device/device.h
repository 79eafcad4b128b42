#pragma once

// A device as the loop sees it: memory, and streams on which work runs in order. Siblings: cpu, cuda, fake.

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/device/event.h"
#include "common/tensor/tensor.h"
#include "weft/v1/plan.pb.h"

namespace weft {

// A stream's unit of work.
struct Work {
  // Where `run` is called. kInline: on the calling (loop) thread at once; for CUDA the only way, since a launch does not block.
  // kThread: on the device's compute thread, in the order of launches.
  enum Where { kInline, kThread };
  Where where = kInline;
  // Does the work, or puts it on the device's native stream. Whatever it returns is handed to `*status` before the event is ready.
  std::function<absl::Status()> run;
  // Holds the stream for so long after `run` without burning a core (std.Delay on CPU). Read after `run` returned.
  Nanos* hold = nullptr;
  absl::Status* status = nullptr;
  // Set, and true once `run` has returned OK: it put nothing on the device, and all that its event would stand for is done. Then there is no event.
  const bool* nothing = nullptr;
};

// In-order queue of work of one lane. Used by the loop's thread only.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues `work` behind everything before it, without blocking. The returned event is ready when it is done, status included.
  virtual absl::StatusOr<EventRef> Launch(Work work) = 0;
  // Later work of this stream waits for `event`. Pre: the device's CanWaitFor(event).
  virtual void WaitFor(const EventRef& event) = 0;
  // cudaStream_t, or nullptr.
  virtual void* native() const { return nullptr; }
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string kind() const = 0;  // "cpu", "cuda"

  // To be called by each thread before it uses the device or what was made of it.
  virtual void BindThread() {}

  // `lane` decides the priority where the device has any.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(v1::LaneKind lane) = 0;

  // Memory of `bytes` on the device, 256-byte aligned, contents undefined; freed with the last reference.
  // ResourceExhausted names the size.
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) = 0;

  // As Allocate, but of memory that the host reaches too, for small values that only a host takes. Where host and device share memory: the same.
  virtual absl::StatusOr<std::shared_ptr<void>> AllocateForHost(size_t bytes) { return Allocate(bytes); }

  // How many ops of one lane may be issued before the first is done. 1: the loop waits for each op (CPU); more: the stream queues.
  virtual int QueueDepth() const = 0;

  // Whether Stream::WaitFor can wait for this event on the device, so that the loop need not wait for it on the host.
  virtual bool CanWaitFor(const EventRef& event) const = 0;

  // Fills memory of this device with a byte, in its turn on `stream`.
  virtual absl::Status Fill(void* p, int value, size_t bytes, Stream* stream) {
    std::memset(p, value, bytes);
    return absl::OkStatus();
  }
  // *to = the maximum of the words of *from, in its turn on `stream`; all in this device's memory. Unimplemented where values have none.
  virtual absl::Status CombineStatus(const std::vector<const DeviceStatus*>& from, DeviceStatus* to, Stream* stream) {
    return absl::UnimplementedError("values in this device's memory have no status words");
  }

  // Times of work on the device, for traces. Mark: a moment in the stream's work, nullptr where the device has no times of its own. TimeOf: when
  // a Mark or a launched event came, in the clock's time; -1 if unknown. Pre (TimeOf): the event is ready.
  virtual EventRef Mark(Stream* stream) { return nullptr; }
  virtual Nanos TimeOf(const EventRef& event) const { return -1; }
  // From now on events can tell their times, at some cost.
  virtual void SetTiming(bool on) {}

  // Named ranges on the calling thread for a profiler of the device, such as Nsight Systems: DeviceRange below. HasRanges: whether any profiler could
  // see them.
  virtual bool HasRanges() const { return false; }
  virtual void PushRange(const char* name) {}
  virtual void PopRange() {}

  // Whether events become ready without ringing any doorbell, so that the loop must ask while something is under way.
  virtual bool Polls() const { return false; }

  // First unrecoverable error of the device, such as an illegal address; OK while it works. The worker then exits.
  virtual absl::Status Health() const { return absl::OkStatus(); }
};

// What is put on a device while this lives bears a name in a profiler. They nest.
class DeviceRange {
 public:
  // nullptr: none. `device` outlives it.
  DeviceRange(Device* device, const std::string& name) : device_(device) {
    if (device_ != nullptr) device_->PushRange(name.c_str());
  }
  ~DeviceRange() {
    if (device_ != nullptr) device_->PopRange();
  }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device* const device_;
};

}  // namespace weft
