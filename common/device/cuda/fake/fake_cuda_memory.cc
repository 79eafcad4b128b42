// Memory, copies, IPC and stream memory operations of FakeCuda.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/device/cuda/fake/fake_cuda_parts.h"

namespace weft {
namespace {

// Words may be seen under several addresses in one process (IPC memory), which ThreadSanitizer takes for different ones: whoever saw a word
// that was written has also seen this.
std::atomic<uint64_t> words_written{0};

}  // namespace

bool FakeCuda::Usable(const void* p, size_t bytes, const char* what) {
  if (memory_->Usable(p, bytes)) return true;
  std::fprintf(stderr, "fake CUDA: %s of %zu bytes at %p, which were freed or are none of its memory\n", what, bytes, p);
  BreakDevice(kCudaIllegalAddress);
  return false;
}

void FakeCuda::Copy(char* to, const char* from, size_t bytes) {
  constexpr size_t kPiece = 64 << 10;
  if (options_.copy_bytes_per_s == 0 || bytes <= kPiece) {
    std::memmove(to, from, bytes);
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  for (size_t at = 0; at < bytes && !ended(); at += kPiece) {
    const size_t piece = std::min(kPiece, bytes - at);
    std::memcpy(to + at, from + at, piece);
    std::this_thread::sleep_until(began + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(
                                              static_cast<double>(at + piece) / static_cast<double>(options_.copy_bytes_per_s))));
  }
}

void FakeCuda::NotePageable(const void* p, size_t bytes) {
  if (bytes != 0 && !memory_->Reachable(p, bytes)) pageable_copies_.fetch_add(1);
}

int FakeCuda::Malloc(size_t bytes, void** out) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("Malloc");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  if (options_.device_count == 0) return kCudaNoDevice;
  if (out == nullptr) return kCudaInvalidValue;
  *out = nullptr;
  return bytes == 0 ? kCudaSuccess : memory_->Allocate(current_device(), bytes, /*pooled=*/false, out);
}

int FakeCuda::Free(void* p) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("Free");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  if (p == nullptr) return kCudaSuccess;
  const int device = memory_->DeviceOf(p);
  if (device < 0 || memory_->BeginRelease(p) != kCudaSuccess) return kCudaInvalidValue;
  const int code = AwaitIdle([&](const FStream& s) { return s.device == device; }, "Free");
  if (code == kCudaSuccess) memory_->Release(p);
  return code;
}

int FakeCuda::MallocAsync(size_t bytes, CudaStreamHandle s, void** out) {
  MutexLock lock(&mu_);
  int code = EnterLocked("MallocAsync");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (out == nullptr) return kCudaInvalidValue;
  *out = nullptr;
  if (stream->capture != nullptr && stream->capture->spoilt) return kCudaCaptureInvalidated;
  if (bytes == 0) return kCudaSuccess;
  code = memory_->Allocate(stream->device, bytes, /*pooled=*/true, out);
  // A graph has its memory from its capture to its end, at the same addresses in every launch.
  if (code == kCudaSuccess && stream->capture != nullptr) stream->capture->graph->memory.insert(*out);
  return code;
}

int FakeCuda::FreeAsync(void* p, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("FreeAsync");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (p == nullptr) return kCudaSuccess;
  if (stream->capture != nullptr && stream->capture->graph->memory.count(p) == 0) {
    stream->capture->spoilt = true;
    return kCudaInvalidValue;
  }
  if (memory_->BeginRelease(p) != kCudaSuccess) return kCudaInvalidValue;
  if (stream->capture != nullptr) return kCudaSuccess;
  return Push(stream.get(), [this, p] { memory_->Release(p); }, "freeing");
}

int FakeCuda::HostAlloc(size_t bytes, void** out) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("HostAlloc");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  if (options_.device_count == 0) return kCudaNoDevice;
  if (out == nullptr) return kCudaInvalidValue;
  *out = nullptr;
  return bytes == 0 ? kCudaSuccess : memory_->AllocateHost(bytes, out);
}

int FakeCuda::HostFree(void* p) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("HostFree");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  if (p == nullptr) return kCudaSuccess;
  const int code = AwaitIdle([](const FStream&) { return true; }, "HostFree");
  return code != kCudaSuccess ? code : memory_->FreeHost(p);
}

int FakeCuda::HostRegister(void* p, size_t bytes) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("HostRegister");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  if (options_.device_count == 0) return kCudaNoDevice;
  return memory_->Register(p, bytes);
}

int FakeCuda::HostUnregister(void* p) {
  {
    MutexLock lock(&mu_);
    int code = EnterLocked("HostUnregister");
    if (code == kCudaSuccess) code = RefuseInCapture();
    if (code != kCudaSuccess) return code;
  }
  const int code = AwaitIdle([](const FStream&) { return true; }, "HostUnregister");
  return code != kCudaSuccess ? code : memory_->Unregister(p);
}

int FakeCuda::MemcpyAsync(void* to, const void* from, size_t bytes, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("MemcpyAsync");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (!memory_->Usable(to, bytes) || !memory_->Usable(from, bytes)) return kCudaInvalidValue;
  NotePageable(to, bytes);
  NotePageable(from, bytes);
  return Push(stream.get(),
              [=, this] {
                if (bytes != 0 && Usable(to, bytes, "a copy") && Usable(from, bytes, "a copy")) {
                  Copy(static_cast<char*>(to), static_cast<const char*>(from), bytes);
                }
              },
              "a copy");
}

int FakeCuda::Memcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                            CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("Memcpy2DAsync");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (width == 0 || height == 0) return kCudaSuccess;
  if (width > to_pitch || width > from_pitch) return kCudaInvalidPitch;
  const size_t to_bytes = (height - 1) * to_pitch + width, from_bytes = (height - 1) * from_pitch + width;
  if (!memory_->Usable(to, to_bytes) || !memory_->Usable(from, from_bytes)) return kCudaInvalidValue;
  NotePageable(to, to_bytes);
  NotePageable(from, from_bytes);
  return Push(stream.get(),
              [=, this] {
                if (!Usable(to, to_bytes, "a copy of rows") || !Usable(from, from_bytes, "a copy of rows")) return;
                for (size_t row = 0; row < height; ++row) {
                  std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
                }
              },
              "a copy of rows");
}

int FakeCuda::MemsetAsync(void* p, int value, size_t bytes, CudaStreamHandle s) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("MemsetAsync");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (bytes != 0 && !memory_->Reachable(p, bytes)) return kCudaInvalidValue;
  return Push(stream.get(),
              [=, this] {
                if (bytes != 0 && Usable(p, bytes, "a fill")) std::memset(p, value, bytes);
              },
              "a fill");
}

int FakeCuda::IpcGetHandle(void* allocation, CudaIpcHandle* out) {
  const int code = Enter("IpcGetHandle");
  return code != kCudaSuccess ? code : memory_->Export(allocation, out);
}

int FakeCuda::IpcOpen(const CudaIpcHandle& handle, void** out) {
  const int code = Enter("IpcOpen");
  if (code != kCudaSuccess) return code;
  if (options_.device_count == 0) return kCudaNoDevice;
  return memory_->Open(handle, out);
}

int FakeCuda::IpcClose(void* p) {
  const int code = Enter("IpcClose");
  return code != kCudaSuccess ? code : memory_->Close(p);
}

int FakeCuda::StreamWrite32(CudaStreamHandle s, void* word, uint32_t value) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("StreamWrite32");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (reinterpret_cast<uintptr_t>(word) % 4 != 0 || !memory_->Reachable(word, 4)) return kCudaInvalidValue;
  return Push(stream.get(),
              [=, this] {
                if (!Usable(word, 4, "a write of a word")) return;
                words_written.fetch_add(1, std::memory_order_release);
                std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(word)).store(value, std::memory_order_release);
              },
              "a write of a word");
}

int FakeCuda::StreamWait32(CudaStreamHandle s, void* word, uint32_t value) {
  MutexLock lock(&mu_);
  const int code = EnterLocked("StreamWait32");
  if (code != kCudaSuccess) return code;
  const auto stream = FindStream(s);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (reinterpret_cast<uintptr_t>(word) % 4 != 0 || !memory_->Reachable(word, 4)) return kCudaInvalidValue;
  return Push(stream.get(),
              [=, this] {
                WaitUntil([&] {
                  // It may be freed during the wait, which is an error of the program and must not be a fault of the fake.
                  return !Usable(word, 4, "a wait for a word") ||
                         std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(word)).load(std::memory_order_acquire) == value;
                });
                words_written.load(std::memory_order_acquire);
              },
              "a wait for a word");
}

}  // namespace weft
