#include "common/device/cuda/fake/fake_cuda.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {
namespace {

TEST_CASE("fake cuda: a stream runs in order, streams run beside each other") {
  FakeCuda cuda;
  const auto a = NewStream(&cuda), b = NewStream(&cuda);
  Gate gate;
  std::vector<int> seen;
  REQUIRE(gate.Hold(&cuda, a) == kCudaSuccess);
  for (int i = 0; i < 50; ++i) REQUIRE(cuda.Enqueue(a, [&seen, i] { seen.push_back(i); }) == kCudaSuccess);
  CHECK(cuda.StreamQuery(a) == kCudaNotReady);
  std::atomic<bool> other{false};
  REQUIRE(cuda.Enqueue(b, [&] { other = true; }) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
  CHECK(other);
  CHECK(cuda.StreamQuery(b) == kCudaSuccess);
  CHECK(cuda.StreamQuery(a) == kCudaNotReady);
  REQUIRE(Eventually([&] { return cuda.State().find("a gate runs, 50 behind it") != std::string::npos; }));
  gate.Open();
  CHECK(cuda.StreamSynchronize(a) == kCudaSuccess);
  REQUIRE(seen.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(seen[i] == i);
  CHECK(cuda.State().empty());
  CHECK(cuda.calls("Enqueue") == 52);
}

TEST_CASE("fake cuda: a wait refers to the record before it, a query to the last one") {
  FakeCuda cuda;
  const auto a = NewStream(&cuda), b = NewStream(&cuda);
  const auto e = NewEvent(&cuda);
  CHECK(cuda.EventQuery(e) == kCudaSuccess);  // never recorded
  CHECK(cuda.StreamWaitEvent(b, e) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
  Gate first, second;
  std::atomic<bool> ran{false};
  first.Hold(&cuda, a);
  REQUIRE(cuda.EventRecord(e, a) == kCudaSuccess);
  REQUIRE(cuda.StreamWaitEvent(b, e) == kCudaSuccess);
  cuda.Enqueue(b, [&] { ran = true; });
  second.Hold(&cuda, a);
  REQUIRE(cuda.EventRecord(e, a) == kCudaSuccess);
  CHECK_FALSE(ran);
  CHECK(cuda.StreamQuery(b) == kCudaNotReady);
  first.Open();
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
  CHECK(ran);
  CHECK(cuda.EventQuery(e) == kCudaNotReady);
  // An event may go while waits for it are queued.
  REQUIRE(cuda.StreamWaitEvent(b, e) == kCudaSuccess);
  CHECK(cuda.EventDestroy(e) == kCudaSuccess);
  CHECK(cuda.EventQuery(e) == kCudaInvalidHandle);
  CHECK(cuda.StreamQuery(b) == kCudaNotReady);
  second.Open();
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
}

TEST_CASE("fake cuda: time between events is told for recorded events with timing only") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda);
  CudaEventHandle start = nullptr, end = nullptr;
  const auto plain = NewEvent(&cuda);
  REQUIRE(cuda.EventCreate(true, &start) == kCudaSuccess);
  REQUIRE(cuda.EventCreate(true, &end) == kCudaSuccess);
  float ms = -1;
  CHECK(cuda.EventElapsed(start, end, &ms) == kCudaInvalidHandle);
  Gate gate;
  cuda.EventRecord(start, s);
  gate.Hold(&cuda, s);
  cuda.EventRecord(end, s);
  cuda.EventRecord(plain, s);
  CHECK(cuda.EventElapsed(start, end, &ms) == kCudaNotReady);
  CHECK(cuda.EventElapsed(start, plain, &ms) == kCudaInvalidHandle);
  gate.Open();
  cuda.StreamSynchronize(s);
  CHECK(cuda.EventElapsed(start, end, &ms) == kCudaSuccess);
  CHECK(ms > 0);
}

TEST_CASE("fake cuda: what is queued runs after its stream is destroyed; stale handles and those of others are refused") {
  FakeCuda cuda, other;
  const auto s = NewStream(&cuda);
  Gate gate;
  std::atomic<bool> ran{false};
  gate.Hold(&cuda, s);
  cuda.Enqueue(s, [&] { ran = true; });
  CHECK(cuda.StreamDestroy(s) == kCudaSuccess);
  CHECK(cuda.books().streams == 0);
  gate.Open();
  CHECK(Eventually([&] { return ran.load(); }));
  CHECK(cuda.StreamQuery(s) == kCudaInvalidHandle);
  CHECK(cuda.StreamDestroy(s) == kCudaInvalidHandle);
  CHECK(cuda.Enqueue(nullptr, [] {}) == kCudaInvalidHandle);
  const auto mine = NewStream(&cuda);
  CHECK(mine != s);
  CHECK(other.StreamSynchronize(mine) == kCudaInvalidHandle);
  CHECK(other.EventRecord(NewEvent(&other), mine) == kCudaInvalidHandle);
}

TEST_CASE("fake cuda: a wait for a word ends when it is written, by a stream or by the host") {
  FakeCuda cuda;
  const auto a = NewStream(&cuda), b = NewStream(&cuda);
  auto* const words = NewMemory<uint32_t>(&cuda, 4);
  auto* const data = NewMemory<int>(&cuda, 1);
  void* host = nullptr;
  REQUIRE(cuda.HostAlloc(64, &host) == kCudaSuccess);
  auto* const flag = static_cast<uint32_t*>(host);
  std::memset(words, 0, 16);
  *flag = 0;
  int got = 0;
  REQUIRE(cuda.StreamWait32(b, words, 7) == kCudaSuccess);
  cuda.Enqueue(b, [&] { got = *data; });
  REQUIRE(cuda.StreamWait32(a, flag, 3) == kCudaSuccess);
  cuda.Enqueue(a, [&] { *data = 42; });
  REQUIRE(cuda.StreamWrite32(a, words, 7) == kCudaSuccess);
  CHECK(cuda.StreamQuery(b) == kCudaNotReady);
  std::atomic_ref<uint32_t>(*flag).store(3, std::memory_order_release);
  CHECK(cuda.StreamSynchronize(b) == kCudaSuccess);
  CHECK(got == 42);
  uint32_t outside = 0;
  CHECK(cuda.StreamWrite32(a, &outside, 1) == kCudaInvalidValue);
  CHECK(cuda.StreamWait32(a, reinterpret_cast<char*>(words) + 1, 1) == kCudaInvalidValue);
  REQUIRE(cuda.HostRegister(&outside, 4) == kCudaSuccess);
  CHECK(cuda.StreamWrite32(a, &outside, 5) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(a) == kCudaSuccess);
  CHECK(outside == 5);
}

TEST_CASE("fake cuda: it can go while its streams wait for words, events and gates") {
  FakeCuda cuda;
  auto* const word = NewMemory<uint32_t>(&cuda, 1);
  const auto a = NewStream(&cuda), b = NewStream(&cuda), c = NewStream(&cuda);
  Gate never;
  const auto e = NewEvent(&cuda);
  std::atomic<bool> ran{false};
  cuda.StreamWait32(a, word, 1);
  cuda.EventRecord(e, a);
  cuda.StreamWaitEvent(b, e);
  never.Hold(&cuda, c);
  for (const auto s : {a, b, c}) cuda.Enqueue(s, [&] { ran = true; });
  CHECK(cuda.StreamDestroy(a) == kCudaSuccess);
  CHECK(cuda.EventQuery(e) == kCudaNotReady);
}

TEST_CASE("fake cuda: the nth call of a method fails, once") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda);
  cuda.FailCall("StreamQuery", 2, kCudaUnknown);
  cuda.FailCall("Malloc", 1, kCudaOutOfMemory);
  CHECK(cuda.StreamQuery(s) == kCudaSuccess);
  CHECK(cuda.StreamQuery(s) == kCudaUnknown);
  CHECK(cuda.StreamQuery(s) == kCudaSuccess);
  CHECK(NewMemory<char>(&cuda, 1) == nullptr);
  CHECK(NewMemory<char>(&cuda, 1) != nullptr);
  CHECK(cuda.calls("StreamQuery") == 3);
  CHECK(cuda.calls("EventQuery") == 0);
  CHECK(std::string(cuda.ErrorName(kCudaUnknown)) == "cudaErrorUnknown");
  CHECK(std::string(cuda.ErrorText(12345)) == "unrecognized error code");
}

TEST_CASE("fake cuda: after a sticky error every call says so, and nothing blocks or runs any more") {
  FakeCuda cuda;
  const auto s = NewStream(&cuda), other = NewStream(&cuda);
  const auto e = NewEvent(&cuda);
  auto* const word = NewMemory<uint32_t>(&cuda, 1);
  std::atomic<bool> ran{false};
  cuda.StreamWait32(s, word, 1);
  cuda.Enqueue(s, [&] { ran = true; });
  cuda.EventRecord(e, s);
  std::atomic<int> code{-1};
  std::thread waiter([&] { code = cuda.StreamSynchronize(s); });
  const bool called = Eventually([&] { return cuda.calls("StreamSynchronize") == 1; });
  const int early = code;
  cuda.Enqueue(other, [&] { cuda.BreakDevice(kCudaIllegalAddress); });
  waiter.join();
  CHECK(called);
  CHECK(early == -1);
  CHECK(code == kCudaIllegalAddress);
  CHECK(cuda.ended());
  CHECK(cuda.EventQuery(e) == kCudaIllegalAddress);
  CHECK(cuda.StreamQuery(s) == kCudaIllegalAddress);
  CHECK(cuda.Free(word) == kCudaIllegalAddress);
  CHECK(cuda.Enqueue(s, [&] { ran = true; }) == kCudaIllegalAddress);
  CudaStreamHandle none = nullptr;
  CHECK(cuda.StreamCreate(0, &none) == kCudaIllegalAddress);
  cuda.BreakDevice(kCudaAssert);  // the first one stays
  CHECK(cuda.SetDevice(0) == kCudaIllegalAddress);
  CHECK_FALSE(ran);
}

TEST_CASE("fake cuda: a call that would block for ever breaks the device instead") {
  FakeCuda::Options options;
  options.hang_limit = std::chrono::milliseconds(20);
  FakeCuda cuda(options);
  const auto s = NewStream(&cuda);
  auto* const word = NewMemory<uint32_t>(&cuda, 1);
  cuda.StreamWait32(s, word, 1);
  CHECK(cuda.Free(word) == kCudaLaunchTimeout);
  CHECK(cuda.StreamQuery(s) == kCudaLaunchTimeout);
}

TEST_CASE("fake cuda: devices are as the options say") {
  FakeCuda::Options options;
  options.device_count = 2;
  options.name = "Some GPU";
  options.sm_count = 10;
  options.memory_bytes = 1 << 20;
  FakeCuda two(options);
  int n = 0, can = -1;
  CHECK(two.DeviceCount(&n) == kCudaSuccess);
  CHECK(n == 2);
  CudaDeviceInfo info[2];
  CHECK(two.GetDeviceInfo(0, &info[0]) == kCudaSuccess);
  CHECK(two.GetDeviceInfo(1, &info[1]) == kCudaSuccess);
  CHECK(std::string(info[0].name) == "Some GPU");
  CHECK(info[0].sm_count == 10);
  CHECK(info[0].total_bytes == 1 << 20);
  CHECK(std::string(info[0].pci_bus_id) != info[1].pci_bus_id);
  CHECK(std::memcmp(info[0].uuid, info[1].uuid, 16) != 0);
  CHECK(two.GetDeviceInfo(2, &info[1]) == kCudaInvalidDevice);
  CHECK(two.SetDevice(2) == kCudaInvalidDevice);
  CHECK(two.CanAccessPeer(0, 1, &can) == kCudaSuccess);
  CHECK(can == 1);
  // Memory is of the thread's device.
  uint64_t free_bytes = 0, total = 0;
  std::thread([&] {
    CHECK(two.SetDevice(1) == kCudaSuccess);
    CHECK(NewMemory<char>(&two, 1 << 20) != nullptr);
    CHECK(two.MemInfo(&free_bytes, &total) == kCudaSuccess);
  }).join();
  CHECK(free_bytes == 0);
  CHECK(two.MemInfo(&free_bytes, &total) == kCudaSuccess);
  CHECK(free_bytes == total);

  options.device_count = 0;
  FakeCuda none(options);
  CHECK(none.DeviceCount(&n) == kCudaNoDevice);
  CHECK(n == 0);
  CudaStreamHandle s = nullptr;
  CHECK(none.StreamCreate(0, &s) == kCudaNoDevice);

  options.device_count = 1;
  options.driver_version = 0;
  options.peer_access = false;
  FakeCuda old(options);
  CHECK(old.DeviceCount(&n) == kCudaInsufficientDriver);
  int driver = -1, runtime = -1;
  CHECK(old.Versions(&driver, &runtime) == kCudaSuccess);
  CHECK(driver == 0);
  CHECK(runtime == 13000);
}

}  // namespace
}  // namespace weft
