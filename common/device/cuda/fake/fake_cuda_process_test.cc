#include <catch2/catch.hpp>
#include <cstdlib>

#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {
namespace {

constexpr uint32_t kRounds = 50;
constexpr size_t kWords = 10000;

// Word 0: the parent has written; word 64: the child has answered; data from word 128 on.
struct Shared {
  explicit Shared(void* p) : words(static_cast<uint32_t*>(p)) {}
  uint32_t* const words;
  uint32_t* there() const { return words; }
  uint32_t* back() const { return words + 64; }
  uint32_t* data() const { return words + 128; }
};

TEST_CASE("child: answers over IPC memory", "[.]") {
  FakeCuda cuda;
  CudaIpcHandle handle{};
  FromHex(std::getenv("WEFT_FAKE_HANDLE"), handle.bytes, sizeof(handle.bytes));
  void* p = nullptr;
  REQUIRE(cuda.IpcOpen(handle, &p) == kCudaSuccess);
  const Shared shared(p);
  const auto s = NewStream(&cuda);
  for (uint32_t round = 1; round <= kRounds; ++round) {
    REQUIRE(cuda.StreamWait32(s, shared.there(), round) == kCudaSuccess);
    REQUIRE(cuda.Enqueue(s, [=] {
      for (size_t i = 0; i < kWords; ++i) shared.data()[i] *= 3;
    }) == kCudaSuccess);
    REQUIRE(cuda.StreamWrite32(s, shared.back(), round) == kCudaSuccess);
  }
  REQUIRE(cuda.StreamSynchronize(s) == kCudaSuccess);
  REQUIRE(cuda.IpcClose(p) == kCudaSuccess);
}

TEST_CASE("child: holds a word and dies", "[.]") {
  FakeCuda cuda;
  CudaIpcHandle handle{};
  FromHex(std::getenv("WEFT_FAKE_HANDLE"), handle.bytes, sizeof(handle.bytes));
  void* p = nullptr;
  REQUIRE(cuda.IpcOpen(handle, &p) == kCudaSuccess);
  const auto s = NewStream(&cuda);
  int* const mine = NewMemory<int>(&cuda, 100);
  mine[99] = 77;
  CudaIpcHandle own;
  REQUIRE(cuda.IpcGetHandle(mine, &own) == kCudaSuccess);
  std::memcpy(Shared(p).data(), own.bytes, sizeof(own.bytes));
  REQUIRE(cuda.StreamWrite32(s, Shared(p).back(), 1) == kCudaSuccess);
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));  // until it is killed
}

TEST_CASE("fake cuda: two processes exchange data through IPC memory, with writes and waits of words") {
  FakeCuda cuda;
  const Shared shared(NewMemory<uint32_t>(&cuda, 128 + kWords));
  std::memset(shared.words, 0, 512);
  CudaIpcHandle handle;
  REQUIRE(cuda.IpcGetHandle(shared.words, &handle) == kCudaSuccess);
  TestChild child("child: answers over IPC memory", {"WEFT_FAKE_HANDLE=" + ToHex(handle.bytes, sizeof(handle.bytes))});
  const auto s = NewStream(&cuda);
  std::atomic<int> wrong{0};
  for (uint32_t round = 1; round <= kRounds; ++round) {
    cuda.Enqueue(s, [=] {
      for (size_t i = 0; i < kWords; ++i) shared.data()[i] = round + static_cast<uint32_t>(i);
    });
    REQUIRE(cuda.StreamWrite32(s, shared.there(), round) == kCudaSuccess);
    REQUIRE(cuda.StreamWait32(s, shared.back(), round) == kCudaSuccess);
    cuda.Enqueue(s, [=, &wrong] {
      for (size_t i = 0; i < kWords; ++i) wrong += shared.data()[i] != 3 * (round + static_cast<uint32_t>(i));
    });
  }
  CHECK(cuda.StreamSynchronize(s) == kCudaSuccess);
  CHECK(wrong == 0);
  CHECK(child.Wait() == 0);
}

TEST_CASE("fake cuda: opened memory outlives a process that was killed; its handle opens no more") {
  FakeCuda cuda;
  const Shared shared(NewMemory<uint32_t>(&cuda, 256));
  std::memset(shared.words, 0, 512);
  CudaIpcHandle handle;
  REQUIRE(cuda.IpcGetHandle(shared.words, &handle) == kCudaSuccess);
  TestChild child("child: holds a word and dies", {"WEFT_FAKE_HANDLE=" + ToHex(handle.bytes, sizeof(handle.bytes))});
  const auto s = NewStream(&cuda);
  REQUIRE(cuda.StreamWait32(s, shared.back(), 1) == kCudaSuccess);
  REQUIRE(cuda.StreamSynchronize(s) == kCudaSuccess);
  CudaIpcHandle theirs;
  std::memcpy(theirs.bytes, shared.data(), sizeof(theirs.bytes));
  void *p = nullptr, *again = nullptr;
  REQUIRE(cuda.IpcOpen(theirs, &p) == kCudaSuccess);
  child.Kill();
  CHECK(static_cast<int*>(p)[99] == 77);
  CHECK(cuda.IpcClose(p) == kCudaSuccess);
  CHECK(cuda.IpcOpen(theirs, &again) == kCudaInvalidHandle);
}

}  // namespace
}  // namespace weft
