// What weft relies on of CUDA, on the fake and on a real GPU. Streams are held by words of host memory, which the host then writes: on a real
// GPU a case must never leave one held.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "common/device/cuda/testing/gpu_case.h"

namespace weft {
namespace {

CudaStreamHandle NewStream(CudaApi* cuda) {
  CudaStreamHandle s = nullptr;
  REQUIRE(cuda->StreamCreate(0, &s) == kCudaSuccess);
  return s;
}

CudaEventHandle NewEvent(CudaApi* cuda) {
  CudaEventHandle e = nullptr;
  REQUIRE(cuda->EventCreate(false, &e) == kCudaSuccess);
  return e;
}

// Two words that can hold streams; opened, with everything that they hold done, at the latest when it goes.
class Holds {
 public:
  explicit Holds(CudaApi* cuda) : cuda_(cuda) {
    void* p = nullptr;
    REQUIRE(cuda->HostAlloc(256, &p) == kCudaSuccess);
    words_ = static_cast<uint32_t*>(p);
    std::memset(words_, 0, 256);
  }
  ~Holds() {
    for (int i = 0; i < 2; ++i) Open(i);
    for (const CudaStreamHandle s : held_) cuda_->StreamSynchronize(s);
    cuda_->HostFree(words_);
  }
  void Hold(CudaStreamHandle s, int i) {
    held_.push_back(s);
    REQUIRE(cuda_->StreamWait32(s, words_ + 32 * i, 1) == kCudaSuccess);
  }
  void Forget(CudaStreamHandle s) { held_.erase(std::find(held_.begin(), held_.end(), s)); }
  void Open(int i) { std::atomic_ref<uint32_t>(words_[32 * i]).store(1, std::memory_order_release); }

 private:
  CudaApi* const cuda_;
  uint32_t* words_ = nullptr;
  std::vector<CudaStreamHandle> held_;
};

// 1 KiB of either memory, never freed.
struct Bytes {
  explicit Bytes(CudaApi* cuda) {
    void* p = nullptr;
    REQUIRE(cuda->Malloc(1024, &p) == kCudaSuccess);
    device = static_cast<char*>(p);
    REQUIRE(cuda->HostAlloc(1024, &p) == kCudaSuccess);
    host = static_cast<char*>(p);
  }
  char* device;
  char* host;
};

WEFT_GPU_CASE("cuda contract: a wait refers to the record before it, a query to the last one") {
  CudaApi* const cuda = gpu.api();
  const auto a = NewStream(cuda), b = NewStream(cuda);
  const auto e = NewEvent(cuda);
  CHECK(cuda->EventQuery(e) == kCudaSuccess);  // never recorded
  CHECK(cuda->StreamWaitEvent(b, e) == kCudaSuccess);
  CHECK(cuda->StreamSynchronize(b) == kCudaSuccess);
  Holds holds(cuda);
  holds.Hold(a, 0);
  CHECK(cuda->EventRecord(e, a) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(b, e) == kCudaSuccess);
  holds.Hold(a, 1);
  CHECK(cuda->EventRecord(e, a) == kCudaSuccess);
  CHECK(cuda->StreamQuery(b) == kCudaNotReady);
  holds.Open(0);
  CHECK(cuda->StreamSynchronize(b) == kCudaSuccess);
  CHECK(cuda->EventQuery(e) == kCudaNotReady);
  CHECK(cuda->StreamQuery(a) == kCudaNotReady);
  CHECK(cuda->EventDestroy(e) == kCudaSuccess);  // while its record is queued
  holds.Open(1);
  CHECK(cuda->StreamSynchronize(a) == kCudaSuccess);
}

WEFT_GPU_CASE("cuda contract: what a destroyed stream was given still runs") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  std::atomic_ref<char> last(bytes.host[0]);
  last.store(0);
  const auto s = NewStream(cuda);
  Holds holds(cuda);
  REQUIRE(cuda->MemsetAsync(bytes.device, 5, 1, s) == kCudaSuccess);
  holds.Hold(s, 0);
  REQUIRE(cuda->MemcpyAsync(bytes.host, bytes.device, 1, s) == kCudaSuccess);
  const auto e = NewEvent(cuda);
  REQUIRE(cuda->EventRecord(e, s) == kCudaSuccess);
  CHECK(cuda->EventQuery(e) == kCudaNotReady);
  CHECK(cuda->StreamDestroy(s) == kCudaSuccess);
  holds.Forget(s);
  CHECK(last.load() == 0);
  holds.Open(0);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cuda->EventQuery(e) == kCudaNotReady && std::chrono::steady_clock::now() < until) {
  }
  CHECK(cuda->EventQuery(e) == kCudaSuccess);
  CHECK(last.load() == 5);
}

WEFT_GPU_CASE("cuda contract: codes of refused calls") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto s = NewStream(cuda);
  void* p = &bytes;
  CHECK(cuda->Malloc(0, &p) == kCudaSuccess);
  CHECK(p == nullptr);
  CHECK(cuda->Malloc(size_t{1} << 60, &p) == kCudaOutOfMemory);
  CHECK(cuda->Free(nullptr) == kCudaSuccess);
  CHECK(cuda->Free(bytes.device + 256) == kCudaInvalidValue);
  CHECK(cuda->HostFree(nullptr) == kCudaSuccess);
  CHECK(cuda->SetDevice(4096) == 101);
  CHECK(cuda->Memcpy2DAsync(bytes.device, 2, bytes.host, 8, 3, 2, s) == 12);
  CHECK(cuda->StreamWrite32(s, bytes.device + 2, 1) == kCudaInvalidValue);
  CHECK(cuda->StreamWait32(s, bytes.device + 2, 1) == kCudaInvalidValue);
  CudaEventHandle timed = nullptr;
  REQUIRE(cuda->EventCreate(true, &timed) == kCudaSuccess);
  float ms = 0;
  CHECK(cuda->EventElapsed(timed, timed, &ms) == 400);  // never recorded
  const auto plain = NewEvent(cuda);
  REQUIRE(cuda->EventRecord(plain, s) == kCudaSuccess);
  REQUIRE(cuda->EventRecord(timed, s) == kCudaSuccess);
  REQUIRE(cuda->StreamSynchronize(s) == kCudaSuccess);
  CHECK(cuda->EventElapsed(timed, plain, &ms) == 400);
  CHECK(cuda->EventElapsed(timed, timed, &ms) == kCudaSuccess);
  CHECK(cuda->IpcClose(bytes.device) == kCudaInvalidValue);
  CHECK(cuda->GraphInstantiate(nullptr, &p) == kCudaInvalidValue);
}

WEFT_GPU_CASE("cuda contract: host memory is registered once") {
  CudaApi* const cuda = gpu.api();
  std::vector<char> block(1 << 20);
  char* const page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block.data()) + 4095) / 4096 * 4096);
  CHECK(cuda->HostRegister(page, 8192) == kCudaSuccess);
  CHECK(cuda->HostRegister(page, 8192) == kCudaHostMemoryAlreadyRegistered);
  CHECK(cuda->HostRegister(page + 4096, 8192) == kCudaHostMemoryAlreadyRegistered);
  CHECK(cuda->HostUnregister(page) == kCudaSuccess);
  CHECK(cuda->HostUnregister(page) == 713);
  void* p = nullptr;
  REQUIRE(cuda->HostAlloc(8192, &p) == kCudaSuccess);
  CHECK(cuda->HostRegister(p, 8192) == kCudaInvalidValue);
  CHECK(cuda->HostFree(page) == kCudaInvalidValue);
  CHECK(cuda->HostFree(p) == kCudaSuccess);
  CHECK(cuda->HostFree(p) == kCudaInvalidValue);
}

WEFT_GPU_CASE("cuda contract: Free, HostFree and HostUnregister wait for the device") {
  CudaApi* const cuda = gpu.api();
  std::vector<char> block(1 << 20);
  char* const page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block.data()) + 4095) / 4096 * 4096);
  REQUIRE(cuda->HostRegister(page, 8192) == kCudaSuccess);
  const struct {
    const char* name;
    std::function<int(const Bytes&)> call;
  } cases[] = {
      {"Free", [&](const Bytes& b) { return cuda->Free(b.device); }},
      {"HostFree", [&](const Bytes& b) { return cuda->HostFree(b.host); }},
      {"HostUnregister", [&](const Bytes&) { return cuda->HostUnregister(page); }},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    Bytes bytes(cuda);
    const auto s = NewStream(cuda);
    std::atomic<int> code{-1};
    Holds holds(cuda);
    holds.Hold(s, 0);
    std::thread caller([&] {
      const int set = cuda->SetDevice(0);
      code = set != kCudaSuccess ? set : c.call(bytes);
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (code == -1 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    const int early = code;
    holds.Open(0);
    caller.join();
    CHECK(early == -1);
    CHECK(code == kCudaSuccess);
  }
}

WEFT_GPU_CASE("cuda contract: what does not wait for the device") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto s = NewStream(cuda), idle = NewStream(cuda), captured = NewStream(cuda);
  const auto e = NewEvent(cuda);
  std::vector<char> block(1 << 20);
  char* const page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block.data()) + 4095) / 4096 * 4096);
  void *p = nullptr, *pooled = nullptr;
  CudaStreamHandle made = nullptr;
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  CudaIpcHandle handle;
  REQUIRE(cuda->BeginCapture(captured) == kCudaSuccess);
  CHECK(cuda->MemsetAsync(bytes.device, 1, 4, captured) == kCudaSuccess);
  REQUIRE(cuda->EndCapture(captured, &graph) == kCudaSuccess);
  const struct {
    const char* name;
    std::function<int()> call;
  } cases[] = {
      {"Malloc", [&] { return cuda->Malloc(100 << 20, &p); }},
      {"HostAlloc", [&] { return cuda->HostAlloc(1 << 20, &p); }},
      {"HostRegister", [&] { return cuda->HostRegister(page, 8192); }},
      {"MallocAsync", [&] { return cuda->MallocAsync(1 << 20, idle, &pooled); }},
      {"FreeAsync", [&] { return cuda->FreeAsync(pooled, idle); }},
      {"IpcGetHandle", [&] { return cuda->IpcGetHandle(bytes.device, &handle); }},
      {"GraphInstantiate", [&] { return cuda->GraphInstantiate(graph, &exec); }},
      {"GraphUpload", [&] { return cuda->GraphUpload(exec, idle); }},
      {"GraphLaunch", [&] { return cuda->GraphLaunch(exec, idle); }},
      {"GraphExecDestroy", [&] { return cuda->GraphExecDestroy(exec); }},
      {"GraphDestroy", [&] { return cuda->GraphDestroy(graph); }},
      {"StreamCreate", [&] { return cuda->StreamCreate(0, &made); }},
      {"StreamDestroy", [&] { return cuda->StreamDestroy(made); }},
      {"EventDestroy", [&] { return cuda->EventDestroy(e); }},
  };
  REQUIRE(cuda->EventRecord(e, s) == kCudaSuccess);
  for (const auto& c : cases) {
    INFO(c.name);
    std::atomic<int> code{-1};
    Holds holds(cuda);
    holds.Hold(s, 0);
    std::thread caller([&] {
      const int set = cuda->SetDevice(0);
      code = set != kCudaSuccess ? set : c.call();
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (code == -1 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    const int in_time = code;
    holds.Open(0);
    caller.join();
    CHECK(in_time == kCudaSuccess);
  }
}

WEFT_GPU_CASE("cuda contract: memory of the pool has no IPC handle; rubbish is none") {
  CudaApi* const cuda = gpu.api();
  const auto s = NewStream(cuda);
  void *p = nullptr, *q = nullptr;
  REQUIRE(cuda->MallocAsync(100, s, &p) == kCudaSuccess);
  CudaIpcHandle handle;
  CHECK(cuda->IpcGetHandle(p, &handle) == kCudaInvalidValue);
  CHECK(cuda->FreeAsync(p, s) == kCudaSuccess);
  CHECK(cuda->StreamSynchronize(s) == kCudaSuccess);
  std::memset(handle.bytes, 'x', sizeof(handle.bytes));
  CHECK(cuda->IpcOpen(handle, &q) != kCudaSuccess);
}

WEFT_GPU_CASE("cuda graph contract: three streams are captured and launched many times") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda), b = NewStream(cuda), c = NewStream(cuda);
  const auto fork = NewEvent(cuda), join = NewEvent(cuda);
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  CHECK(cuda->MemcpyAsync(bytes.device, bytes.host, 4, a) == kCudaSuccess);
  CHECK(cuda->EventRecord(fork, a) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(b, fork) == kCudaSuccess);
  CHECK(cuda->MemcpyAsync(bytes.device + 4, bytes.device, 4, b) == kCudaSuccess);
  CHECK(cuda->EventRecord(fork, b) == kCudaSuccess);  // again: another point
  CHECK(cuda->StreamWaitEvent(c, fork) == kCudaSuccess);
  CHECK(cuda->MemcpyAsync(bytes.host + 8, bytes.device + 4, 4, c) == kCudaSuccess);
  CHECK(cuda->EventRecord(join, c) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(a, join) == kCudaSuccess);
  REQUIRE(cuda->EndCapture(a, &graph) == kCudaSuccess);
  REQUIRE(cuda->GraphInstantiate(graph, &exec) == kCudaSuccess);
  CHECK(cuda->GraphDestroy(graph) == kCudaSuccess);
  CHECK(cuda->GraphUpload(exec, a) == kCudaSuccess);
  for (int i = 0; i < 20; ++i) {
    std::memset(bytes.host, i, 4);
    REQUIRE(cuda->GraphLaunch(exec, i % 2 == 0 ? a : b) == kCudaSuccess);
    REQUIRE(cuda->StreamSynchronize(i % 2 == 0 ? a : b) == kCudaSuccess);
    CHECK(bytes.host[11] == i);
  }
  CHECK(cuda->GraphExecDestroy(exec) == kCudaSuccess);
}

WEFT_GPU_CASE("cuda graph contract: words are written and waited for in graphs, by branches that run at the same time") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda), b = NewStream(cuda);
  const auto fork = NewEvent(cuda), join = NewEvent(cuda);
  REQUIRE(cuda->MemsetAsync(bytes.device, 0, 1024, a) == kCudaSuccess);
  REQUIRE(cuda->StreamSynchronize(a) == kCudaSuccess);
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  CHECK(cuda->EventRecord(fork, a) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(b, fork) == kCudaSuccess);
  CHECK(cuda->StreamWait32(a, bytes.device, 1) == kCudaSuccess);
  CHECK(cuda->StreamWrite32(b, bytes.device, 1) == kCudaSuccess);
  CHECK(cuda->EventRecord(join, b) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(a, join) == kCudaSuccess);
  CHECK(cuda->StreamWrite32(a, bytes.device, 0) == kCudaSuccess);
  REQUIRE(cuda->EndCapture(a, &graph) == kCudaSuccess);
  REQUIRE(cuda->GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (int i = 0; i < 3; ++i) REQUIRE(cuda->GraphLaunch(exec, a) == kCudaSuccess);
  CHECK(cuda->StreamSynchronize(a) == kCudaSuccess);
  CHECK(cuda->GraphExecDestroy(exec) == kCudaSuccess);
  CHECK(cuda->GraphDestroy(graph) == kCudaSuccess);
}

WEFT_GPU_CASE("cuda graph contract: a stream must be joined back after its last work; one without work need not") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda), b = NewStream(cuda);
  const auto e = NewEvent(cuda);
  CudaGraphHandle graph = nullptr;
  for (const bool works : {true, false}) {
    INFO("with work: " << works);
    REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
    CHECK(cuda->MemsetAsync(bytes.device, 1, 4, a) == kCudaSuccess);
    CHECK(cuda->EventRecord(e, a) == kCudaSuccess);
    CHECK(cuda->StreamWaitEvent(b, e) == kCudaSuccess);
    if (works) CHECK(cuda->MemsetAsync(bytes.device + 4, 1, 4, b) == kCudaSuccess);
    CHECK(cuda->EndCapture(a, &graph) == (works ? 904 : kCudaSuccess));
    // Both are out of the capture.
    CHECK(cuda->StreamSynchronize(a) == kCudaSuccess);
    CHECK(cuda->StreamSynchronize(b) == kCudaSuccess);
  }
}

WEFT_GPU_CASE("cuda graph contract: what spoils a capture") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda), b = NewStream(cuda), c = NewStream(cuda);
  const auto captured = NewEvent(cuda), plain = NewEvent(cuda);
  REQUIRE(cuda->EventRecord(plain, c) == kCudaSuccess);
  std::vector<char> block(1 << 20);
  void* p = nullptr;
  const struct {
    const char* name;
    std::function<int()> call;
    int code;
  } cases[] = {
      {"StreamQuery of it", [&] { return cuda->StreamQuery(a); }, 900},
      {"StreamSynchronize of it", [&] { return cuda->StreamSynchronize(a); }, 900},
      {"StreamQuery of another", [&] { return cuda->StreamQuery(c); }, 900},
      {"StreamSynchronize of another", [&] { return cuda->StreamSynchronize(c); }, 900},
      {"EventQuery of it", [&] { return cuda->EventQuery(captured); }, 907},
      {"EventQuery of another", [&] { return cuda->EventQuery(plain); }, 900},
      {"Malloc", [&] { return cuda->Malloc(10, &p); }, 900},
      {"Free", [&] { return cuda->Free(bytes.device); }, 900},
      {"HostAlloc", [&] { return cuda->HostAlloc(10, &p); }, 900},
      {"HostFree", [&] { return cuda->HostFree(bytes.host); }, 900},
      {"HostRegister", [&] { return cuda->HostRegister(block.data(), 8192); }, 900},
      {"a wait across the border", [&] { return cuda->StreamWaitEvent(a, plain); }, 905},
  };
  for (const auto& k : cases) {
    INFO(k.name);
    CudaGraphHandle graph = nullptr;
    REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
    CHECK(cuda->BeginCapture(a) == 401);
    CHECK(cuda->MemsetAsync(bytes.device, 1, 4, a) == kCudaSuccess);
    CHECK(cuda->EventRecord(captured, a) == kCudaSuccess);
    CHECK(k.call() == k.code);
    CHECK(cuda->MemsetAsync(bytes.device, 1, 4, a) == 901);
    CHECK(cuda->EndCapture(a, &graph) == 901);
    CHECK(graph == nullptr);
    CHECK(cuda->StreamWaitEvent(b, captured) != kCudaSuccess);  // of a capture that has ended
    CHECK(cuda->StreamSynchronize(b) == kCudaSuccess);
  }
}

WEFT_GPU_CASE("cuda graph contract: what does not spoil a capture") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda), c = NewStream(cuda);
  const auto plain = NewEvent(cuda);
  CudaGraphHandle graph = nullptr;
  uint64_t free_bytes = 0, total = 0;
  CudaEventHandle e = nullptr;
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  CHECK(cuda->MemsetAsync(bytes.device, 1, 4, a) == kCudaSuccess);
  CHECK(cuda->EventCreate(false, &e) == kCudaSuccess);
  CHECK(cuda->EventDestroy(e) == kCudaSuccess);
  CHECK(cuda->MemInfo(&free_bytes, &total) == kCudaSuccess);
  // Another stream is as ever.
  CHECK(cuda->MemsetAsync(bytes.device + 8, 1, 4, c) == kCudaSuccess);
  CHECK(cuda->EventRecord(plain, c) == kCudaSuccess);
  // Another thread too.
  std::thread([&] {
    CHECK(cuda->SetDevice(0) == kCudaSuccess);
    CHECK(cuda->StreamSynchronize(c) == kCudaSuccess);
    CHECK(cuda->EventQuery(plain) == kCudaSuccess);
  }).join();
  CHECK(cuda->EndCapture(a, &graph) == kCudaSuccess);
  CHECK(cuda->EndCapture(a, &graph) == 401);
  // A capture that another thread ends is lost.
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  std::thread([&] {
    CHECK(cuda->SetDevice(0) == kCudaSuccess);
    CHECK(cuda->EndCapture(a, &graph) == 908);
  }).join();
  CHECK(cuda->EndCapture(a, &graph) == 401);
  CHECK(cuda->StreamSynchronize(a) == kCudaSuccess);
}

WEFT_GPU_CASE("cuda graph contract: two captures do not mix, and only the origin ends one") {
  CudaApi* const cuda = gpu.api();
  const auto a = NewStream(cuda), b = NewStream(cuda);
  const auto e = NewEvent(cuda);
  CudaGraphHandle graph = nullptr;
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  REQUIRE(cuda->BeginCapture(b) == kCudaSuccess);
  CHECK(cuda->EventRecord(e, a) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(b, e) == 902);
  CHECK(cuda->EndCapture(b, &graph) == 901);
  CHECK(cuda->EndCapture(a, &graph) == 901);
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  CHECK(cuda->EventRecord(e, a) == kCudaSuccess);
  CHECK(cuda->StreamWaitEvent(b, e) == kCudaSuccess);
  CHECK(cuda->EndCapture(b, &graph) == 903);
  CHECK(cuda->EndCapture(a, &graph) == 901);
}

WEFT_GPU_CASE("cuda graph contract: memory of the pool can be captured") {
  CudaApi* const cuda = gpu.api();
  Bytes bytes(cuda);
  const auto a = NewStream(cuda);
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  void* p = nullptr;
  REQUIRE(cuda->BeginCapture(a) == kCudaSuccess);
  CHECK(cuda->MallocAsync(100, a, &p) == kCudaSuccess);
  CHECK(cuda->MemsetAsync(p, 3, 100, a) == kCudaSuccess);
  CHECK(cuda->MemcpyAsync(bytes.host, p, 100, a) == kCudaSuccess);
  CHECK(cuda->FreeAsync(p, a) == kCudaSuccess);
  REQUIRE(cuda->EndCapture(a, &graph) == kCudaSuccess);
  REQUIRE(cuda->GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (int i = 0; i < 3; ++i) {
    bytes.host[99] = 0;
    REQUIRE(cuda->GraphLaunch(exec, a) == kCudaSuccess);
    REQUIRE(cuda->StreamSynchronize(a) == kCudaSuccess);
    CHECK(bytes.host[99] == 3);
  }
}

bool Becomes(NcclApi* nccl, NcclCommHandle comm, int wanted) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int state = -1;
  do {
    if (nccl->GetAsyncError(comm, &state) != kNcclSuccess) return false;
  } while (state != wanted && std::chrono::steady_clock::now() < until);
  return state == wanted;
}

WEFT_GPU_CASE("nccl contract: one rank alone: in progress, then usable, also in a group and in a capture") {
  CudaApi* const cuda = gpu.api();
  NcclApi* const nccl = gpu.device()->nccl();
  if (nccl == nullptr) FAIL(gpu.device()->nccl_problem());
  Bytes bytes(cuda);
  const auto s = NewStream(cuda);
  NcclId id;
  REQUIRE(nccl->GetUniqueId(&id) == kNcclSuccess);
  NcclCommHandle comm = nullptr;
  CHECK(nccl->CommInit(&comm, 1, id, 1, 4) == kNcclInvalidArgument);
  REQUIRE(nccl->CommInit(&comm, 1, id, 0, 4) == kNcclInProgress);
  int state = -1;
  if (nccl->GetAsyncError(comm, &state) == kNcclSuccess && state == kNcclInProgress) {
    const int early = nccl->AllReduce(bytes.device, bytes.device, 4, kNcclFloat32, kNcclSum, comm, s);
    // Joining may have ended since.
    CHECK((early == kNcclInvalidArgument || early == kNcclSuccess || early == kNcclInProgress));
  }
  REQUIRE(Becomes(nccl, comm, kNcclSuccess));
  CHECK(nccl->GroupEnd() == kNcclInvalidUsage);

  std::memset(bytes.host, 7, 16);
  REQUIRE(cuda->MemcpyAsync(bytes.device, bytes.host, 16, s) == kCudaSuccess);
  REQUIRE(nccl->GroupStart() == kNcclSuccess);
  CHECK(nccl->Send(bytes.device, 16, kNcclInt8, 0, comm, s) == kNcclSuccess);
  CHECK(nccl->Recv(bytes.device + 256, 16, kNcclInt8, 0, comm, s) == kNcclSuccess);
  CHECK(nccl->GroupEnd() == kNcclInProgress);
  REQUIRE(Becomes(nccl, comm, kNcclSuccess));
  REQUIRE(cuda->MemcpyAsync(bytes.host + 256, bytes.device + 256, 16, s) == kCudaSuccess);
  REQUIRE(cuda->StreamSynchronize(s) == kCudaSuccess);
  CHECK(bytes.host[256 + 15] == 7);

  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(cuda->BeginCapture(s) == kCudaSuccess);
  // Polled before the next call, and before the capture's end, else it is not part of it.
  const int reduced = nccl->AllReduce(bytes.device, bytes.device + 512, 4, kNcclFloat32, kNcclSum, comm, s);
  CHECK((reduced == kNcclSuccess || reduced == kNcclInProgress));
  CHECK(Becomes(nccl, comm, kNcclSuccess));
  CHECK(nccl->GroupStart() == kNcclSuccess);
  CHECK(nccl->Send(bytes.device + 512, 16, kNcclInt8, 0, comm, s) == kNcclSuccess);
  CHECK(nccl->Recv(bytes.device + 768, 16, kNcclInt8, 0, comm, s) == kNcclSuccess);
  CHECK(nccl->GroupEnd() == kNcclInProgress);
  CHECK(Becomes(nccl, comm, kNcclSuccess));
  REQUIRE(cuda->EndCapture(s, &graph) == kCudaSuccess);
  REQUIRE(cuda->GraphInstantiate(graph, &exec) == kCudaSuccess);
  for (int i = 0; i < 3; ++i) {
    std::memset(bytes.host, i, 16);
    REQUIRE(cuda->MemcpyAsync(bytes.device, bytes.host, 16, s) == kCudaSuccess);
    REQUIRE(cuda->GraphLaunch(exec, s) == kCudaSuccess);
    REQUIRE(cuda->MemcpyAsync(bytes.host + 256, bytes.device + 768, 16, s) == kCudaSuccess);
    REQUIRE(cuda->StreamSynchronize(s) == kCudaSuccess);
    CHECK(bytes.host[256 + 15] == i);
  }
  CHECK(cuda->GraphExecDestroy(exec) == kCudaSuccess);
  CHECK(cuda->GraphDestroy(graph) == kCudaSuccess);
  CHECK(nccl->CommAbort(comm) == kNcclSuccess);
}

WEFT_GPU_CASE("nccl contract: a refused call spoils its communicator, and in a group every one of the group") {
  CudaApi* const cuda = gpu.api();
  NcclApi* const nccl = gpu.device()->nccl();
  if (nccl == nullptr) FAIL(gpu.device()->nccl_problem());
  Bytes bytes(cuda);
  const auto s = NewStream(cuda);
  const auto join = [&] {
    NcclId id;
    NcclCommHandle comm = nullptr;
    REQUIRE(nccl->GetUniqueId(&id) == kNcclSuccess);
    REQUIRE(nccl->CommInit(&comm, 1, id, 0, 4) == kNcclInProgress);
    REQUIRE(Becomes(nccl, comm, kNcclSuccess));
    return comm;
  };
  const auto state = [&](NcclCommHandle comm) {
    int now = -1;
    REQUIRE(nccl->GetAsyncError(comm, &now) == kNcclSuccess);
    return now;
  };
  const NcclCommHandle alone = join();
  CHECK(nccl->AllReduce(bytes.device, bytes.device, 4, 77, kNcclSum, alone, s) == kNcclInvalidArgument);
  CHECK(state(alone) == kNcclInvalidArgument);
  CHECK(nccl->AllReduce(bytes.device, bytes.device, 4, kNcclInt8, kNcclSum, alone, s) == kNcclInvalidArgument);
  CHECK(nccl->CommAbort(alone) == kNcclSuccess);

  const NcclCommHandle bad = join(), good = join();
  REQUIRE(nccl->GroupStart() == kNcclSuccess);
  CHECK(nccl->Send(bytes.device, 4, kNcclInt8, 0, good, s) == kNcclSuccess);
  CHECK(nccl->Recv(bytes.device + 256, 4, kNcclInt8, 0, good, s) == kNcclSuccess);
  CHECK(nccl->Send(bytes.device, 4, kNcclInt8, 5, bad, s) == kNcclInvalidArgument);
  CHECK(nccl->GroupEnd() == kNcclInvalidArgument);
  CHECK(state(bad) == kNcclInvalidArgument);
  CHECK(state(good) == kNcclInvalidArgument);
  CHECK(nccl->CommAbort(bad) == kNcclSuccess);
  CHECK(nccl->CommAbort(good) == kNcclSuccess);
  // Used before its last call has become a success.
  const NcclCommHandle early = join();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(nccl->GroupStart() == kNcclSuccess);
    const int sent = nccl->Send(bytes.device, 4, kNcclInt8, 0, early, s);
    CHECK(sent == (i == 0 ? kNcclSuccess : kNcclInvalidArgument));
    const int received = nccl->Recv(bytes.device + 256, 4, kNcclInt8, 0, early, s);
    CHECK(received == sent);
    CHECK(nccl->GroupEnd() == (i == 0 ? kNcclInProgress : kNcclInvalidArgument));
  }
  CHECK(state(early) == kNcclInvalidArgument);
  CHECK(nccl->CommAbort(early) == kNcclSuccess);
  CHECK(cuda->StreamSynchronize(s) == kCudaSuccess);
  // The thread's next group is as ever.
  CHECK(nccl->GroupStart() == kNcclSuccess);
  CHECK(nccl->GroupEnd() == kNcclSuccess);
}

WEFT_GPU_CASE("nccl contract: a rank whose peer never joins stays in progress and can be aborted") {
  NcclApi* const nccl = gpu.device()->nccl();
  if (nccl == nullptr) FAIL(gpu.device()->nccl_problem());
  Bytes bytes(gpu.api());
  NcclId id;
  REQUIRE(nccl->GetUniqueId(&id) == kNcclSuccess);
  NcclCommHandle comm = nullptr;
  REQUIRE(nccl->CommInit(&comm, 2, id, 0, 4) == kNcclInProgress);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
    int state = -1;
    REQUIRE(nccl->GetAsyncError(comm, &state) == kNcclSuccess);
    REQUIRE(state == kNcclInProgress);
  }
  CHECK(nccl->Send(bytes.device, 4, kNcclInt8, 1, comm, gpu.native()) == kNcclInvalidArgument);
  CHECK(nccl->CommAbort(comm) == kNcclSuccess);
}

}  // namespace
}  // namespace weft
