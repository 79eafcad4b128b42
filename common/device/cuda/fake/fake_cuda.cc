#include "common/device/cuda/fake/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/device/cuda/fake/fake_cuda_parts.h"

namespace weft {
namespace {

struct CodeName {
  int code;
  const char* name;
  const char* text;
};
constexpr CodeName kCodes[] = {
    {kCudaSuccess, "cudaSuccess", "no error"},
    {kCudaInvalidValue, "cudaErrorInvalidValue", "an argument is invalid"},
    {kCudaOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    {kCudaInvalidPitch, "cudaErrorInvalidPitchValue", "a pitch is invalid"},
    {kCudaInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is missing or older than the runtime"},
    {kCudaNoDevice, "cudaErrorNoDevice", "no device is there"},
    {kCudaInvalidDevice, "cudaErrorInvalidDevice", "no device has this ordinal"},
    {kCudaEccUncorrectable, "cudaErrorECCUncorrectable", "memory was found broken"},
    {kCudaInvalidHandle, "cudaErrorInvalidResourceHandle", "a handle is not one of this context"},
    {kCudaIllegalState, "cudaErrorIllegalState", "the resource is in no state for this"},
    {kCudaNotReady, "cudaErrorNotReady", "the work is not done yet"},
    {kCudaIllegalAddress, "cudaErrorIllegalAddress", "an illegal address was used"},
    {kCudaLaunchTimeout, "cudaErrorLaunchTimeout", "the work took too long"},
    {kCudaPeerAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "access to the peer is enabled already"},
    {kCudaAssert, "cudaErrorAssert", "an assertion of a kernel failed"},
    {kCudaHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "the memory is registered already"},
    {kCudaHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "the memory is not registered"},
    {kCudaHardwareStackError, "cudaErrorHardwareStackError", "the stack of a kernel is broken"},
    {kCudaIllegalInstruction, "cudaErrorIllegalInstruction", "a kernel met an illegal instruction"},
    {kCudaMisalignedAddress, "cudaErrorMisalignedAddress", "a kernel used a misaligned address"},
    {kCudaInvalidAddressSpace, "cudaErrorInvalidAddressSpace", "a kernel used an address of another space"},
    {kCudaInvalidPc, "cudaErrorInvalidPc", "a kernel jumped outside of code"},
    {kCudaLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {kCudaCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while a stream is captured"},
    {kCudaCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture was spoilt by an earlier error"},
    {kCudaCaptureMerge, "cudaErrorStreamCaptureMerge", "two captures would be merged"},
    {kCudaCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the capture was not begun in this stream"},
    {kCudaCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "a stream that joined the capture was not joined to its origin"},
    {kCudaCaptureIsolation, "cudaErrorStreamCaptureIsolation", "a dependency would cross the border of a capture"},
    {kCudaCapturedEvent, "cudaErrorCapturedEvent", "the event was last recorded in a capture"},
    {kCudaCaptureWrongThread, "cudaErrorStreamCaptureWrongThread", "the capture was begun by another thread"},
    {kCudaUnknown, "cudaErrorUnknown", "unknown error"},
};

const CodeName* Find(int code) {
  for (const CodeName& c : kCodes) {
    if (c.code == code) return &c;
  }
  return nullptr;
}

// As in CUDA, one for each thread; every FakeCuda of the process takes it as its own.
thread_local int thread_device = 0;

}  // namespace

void* NextFakeHandle() {
  static std::atomic<uintptr_t> next{0x1000};
  return reinterpret_cast<void*>(next.fetch_add(16));
}

FakeCuda::FakeCuda() : FakeCuda(Options()) {}
FakeCuda::FakeCuda(Options options)
    : options_(std::move(options)), memory_(std::make_unique<FakeMemory>(options_.device_count, options_.memory_bytes)) {}

FakeCuda::~FakeCuda() {
  std::vector<std::shared_ptr<FStream>> threads;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<CudaGraphHandle, std::shared_ptr<Graph>> graphs;
  std::map<CudaGraphExecHandle, std::shared_ptr<Exec>> execs;
  {
    MutexLock lock(&mu_);
    ended_.store(true, std::memory_order_release);
    progress_.NotifyAll();
    for (const auto& s : threads_) s->work.NotifyAll();
    threads = threads_;
    captures = captures_;
    while (!captures_.empty()) LeaveCapture(captures_.back().get());
    graphs.swap(graphs_);
    execs.swap(execs_);
  }
  for (const auto& s : threads) s->thread.join();
  for (const auto& s : threads) s->queue.clear();
  // What is left goes here, outside of the lock, and before the memory that graphs own.
  for (const auto& c : captures) c->graph = nullptr;
}

int FakeCuda::EnterLocked(const char* method) {
  while (freeing_ > 0 && !ended()) progress_.Wait(&mu_);
  if (held_.count(method) > 0) {
    ++held_calls_;
    while (held_.count(method) > 0 && !ended()) progress_.Wait(&mu_);
    --held_calls_;
  }
  const int64_t number = ++calls_[method];
  if (broken_ != kCudaSuccess) return broken_;
  const auto [from, to] = failures_.equal_range(method);
  for (auto it = from; it != to; ++it) {
    if (it->second.first == number) {
      const int code = it->second.second;
      failures_.erase(it);
      return code;
    }
  }
  return kCudaSuccess;
}

int FakeCuda::Enter(const char* method) {
  MutexLock lock(&mu_);
  return EnterLocked(method);
}

int FakeCuda::current_device() const { return thread_device < options_.device_count ? thread_device : 0; }

void FakeCuda::FailCall(const std::string& method, int64_t nth, int code) {
  MutexLock lock(&mu_);
  failures_.emplace(method, std::make_pair(calls_[method] + nth, code));
}

void FakeCuda::HoldCalls(const std::string& method, bool hold) {
  MutexLock lock(&mu_);
  if (hold) {
    held_.insert(method);
  } else {
    held_.erase(method);
  }
  progress_.NotifyAll();
}

int FakeCuda::held_calls() const {
  MutexLock lock(&mu_);
  return held_calls_;
}

void FakeCuda::BreakDevice(int code) {
  MutexLock lock(&mu_);
  if (broken_ == kCudaSuccess) broken_ = code;
  ended_.store(true, std::memory_order_release);
  progress_.NotifyAll();
  for (const auto& s : threads_) s->work.NotifyAll();
}

int64_t FakeCuda::calls(const std::string& method) const {
  MutexLock lock(&mu_);
  const auto it = calls_.find(method);
  return it == calls_.end() ? 0 : it->second;
}

FakeCuda::Books FakeCuda::books() const {
  const FakeMemory::Counts memory = memory_->counts();
  MutexLock lock(&mu_);
  Books b;
  b.streams = static_cast<int>(streams_.size());
  b.events = static_cast<int>(events_.size());
  b.graphs = static_cast<int>(graphs_.size());
  b.graph_execs = static_cast<int>(execs_.size());
  b.allocations = memory.allocations;
  b.host_allocations = memory.host_allocations;
  b.registrations = memory.registrations;
  b.ipc_opened = memory.opened;
  return b;
}

std::string FakeCuda::StateLocked() const {
  std::string out;
  for (const auto& s : threads_) {
    if (s->issued == s->done) continue;
    out += "stream " + std::to_string(reinterpret_cast<uintptr_t>(s->handle)) + (s->destroyed ? " (destroyed)" : "") + ": " +
           (s->running != nullptr ? s->running : "nothing") + " runs, " + std::to_string(s->queue.size()) + " behind it\n";
  }
  return out;
}

std::string FakeCuda::State() const {
  MutexLock lock(&mu_);
  return StateLocked();
}

bool FakeCuda::WaitUntil(const std::function<bool()>& holds) const {
  for (int turn = 0;; ++turn) {
    if (holds()) return true;
    if (ended()) return false;
    if (turn < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(turn < 2000 ? 50 : 500));
    }
  }
}

bool FakeCuda::DeviceReachable(const void* p, size_t bytes) const { return memory_->Reachable(p, bytes); }

const char* FakeCuda::ErrorName(int code) {
  const CodeName* const c = Find(code);
  return c == nullptr ? "unrecognized error code" : c->name;
}

const char* FakeCuda::ErrorText(int code) {
  const CodeName* const c = Find(code);
  return c == nullptr ? "unrecognized error code" : c->text;
}

int FakeCuda::Versions(int* driver, int* runtime) {
  const int code = Enter("Versions");
  if (code != kCudaSuccess) return code;
  *driver = options_.driver_version;
  *runtime = options_.runtime_version;
  return kCudaSuccess;
}

int FakeCuda::DeviceCount(int* count) {
  const int code = Enter("DeviceCount");
  if (code != kCudaSuccess) return code;
  *count = 0;
  if (options_.driver_version / 1000 < options_.runtime_version / 1000) return kCudaInsufficientDriver;
  if (options_.device_count == 0) return kCudaNoDevice;
  *count = options_.device_count;
  return kCudaSuccess;
}

int FakeCuda::GetDeviceInfo(int ordinal, CudaDeviceInfo* out) {
  const int code = Enter("GetDeviceInfo");
  if (code != kCudaSuccess) return code;
  if (ordinal < 0 || ordinal >= options_.device_count) return kCudaInvalidDevice;
  *out = CudaDeviceInfo{};
  std::snprintf(out->name, sizeof(out->name), "%s", options_.name.c_str());
  std::snprintf(out->pci_bus_id, sizeof(out->pci_bus_id), "0000:%02x:00.0", (ordinal + 1) & 0xff);
  for (int i = 0; i < 16; ++i) out->uuid[i] = static_cast<unsigned char>(0xF0 + i * 7 + ordinal);
  out->sm_count = options_.sm_count;
  out->major = options_.major;
  out->minor = options_.minor;
  out->total_bytes = options_.memory_bytes;
  out->l2_bytes = options_.l2_bytes;
  return kCudaSuccess;
}

int FakeCuda::MemInfo(uint64_t* free_bytes, uint64_t* total_bytes) {
  const int code = Enter("MemInfo");
  if (code != kCudaSuccess) return code;
  if (options_.device_count == 0) return kCudaNoDevice;
  *total_bytes = options_.memory_bytes;
  *free_bytes = options_.memory_bytes - memory_->used_bytes(current_device());
  return kCudaSuccess;
}

int FakeCuda::CanAccessPeer(int device, int peer, int* can) {
  const int code = Enter("CanAccessPeer");
  if (code != kCudaSuccess) return code;
  if (device < 0 || peer < 0 || device >= options_.device_count || peer >= options_.device_count) return kCudaInvalidDevice;
  *can = device != peer && options_.peer_access;
  return kCudaSuccess;
}

int FakeCuda::SetDevice(int ordinal) {
  const int code = Enter("SetDevice");
  if (code != kCudaSuccess) return code;
  if (options_.device_count == 0) return kCudaNoDevice;
  if (ordinal < 0 || ordinal >= options_.device_count) return kCudaInvalidDevice;
  thread_device = ordinal;
  return kCudaSuccess;
}

void FakeCuda::RangePush(const char* name) { Enter("RangePush"); }
void FakeCuda::RangePop() { Enter("RangePop"); }

}  // namespace weft
