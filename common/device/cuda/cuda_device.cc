#include "common/device/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace weft {
namespace {

// A cause that makes every later call of this process fail too: the worker must end (crash-only), its peers need not.
bool IsSticky(cudaError_t e) {
  switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorAssert:
      return true;
    default:
      return false;
  }
}

absl::Status FromCuda(cudaError_t e, const std::string& what) {
  if (e == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorString(e), " (", cudaGetErrorName(e), ")");
  return e == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

}  // namespace

// Events that are not in use, and the first sticky error that any call saw. Outlives the device while events refer to it.
class CudaDevice::EventPool {
 public:
  ~EventPool() {
    for (cudaEvent_t e : free_) cudaEventDestroy(e);
  }

  absl::StatusOr<cudaEvent_t> Take() {
    {
      MutexLock lock(&mu_);
      if (!free_.empty()) {
        cudaEvent_t e = free_.back();
        free_.pop_back();
        return e;
      }
    }
    cudaEvent_t e;
    const absl::Status s = FromCuda(Note(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)), "making a CUDA event");
    if (!s.ok()) return s;
    return e;
  }
  void Give(cudaEvent_t e) {
    MutexLock lock(&mu_);
    free_.push_back(e);
  }

  // Remembers the first sticky error; returns what it was given.
  cudaError_t Note(cudaError_t e) {
    int expected = cudaSuccess;
    if (IsSticky(e)) sticky_.compare_exchange_strong(expected, e);
    return e;
  }
  cudaError_t sticky() const { return static_cast<cudaError_t>(sticky_.load()); }

 private:
  Mutex mu_;
  std::vector<cudaEvent_t> free_ WEFT_GUARDED_BY(mu_);
  std::atomic<int> sticky_{cudaSuccess};
};

namespace {

// Type by which the device knows events that it can wait for.
class CudaEventBase : public Event {
 public:
  explicit CudaEventBase(cudaEvent_t e) : event_(e) {}
  cudaEvent_t get() const { return event_; }

 protected:
  const cudaEvent_t event_;
};

}  // namespace

class CudaDevice::CudaStream : public Stream {
 public:
  CudaStream(cudaStream_t stream, std::shared_ptr<EventPool> events) : stream_(stream), events_(std::move(events)) {}
  ~CudaStream() override { cudaStreamDestroy(stream_); }  // what is queued still runs

  absl::StatusOr<EventRef> Launch(Work work) override {
    if (work.where != Work::kInline) return absl::InvalidArgumentError("a CUDA stream takes launches only, no work for a host thread");
    const absl::Status ran = work.run ? work.run() : absl::OkStatus();
    if (work.status != nullptr) *work.status = ran;
    absl::StatusOr<cudaEvent_t> e = events_->Take();
    if (!e.ok()) return e.status();
    const absl::Status s = FromCuda(events_->Note(cudaEventRecord(*e, stream_)), "recording a CUDA event");
    if (!s.ok()) {
      events_->Give(*e);
      return s;
    }
    return EventRef(std::make_shared<PooledEvent>(*e, events_));
  }

  void WaitFor(const EventRef& event) override {
    if (const auto* e = dynamic_cast<const CudaEventBase*>(event.get())) events_->Note(cudaStreamWaitEvent(stream_, e->get(), 0));
  }

  void* native() const override { return stream_; }

 private:
  class PooledEvent : public CudaEventBase {
   public:
    PooledEvent(cudaEvent_t e, std::shared_ptr<EventPool> pool) : CudaEventBase(e), pool_(std::move(pool)) {}
    ~PooledEvent() override { pool_->Give(event_); }
    bool Ready() const override {
      if (done_.load(std::memory_order_acquire)) return true;
      // After a sticky error nothing completes; Health() tells, and whoever waits must not wait for ever.
      if (pool_->Note(cudaEventQuery(event_)) == cudaErrorNotReady && pool_->sticky() == cudaSuccess) return false;
      done_.store(true, std::memory_order_release);
      return true;
    }

   private:
    const std::shared_ptr<EventPool> pool_;
    mutable std::atomic<bool> done_{false};
  };

  const cudaStream_t stream_;
  const std::shared_ptr<EventPool> events_;
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int ordinal) {
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no GPU can be used: ", cudaGetErrorString(e), " (", cudaGetErrorName(e),
                                               "); install NVIDIA's driver, or run with --device cpu"));
  }
  if (count == 0) return absl::UnavailableError("the driver shows no GPU; check CUDA_VISIBLE_DEVICES, or run with --device cpu");
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", ordinal, " does not exist: there are ", count, ", numbered from 0"));
  }
  absl::Status s = FromCuda(cudaSetDevice(ordinal), absl::StrCat("taking GPU ", ordinal));
  if (!s.ok()) return s;
  int low = 0, high = 0;
  s = FromCuda(cudaDeviceGetStreamPriorityRange(&low, &high), absl::StrCat("asking GPU ", ordinal, " for its stream priorities"));
  if (!s.ok()) return s;
  return std::unique_ptr<CudaDevice>(new CudaDevice(ordinal, high));
}

CudaDevice::CudaDevice(int ordinal, int high_priority)
    : ordinal_(ordinal), high_priority_(high_priority), events_(std::make_shared<EventPool>()) {}
CudaDevice::~CudaDevice() = default;

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream(v1::LaneKind lane) {
  cudaStream_t stream;
  // Transfers start although a large kernel fills the GPU, and hold it for moments only.
  const int priority = lane == v1::LANE_COMPUTE ? 0 : high_priority_;
  const absl::Status s =
      FromCuda(events_->Note(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority)), "making a CUDA stream");
  if (!s.ok()) return s;
  return std::unique_ptr<Stream>(new CudaStream(stream, events_));
}

absl::StatusOr<std::shared_ptr<void>> CudaDevice::Allocate(size_t bytes) {
  void* p = nullptr;
  const absl::Status s = FromCuda(events_->Note(cudaMalloc(&p, bytes == 0 ? 1 : bytes)), absl::StrCat(bytes, " bytes on GPU ", ordinal_));
  if (!s.ok()) return s;
  return std::shared_ptr<void>(p, [](void* q) { cudaFree(q); });
}

bool CudaDevice::CanWaitFor(const EventRef& event) const {
  return event == nullptr || dynamic_cast<const CudaEventBase*>(event.get()) != nullptr;
}

absl::Status CudaDevice::Health() const {
  return FromCuda(events_->sticky(), absl::StrCat("GPU ", ordinal_, " of this worker has failed for good"));
}

}  // namespace weft
