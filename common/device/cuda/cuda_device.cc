#include "common/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/device/cuda/aside_calls.h"

namespace weft {
namespace {

constexpr uintptr_t kPage = 4096;
// For the device to come to what is on an empty stream.
constexpr Nanos kTimingPatience = 200'000'000;
// Of device memory.
constexpr size_t kLargePage = size_t{2} << 20;

// After one of these every later call of the process fails too: the worker must end (crash-only), its peers need not.
bool IsSticky(int e) {
  switch (e) {
    case kCudaIllegalAddress:
    case kCudaLaunchFailure:
    case kCudaHardwareStackError:
    case kCudaIllegalInstruction:
    case kCudaMisalignedAddress:
    case kCudaInvalidAddressSpace:
    case kCudaInvalidPc:
    case kCudaLaunchTimeout:
    case kCudaEccUncorrectable:
    case kCudaAssert:
      return true;
    default:
      return false;
  }
}

std::string CudaText(CudaApi* api, int code, const std::string& what) {
  return absl::StrCat(what, ": ", api->ErrorText(code), " (", api->ErrorName(code), ")");
}

absl::Status FromCuda(CudaApi* api, int code, const std::string& what) {
  if (code == kCudaSuccess) return absl::OkStatus();
  const std::string text = CudaText(api, code, what);
  return code == kCudaOutOfMemory ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

}  // namespace

// Events that are not in use, and the first sticky error that any call saw. Outlives the device while events refer to it.
class CudaDevice::EventPool {
 public:
  explicit EventPool(CudaApi* api) : api_(api) {}
  ~EventPool() {
    aside_.DoAll([] {});
    for (CudaEventHandle e : free_) api_->EventDestroy(e);
    for (CudaEventHandle e : free_timed_) api_->EventDestroy(e);
  }

  absl::StatusOr<CudaEventHandle> Take() {
    const bool timing = timing_.load(std::memory_order_relaxed);
    if (!timing) {
      MutexLock lock(&mu_);
      if (!free_.empty()) {
        CudaEventHandle e = free_.back();
        free_.pop_back();
        return e;
      }
    }
    if (timing) {
      MutexLock lock(&mu_);
      if (!free_timed_.empty()) {
        CudaEventHandle e = free_timed_.back();
        free_timed_.pop_back();
        return e;
      }
    }
    CudaEventHandle e = nullptr;
    WEFT_RETURN_IF_ERROR(FromCuda(api_, Note(api_->EventCreate(timing, &e)), "making a CUDA event"));
    return e;
  }
  void Give(CudaEventHandle e, bool timed) {
    MutexLock lock(&mu_);
    (timed ? free_timed_ : free_).push_back(e);
  }
  void SetTiming(bool on) { timing_.store(on, std::memory_order_relaxed); }
  bool timing() const { return timing_.load(std::memory_order_relaxed); }

  AsideCalls* aside() { return &aside_; }

  // Remembers the first sticky error; returns what it was given.
  int Note(int e) {
    int expected = kCudaSuccess;
    if (IsSticky(e)) sticky_.compare_exchange_strong(expected, e);
    return e;
  }
  int sticky() const { return sticky_.load(std::memory_order_relaxed); }
  CudaApi* api() const { return api_; }

 private:
  CudaApi* const api_;
  Mutex mu_;
  std::vector<CudaEventHandle> free_ WEFT_GUARDED_BY(mu_);
  std::vector<CudaEventHandle> free_timed_ WEFT_GUARDED_BY(mu_);
  AsideCalls aside_;
  std::atomic<bool> timing_{false};
  std::atomic<int> sticky_{kCudaSuccess};
};

namespace {

// Type by which the device knows events that it can wait for.
class CudaEventBase : public Event {
 public:
  CudaEventBase(CudaEventHandle e, CudaStreamHandle stream, bool timed) : event_(e), stream_(stream), timed_(timed) {}
  CudaEventHandle get() const { return event_; }
  CudaStreamHandle stream() const { return stream_; }
  bool timed() const { return timed_; }

 protected:
  const CudaEventHandle event_;
  const CudaStreamHandle stream_;
  const bool timed_;
};

// The event itself, or the one that it rests on; nullptr when it is none of the device's.
const CudaEventBase* OnCuda(const Event* event) {
  const auto* e = dynamic_cast<const CudaEventBase*>(event);
  return e != nullptr || event == nullptr ? e : dynamic_cast<const CudaEventBase*>(event->OnDevice());
}

}  // namespace

class CudaDevice::CudaStream : public Stream {
 public:
  // `kernels`: has a workspace open for the stream; nullptr without.
  CudaStream(CudaStreamHandle stream, KernelsApi* kernels, std::shared_ptr<EventPool> events)
      : stream_(stream), kernels_(kernels), events_(std::move(events)) {}
  ~CudaStream() override {
    if (stream_ == nullptr) return;
    if (kernels_ != nullptr) kernels_->CloseStream(stream_);
    events_->api()->StreamDestroy(stream_);
  }

  absl::StatusOr<EventRef> Launch(Work work) override {
    if (work.where != Work::kInline) return absl::InvalidArgumentError("a CUDA stream takes launches only, no work for a host thread");
    const absl::Status ran = work.run ? work.run() : absl::OkStatus();
    if (work.status != nullptr) *work.status = ran;
    if (ran.ok() && work.nothing != nullptr && *work.nothing) return EventRef();
    return Record(stream_, events_);
  }

  void WaitFor(const EventRef& event) override {
    const CudaEventBase* const e = OnCuda(event.get());
    // A stream is in order, so it never waits for itself.
    if (e != nullptr && e->stream() != stream_) events_->Note(events_->api()->StreamWaitEvent(stream_, e->get()));
  }

  void* native() const override { return stream_; }
  // The stream is the caller's now.
  CudaStreamHandle Give() { return std::exchange(stream_, nullptr); }

  static absl::StatusOr<EventRef> Record(CudaStreamHandle stream, const std::shared_ptr<EventPool>& events) {
    const bool timed = events->timing();
    WEFT_ASSIGN_OR_RETURN(CudaEventHandle e, events->Take());
    const absl::Status s = FromCuda(events->api(), events->Note(events->api()->EventRecord(e, stream)), "recording a CUDA event");
    if (!s.ok()) {
      events->Give(e, timed);
      return s;
    }
    return EventRef(std::make_shared<PooledEvent>(e, stream, timed, events));
  }

 private:
  class PooledEvent : public CudaEventBase {
   public:
    PooledEvent(CudaEventHandle e, CudaStreamHandle stream, bool timed, std::shared_ptr<EventPool> pool)
        : CudaEventBase(e, stream, timed), pool_(std::move(pool)) {}
    ~PooledEvent() override { pool_->Give(event_, timed_); }
    bool Ready() const override {
      if (done_.load(std::memory_order_acquire)) return true;
      const int code = pool_->sticky() == kCudaSuccess ? pool_->Note(pool_->api()->EventQuery(event_)) : kCudaSuccess;
      // After a sticky error nothing completes; Health() tells, and whoever waits must not wait for ever.
      if (code == kCudaNotReady && pool_->sticky() == kCudaSuccess) return false;
      done_.store(true, std::memory_order_release);
      return true;
    }

   private:
    const std::shared_ptr<EventPool> pool_;
    mutable std::atomic<bool> done_{false};
  };

  CudaStreamHandle stream_;
  KernelsApi* const kernels_;
  const std::shared_ptr<EventPool> events_;
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaPlugin& plugin, const Clock* clock, int ordinal) {
  CudaApi* const api = plugin.cuda;
  int count = 0;
  const int e = api->DeviceCount(&count);
  if (e != kCudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat(CudaText(api, e, "no GPU can be used"), "; install NVIDIA's driver, or run with --device cpu"));
  }
  if (count == 0) return absl::UnavailableError("the driver shows no GPU; check CUDA_VISIBLE_DEVICES, or run with --device cpu");
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", ordinal, " does not exist: there are ", count, ", numbered from 0"));
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(plugin, clock, ordinal));
  const auto what = [&](const char* step) { return absl::StrCat(step, " GPU ", ordinal); };
  WEFT_RETURN_IF_ERROR(device->Check(api->SetDevice(ordinal), what("taking")));
  WEFT_RETURN_IF_ERROR(device->Check(api->GetDeviceInfo(ordinal, &device->info_), what("asking for the properties of")));
  int least = 0;
  WEFT_RETURN_IF_ERROR(device->Check(api->StreamPriorityRange(&least, &device->high_priority_), what("asking for the stream priorities of")));
  const char* problem = nullptr;
  const int loaded = plugin.kernels->Load(&problem);
  if (loaded != kCudaSuccess) {
    return absl::UnavailableError(CudaText(api, loaded, absl::StrCat(what("loading weft's kernels on"), problem == nullptr ? "" : ": ",
                                                                     problem == nullptr ? "" : problem)));
  }
  return device;
}

CudaDevice::CudaDevice(const CudaPlugin& plugin, const Clock* clock, int ordinal)
    : plugin_(plugin), clock_(clock), ordinal_(ordinal), events_(std::make_shared<EventPool>(plugin.cuda)) {}
CudaDevice::~CudaDevice() { Collect(); }

void CudaDevice::BindThread() { (void)Check(api()->SetDevice(ordinal_), "binding a thread"); }

absl::Status CudaDevice::Check(int code, const std::string& what) const { return FromCuda(api(), events_->Note(code), what); }

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream(v1::LaneKind lane) {
  CudaStreamHandle stream = nullptr;
  // Transfers start although a large kernel fills the GPU, and hold it for moments only.
  const int priority = lane == v1::LANE_COMPUTE ? 0 : high_priority_;
  WEFT_RETURN_IF_ERROR(Check(api()->StreamCreate(priority, &stream), absl::StrCat("making a CUDA stream on GPU ", ordinal_)));
  const bool computes = lane == v1::LANE_COMPUTE;
  auto made = std::make_unique<CudaStream>(stream, nullptr, events_);
  if (!computes) return made;
  WEFT_RETURN_IF_ERROR(Check(kernels()->OpenStream(stream), absl::StrCat("taking workspace for a compute stream on GPU ", ordinal_)));
  // Now it has one to close.
  return std::make_unique<CudaStream>(made->Give(), kernels(), events_);
}

absl::StatusOr<std::shared_ptr<void>> CudaDevice::Allocate(size_t bytes) {
  // CUDA takes whole pages anyway, but only what is asked for in whole pages is read at full speed through another process' mapping: 900 MiB and a few
  // bytes more are copied a fifth more slowly than 900 MiB.
  const size_t whole = bytes < kLargePage ? std::max<size_t>(bytes, 1) : (bytes + kLargePage - 1) / kLargePage * kLargePage;
  void* p = nullptr;
  WEFT_RETURN_IF_ERROR(Check(api()->Malloc(whole, &p), absl::StrCat(bytes, " bytes on GPU ", ordinal_)));
  return std::shared_ptr<void>(p, [events = events_](void* q) {
    // The pool outlives what it holds; held by it, it would never go.
    events->aside()->Put("device memory", [pool = events.get(), q] { pool->Note(pool->api()->Free(q)); }, false);
  });
}

absl::StatusOr<std::shared_ptr<void>> CudaDevice::AllocateOn(CudaStreamHandle stream, size_t bytes) const {
  void* p = nullptr;
  WEFT_RETURN_IF_ERROR(Check(api()->MallocAsync(std::max<size_t>(bytes, 1), stream, &p), absl::StrCat(bytes, " bytes on GPU ", ordinal_)));
  // Back through the default stream: `stream` may be gone by then.
  return std::shared_ptr<void>(p, [events = events_](void* q) { events->Note(events->api()->FreeAsync(q, nullptr)); });
}

absl::StatusOr<std::shared_ptr<void>> CudaDevice::AllocateHost(size_t bytes) const {
  void* p = nullptr;
  WEFT_RETURN_IF_ERROR(Check(api()->HostAlloc(std::max<size_t>(bytes, 1), &p), absl::StrCat(bytes, " bytes of page-locked memory")));
  return std::shared_ptr<void>(p, [events = events_](void* q) {
    events->aside()->Put("page-locked memory", [pool = events.get(), q] { pool->Note(pool->api()->HostFree(q)); }, false);
  });
}

void CudaDevice::PutAside(const std::string& what, std::function<void()> give_back, bool is_long) const {
  events_->aside()->Put(what, std::move(give_back), is_long);
}
bool CudaDevice::HasAside() const { return events_->aside()->any(); }
void CudaDevice::Collect() const {
  events_->aside()->DoAll([this] { (void)Check(api()->SetDevice(ordinal_), "binding a thread"); });
}
std::string CudaDevice::Collecting() const { return events_->aside()->Doing(); }
int64_t CudaDevice::Collected() const { return events_->aside()->done(); }

absl::StatusOr<std::shared_ptr<void>> CudaDevice::RegisterHost(void* p, size_t bytes, std::shared_ptr<void> keep) const {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(p) + bytes + kPage - 1) & ~(kPage - 1);
  void* const base = reinterpret_cast<void*>(begin);
  WEFT_RETURN_IF_ERROR(Check(api()->HostRegister(base, end - begin),
                             absl::StrCat("page-locking ", end - begin, " bytes of shared memory (see ulimit -l)")));
  return std::shared_ptr<void>(base, [events = events_, keep = std::move(keep)](void* q) {
    events->aside()->Put("page-locked shared memory", [pool = events.get(), q, keep] { pool->Note(pool->api()->HostUnregister(q)); }, false);
  });
}

absl::StatusOr<EventRef> CudaDevice::Record(CudaStreamHandle stream) const { return CudaStream::Record(stream, events_); }

bool CudaDevice::IsIdle(CudaStreamHandle stream) const {
  return events_->sticky() == kCudaSuccess && events_->Note(api()->StreamQuery(stream)) == kCudaSuccess;
}

absl::Status CudaDevice::Fill(void* p, int value, size_t bytes, Stream* stream) {
  return Check(api()->MemsetAsync(p, value, bytes, stream->native()), "filling memory");
}

absl::Status CudaDevice::CombineStatus(const std::vector<const DeviceStatus*>& from, DeviceStatus* to, Stream* stream) {
  constexpr size_t kMost = 63;  // of one call, beside what it made so far
  size_t at = 0;
  std::vector<const DeviceStatus*> some;
  do {
    some.clear();
    if (at > 0) some.push_back(to);
    for (size_t i = 0; i < kMost && at < from.size(); ++i) some.push_back(from[at++]);
    WEFT_RETURN_IF_ERROR(Check(kernels()->CombineStatus(some.data(), static_cast<int>(some.size()), to, stream->native()),
                               "combining status words"));
  } while (at < from.size());
  return absl::OkStatus();
}

void CudaDevice::SetTiming(bool on) {
  events_->SetTiming(on);
  base_ = nullptr;
  if (!on) return;
  // The device's clock is tied to the host's once: a moment that both see within some microseconds. Streams can share a queue of the hardware, and a
  // kernel ahead in it may wait for a peer that waits for what this thread does next: so only for so long. Without that moment nothing has a time.
  absl::StatusOr<std::unique_ptr<Stream>> stream = NewStream(v1::LANE_SEND);  // without a workspace
  if (!stream.ok()) return;
  for (int i = 0; i < 2; ++i) {  // the first warms up
    absl::StatusOr<EventRef> e = Record((*stream)->native());
    if (!e.ok()) return;
    const Nanos until = clock_->Now() + kTimingPatience;
    while (!(*e)->Ready()) {
      if (clock_->Now() > until) return;
    }
    if (!Health().ok()) return;
    base_time_ = clock_->Now();
    base_ = *std::move(e);
  }
}

EventRef CudaDevice::Mark(Stream* stream) {
  if (base_ == nullptr) return nullptr;
  absl::StatusOr<EventRef> e = Record(stream->native());
  return e.ok() ? *std::move(e) : nullptr;
}

Nanos CudaDevice::TimeOf(const EventRef& event) const {
  const CudaEventBase* const e = OnCuda(event.get());
  const CudaEventBase* const base = OnCuda(base_.get());
  if (e == nullptr || base == nullptr || !e->timed()) return -1;
  float ms = 0;
  if (!Check(api()->EventElapsed(base->get(), e->get(), &ms), "reading the time of an event").ok()) return -1;
  return base_time_ + static_cast<Nanos>(static_cast<double>(ms) * 1e6);
}

bool CudaDevice::CanWaitFor(const EventRef& event) const {
  return event == nullptr || OnCuda(event.get()) != nullptr;
}

absl::Status CudaDevice::Health() const {
  const int code = events_->sticky();
  if (code == kCudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(CudaText(api(), code, absl::StrCat("GPU ", ordinal_, " of this worker has failed for good")),
                                          "; compile the graph again once the worker is back, which its supervisor starts anew; if it fails again, "
                                          "compute-sanitizer names the kernel at fault"));
}

}  // namespace weft
