#include <catch2/catch.hpp>
#include <cstring>

#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {
namespace {

TEST_CASE("fake cuda memory: aligned, full of rubbish, bounded, and counted") {
  FakeCuda::Options options;
  options.memory_bytes = 64 << 10;
  FakeCuda cuda(options);
  auto* const a = NewMemory<unsigned char>(&cuda, 1000);
  auto* const b = NewMemory<unsigned char>(&cuda, 1);
  REQUIRE(a != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(a) % 256 == 0);
  CHECK(reinterpret_cast<uintptr_t>(b) % 256 == 0);
  CHECK(a[0] == 0xA5);
  CHECK(a[999] == 0xA5);
  uint64_t free_bytes = 0, total = 0;
  CHECK(cuda.MemInfo(&free_bytes, &total) == kCudaSuccess);
  CHECK(total == 64 << 10);
  CHECK(free_bytes == total - 1024 - 256);
  void* p = &free_bytes;
  CHECK(cuda.Malloc(64 << 10, &p) == kCudaOutOfMemory);
  CHECK(p == nullptr);
  CHECK(cuda.Malloc(~size_t{0}, &p) == kCudaOutOfMemory);
  CHECK(cuda.Malloc(0, &p) == kCudaSuccess);
  CHECK(p == nullptr);
  CHECK(cuda.Free(nullptr) == kCudaSuccess);
  CHECK(cuda.Free(a + 256) == kCudaInvalidValue);
  CHECK(cuda.Free(a) == kCudaSuccess);
  CHECK(cuda.Free(a) == kCudaInvalidValue);
  CHECK(cuda.books().allocations == 1);
  CHECK(cuda.Free(b) == kCudaSuccess);
  CHECK(cuda.MemInfo(&free_bytes, &total) == kCudaSuccess);
  CHECK(free_bytes == total);
  auto* const again = NewMemory<unsigned char>(&cuda, 60 << 10);
  CHECK(again != nullptr);
  CHECK(again != a);
}

TEST_CASE("fake cuda memory: many allocations come and go, none at the place of a recent one") {
  FakeCuda cuda;
  void* last = nullptr;
  for (int i = 0; i < 3000; ++i) {
    char* const p = NewMemory<char>(&cuda, 4 << 20);
    REQUIRE(p != nullptr);
    REQUIRE(p != last);
    p[0] = p[(4 << 20) - 1] = 1;
    last = p;
    REQUIRE(cuda.Free(p) == kCudaSuccess);
  }
  CHECK(cuda.books().allocations == 0);
}

TEST_CASE("fake cuda memory: Free blocks until the device is idle") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda);
  int* const p = NewMemory<int>(&cuda, 1);
  Gate gate;
  gate.Hold(&cuda, s);
  cuda.Enqueue(s, [p] { *p = 1; });
  std::atomic<int> code{-1};
  std::thread freeing([&] { code = cuda.Free(p); });
  const bool called = Eventually([&] { return cuda.calls("Free") == 1; });
  const int early = code;
  const int allocations = cuda.books().allocations;
  gate.Open();
  freeing.join();
  CHECK(called);
  CHECK(early == -1);
  CHECK(allocations == 1);
  CHECK(code == kCudaSuccess);
  CHECK(cuda.StreamQuery(s) == kCudaSuccess);
  CHECK(cuda.books().allocations == 0);
}

TEST_CASE("fake cuda memory: copies and fills, in one piece and in rows") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda);
  char* const d = NewMemory<char>(&cuda, 64);
  void* host = nullptr;
  REQUIRE(cuda.HostAlloc(64, &host) == kCudaSuccess);
  char* const h = static_cast<char*>(host);
  for (int i = 0; i < 64; ++i) h[i] = static_cast<char>(i);
  CHECK(cuda.MemsetAsync(d, 9, 64, s) == kCudaSuccess);
  // Rows of 3 bytes: 8 apart here, 16 apart there.
  CHECK(cuda.Memcpy2DAsync(d, 16, h, 8, 3, 4, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  for (int i = 0; i < 64; ++i) CHECK(int{d[i]} == (i % 16 < 3 ? i / 16 * 8 + i % 16 : 9));
  CHECK(cuda.Memcpy2DAsync(d, 2, h, 8, 3, 4, s) == kCudaInvalidPitch);
  CHECK(cuda.MemcpyAsync(h, d, 64, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  CHECK(std::memcmp(h, d, 64) == 0);
  CHECK(cuda.pageable_copies() == 0);
  char outside[64];
  CHECK(cuda.MemcpyAsync(outside, d, 64, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  CHECK(std::memcmp(outside, d, 64) == 0);
  CHECK(cuda.pageable_copies() == 1);
  CHECK(cuda.MemcpyAsync(d, h, 65, s) == kCudaInvalidValue);
  CHECK(cuda.MemcpyAsync(nullptr, h, 1, s) == kCudaInvalidValue);
  CHECK(cuda.MemsetAsync(outside, 0, 1, s) == kCudaInvalidValue);
  CHECK(cuda.HostFree(host) == kCudaSuccess);
  CHECK(cuda.MemcpyAsync(d, host, 1, s) == kCudaInvalidValue);
}

TEST_CASE("fake cuda memory: large copies take the time that was asked for, and give way when the device ends") {
  FakeCuda::Options options;
  options.copy_bytes_per_s = 10 << 20;
  FakeCuda cuda(options);
  const auto s = NewStream(&cuda);
  constexpr size_t kBytes = 200 << 10;  // 20 ms
  char* const from = NewMemory<char>(&cuda, 100 << 20);
  char* const to = NewMemory<char>(&cuda, 100 << 20);
  std::memset(from, 7, kBytes);
  const auto began = std::chrono::steady_clock::now();
  REQUIRE(cuda.MemcpyAsync(to, from, kBytes, s) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  CHECK(std::chrono::steady_clock::now() - began >= std::chrono::microseconds(19500));
  CHECK(std::memcmp(from, to, kBytes) == 0);
  REQUIRE(cuda.MemcpyAsync(to, from, 100 << 20, s) == kCudaSuccess);  // 10 s
  cuda.BreakDevice(kCudaAssert);
  CHECK(cuda.StreamSynchronize(s) == kCudaAssert);
}

TEST_CASE("fake cuda memory: work that meets freed memory breaks the device") {
  FakeCuda cuda;
  const auto a = NewStream(&cuda), b = NewStream(&cuda);
  void* p = nullptr;
  char* const from = NewMemory<char>(&cuda, 100);
  REQUIRE(cuda.MallocAsync(100, b, &p) == kCudaSuccess);
  Gate gate;
  gate.Hold(&cuda, a);
  CHECK(cuda.MemcpyAsync(p, from, 100, a) == kCudaSuccess);
  CHECK(cuda.FreeAsync(p, b) == kCudaSuccess);
  CHECK(cuda.FreeAsync(p, b) == kCudaInvalidValue);
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
  gate.Open();
  CHECK(cuda.StreamSynchronize(a) == kCudaIllegalAddress);
  CHECK(cuda.StreamQuery(b) == kCudaIllegalAddress);
}

TEST_CASE("fake cuda memory: memory of the pool is freed in the order of its stream") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda);
  void* p = nullptr;
  REQUIRE(cuda.MallocAsync(8, s, &p) == kCudaSuccess);
  CudaIpcHandle handle;
  CHECK(cuda.IpcGetHandle(p, &handle) == kCudaInvalidValue);
  Gate gate;
  gate.Hold(&cuda, s);
  CHECK(cuda.MemsetAsync(p, 1, 8, s) == kCudaSuccess);
  CHECK(cuda.FreeAsync(p, s) == kCudaSuccess);
  CHECK(cuda.books().allocations == 1);
  gate.Open();
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  CHECK(cuda.books().allocations == 0);
}

TEST_CASE("fake cuda memory: host memory is registered once, and only what was is unregistered") {
  FakeCuda cuda;
  std::vector<char> block(10000);
  CHECK(cuda.HostRegister(block.data(), 4000) == kCudaSuccess);
  CHECK(cuda.HostRegister(block.data(), 4000) == kCudaHostMemoryAlreadyRegistered);
  CHECK(cuda.HostRegister(block.data() + 3999, 10) == kCudaHostMemoryAlreadyRegistered);
  CHECK(cuda.HostRegister(block.data() + 4000, 10) == kCudaSuccess);
  CHECK(cuda.HostRegister(block.data() + 3000, 5000) == kCudaHostMemoryAlreadyRegistered);
  CHECK(cuda.HostRegister(nullptr, 10) == kCudaInvalidValue);
  CHECK(cuda.DeviceReachable(block.data() + 10, 100));
  CHECK_FALSE(cuda.DeviceReachable(block.data() + 5000, 1));
  CHECK(cuda.HostUnregister(block.data() + 1) == kCudaHostMemoryNotRegistered);
  CHECK(cuda.HostUnregister(block.data()) == kCudaSuccess);
  CHECK(cuda.HostUnregister(block.data()) == kCudaHostMemoryNotRegistered);
  CHECK(cuda.books().registrations == 1);
  void* p = nullptr;
  REQUIRE(cuda.HostAlloc(10, &p) == kCudaSuccess);
  CHECK(cuda.HostRegister(p, 10) == kCudaInvalidValue);
  CHECK(cuda.HostFree(block.data()) == kCudaInvalidValue);
  CHECK(cuda.HostFree(p) == kCudaSuccess);
  CHECK(cuda.HostFree(p) == kCudaInvalidValue);
  CHECK(cuda.books().host_allocations == 0);
}

TEST_CASE("child: touches freed memory", "[.]") {
  FakeCuda cuda;
  volatile char* const p = NewMemory<char>(&cuda, 100);
  REQUIRE(p != nullptr);
  p[0] = 1;
  REQUIRE(cuda.Free(const_cast<char*>(p)) == kCudaSuccess);
  p[0] = 2;
}

TEST_CASE("child: touches memory behind an allocation", "[.]") {
  FakeCuda cuda;
  volatile char* const p = NewMemory<char>(&cuda, 100);
  REQUIRE(p != nullptr);
  p[4096] = 2;
}

TEST_CASE("fake cuda memory: a host access to freed memory, or far behind an allocation, ends the process") {
  TestChild freed("child: touches freed memory", {}, /*quiet=*/true);
  TestChild behind("child: touches memory behind an allocation", {}, /*quiet=*/true);
  const int a = freed.Wait(), b = behind.Wait();
  CHECK(a != -1);
  CHECK(a != 0);
  CHECK(b != -1);
  CHECK(b != 0);
}

TEST_CASE("fake cuda memory: an IPC handle opens the same memory in another fake, until it is freed") {
  FakeCuda owner, user;
  int* const p = NewMemory<int>(&owner, 1000);
  p[0] = 11;
  p[999] = 22;
  CudaIpcHandle handle;
  REQUIRE(owner.IpcGetHandle(p, &handle) == kCudaSuccess);
  CHECK(owner.IpcGetHandle(p + 64, &handle) == kCudaInvalidValue);
  void *opened = nullptr, *again = nullptr;
  REQUIRE(user.IpcOpen(handle, &opened) == kCudaSuccess);
  int* const q = static_cast<int*>(opened);
  CHECK(q != p);
  CHECK(q[0] == 11);
  CHECK(q[999] == 22);
  q[0] = 33;
  CHECK(p[0] == 33);
  CHECK(user.IpcOpen(handle, &again) == kCudaSuccess);
  CHECK(again == opened);
  CHECK(user.IpcClose(opened) == kCudaSuccess);
  CHECK(user.DeviceReachable(opened, 4000));
  CHECK(owner.Free(p) == kCudaSuccess);
  CHECK(q[999] == 0);
  CHECK(user.IpcOpen(handle, &again) == kCudaSuccess);  // counted: it is open here still
  CHECK(user.IpcClose(opened) == kCudaSuccess);
  CHECK(user.IpcClose(opened) == kCudaSuccess);
  CHECK(user.IpcClose(opened) == kCudaInvalidValue);
  CHECK(user.books().ipc_opened == 0);
  CHECK(user.IpcOpen(handle, &again) == kCudaInvalidHandle);
  const auto s = NewStream(&user);
  CHECK(user.MemsetAsync(opened, 0, 4, s) == kCudaInvalidValue);
  CudaIpcHandle rubbish{};
  std::memset(rubbish.bytes, 'x', sizeof(rubbish.bytes));
  CHECK(user.IpcOpen(rubbish, &again) == kCudaInvalidHandle);
}

}  // namespace
}  // namespace weft
