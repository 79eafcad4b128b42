#include <catch2/catch.hpp>
#include <cstring>

#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_test_util.h"

namespace weft {
namespace {

struct Streams {
  explicit Streams(FakeCuda* cuda) : a(NewStream(cuda)), b(NewStream(cuda)), c(NewStream(cuda)) {}
  CudaStreamHandle a, b, c;
};

// Ends the capture, instantiates, forgets the graph.
CudaGraphExecHandle Finish(FakeCuda* cuda, CudaStreamHandle s) {
  CudaGraphHandle graph = nullptr;
  CudaGraphExecHandle exec = nullptr;
  REQUIRE(cuda->EndCapture(s, &graph) == kCudaSuccess);
  REQUIRE(cuda->GraphInstantiate(graph, &exec) == kCudaSuccess);
  REQUIRE(cuda->GraphDestroy(graph) == kCudaSuccess);
  CHECK(cuda->GraphUpload(exec, s) == kCudaSuccess);
  return exec;
}

TEST_CASE("fake cuda graph: three streams are captured, nothing runs before a launch, and each launch runs all in order") {
  for (const bool parallel : {true, false}) {
    FakeCuda::Options options;
    options.parallel_graphs = parallel;
    FakeCuda cuda(options);
    Streams s(&cuda);
    int64_t* const x = NewMemory<int64_t>(&cuda, 4);
    std::memset(x, 0, 32);
    const auto fork = NewEvent(&cuda), b_done = NewEvent(&cuda), c_done = NewEvent(&cuda);
    REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
    cuda.Enqueue(s.a, [x] { ++x[0]; });
    CHECK(cuda.EventRecord(fork, s.a) == kCudaSuccess);
    CHECK(cuda.StreamWaitEvent(s.b, fork) == kCudaSuccess);
    CHECK(cuda.StreamWaitEvent(s.c, fork) == kCudaSuccess);
    cuda.Enqueue(s.b, [x] { x[1] = x[0] * 10; });
    cuda.Enqueue(s.c, [x] { x[2] = x[0] * 100; });
    cuda.Enqueue(s.b, [x] { x[1] += 1; });
    CHECK(cuda.EventRecord(b_done, s.b) == kCudaSuccess);
    CHECK(cuda.StreamWaitEvent(s.c, b_done) == kCudaSuccess);
    cuda.Enqueue(s.c, [x] { x[2] += x[1]; });
    CHECK(cuda.EventRecord(c_done, s.c) == kCudaSuccess);
    CHECK(cuda.StreamWaitEvent(s.a, c_done) == kCudaSuccess);
    CHECK(cuda.MemcpyAsync(x + 3, x + 2, 8, s.a) == kCudaSuccess);
    const auto exec = Finish(&cuda, s.a);
    CHECK(x[0] == 0);
    CHECK(cuda.StreamQuery(s.b) == kCudaSuccess);  // out of the capture again
    for (int64_t i = 1; i <= 200; ++i) {
      REQUIRE(cuda.GraphLaunch(exec, i % 2 == 0 ? s.a : s.b) == kCudaSuccess);
      if (i % 20 != 0) continue;
      REQUIRE(cuda.StreamSynchronize(s.a) == kCudaSuccess);
      CHECK(x[0] == i);
      CHECK(x[3] == i * 110 + 1);
    }
    CHECK(cuda.GraphExecDestroy(exec) == kCudaSuccess);
    CHECK(cuda.GraphLaunch(exec, s.a) == kCudaInvalidValue);
    CHECK(cuda.books().graphs + cuda.books().graph_execs == 0);
  }
}

TEST_CASE("fake cuda graph: branches of a graph run at the same time, launches of one graph one after another") {
  FakeCuda cuda;
  Streams s(&cuda);
  auto* const word = NewMemory<uint32_t>(&cuda, 1);
  *word = 0;
  const auto fork = NewEvent(&cuda), join = NewEvent(&cuda);
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  cuda.EventRecord(fork, s.a);
  // Captured first, and held until the other branch has written.
  CHECK(cuda.StreamWait32(s.a, word, 1) == kCudaSuccess);
  cuda.StreamWaitEvent(s.b, fork);
  CHECK(cuda.StreamWrite32(s.b, word, 1) == kCudaSuccess);
  cuda.EventRecord(join, s.b);
  cuda.StreamWaitEvent(s.a, join);
  CHECK(cuda.StreamWrite32(s.a, word, 0) == kCudaSuccess);
  const auto exec = Finish(&cuda, s.a);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(cuda.GraphLaunch(exec, s.a) == kCudaSuccess);
    REQUIRE(cuda.GraphLaunch(exec, s.c) == kCudaSuccess);
  }
  CHECK(cuda.StreamSynchronize(s.a) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s.c) == kCudaSuccess);
  CHECK(*word == 0);
}

TEST_CASE("fake cuda graph: a stream that is not joined back is told at the end") {
  FakeCuda cuda;
  Streams s(&cuda);
  const auto e = NewEvent(&cuda);
  CudaGraphHandle graph = &cuda;
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  cuda.EventRecord(e, s.a);
  cuda.StreamWaitEvent(s.b, e);
  cuda.Enqueue(s.b, [] {});
  cuda.EventRecord(e, s.b);
  cuda.StreamWaitEvent(s.a, e);
  cuda.Enqueue(s.b, [] {});  // after what was joined
  CHECK(cuda.EndCapture(s.a, &graph) == kCudaCaptureUnjoined);
  CHECK(graph == nullptr);
  // All streams are out of it, and work.
  std::atomic<int> ran{0};
  for (const auto stream : {s.a, s.b}) {
    cuda.Enqueue(stream, [&] { ++ran; });
    CHECK(cuda.StreamSynchronize(stream) == kCudaSuccess);
  }
  CHECK(ran == 2);
  CHECK(cuda.EndCapture(s.a, &graph) == kCudaIllegalState);
}

TEST_CASE("fake cuda graph: asking for captured work, or what may wait for the device, spoils the capture") {
  FakeCuda cuda;
  Streams s(&cuda);
  const auto captured = NewEvent(&cuda), plain = NewEvent(&cuda);
  void* host = nullptr;
  REQUIRE(cuda.HostAlloc(10, &host) == kCudaSuccess);
  cuda.EventRecord(plain, s.c);
  char outside[10];
  void* p = nullptr;
  struct Case {
    const char* name;
    std::function<int()> call;
    int code;
  };
  const Case cases[] = {
      {"StreamQuery", [&] { return cuda.StreamQuery(s.a); }, kCudaCaptureUnsupported},
      {"StreamSynchronize", [&] { return cuda.StreamSynchronize(s.a); }, kCudaCaptureUnsupported},
      {"StreamSynchronize of another", [&] { return cuda.StreamSynchronize(s.c); }, kCudaCaptureUnsupported},
      {"StreamDestroy", [&] { return cuda.StreamDestroy(s.a); }, kCudaCaptureUnsupported},
      {"EventQuery", [&] { return cuda.EventQuery(captured); }, kCudaCapturedEvent},
      {"EventQuery of another", [&] { return cuda.EventQuery(plain); }, kCudaCaptureUnsupported},
      {"Malloc", [&] { return cuda.Malloc(10, &p); }, kCudaCaptureUnsupported},
      {"Free", [&] { return cuda.Free(nullptr); }, kCudaCaptureUnsupported},
      {"HostAlloc", [&] { return cuda.HostAlloc(10, &p); }, kCudaCaptureUnsupported},
      {"HostFree", [&] { return cuda.HostFree(host); }, kCudaCaptureUnsupported},
      {"HostRegister", [&] { return cuda.HostRegister(outside, 10); }, kCudaCaptureUnsupported},
      {"a wait across the border", [&] { return cuda.StreamWaitEvent(s.a, plain); }, kCudaCaptureIsolation},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    CudaGraphHandle graph = nullptr;
    REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
    CHECK(cuda.BeginCapture(s.a) == kCudaIllegalState);
    CHECK(cuda.Enqueue(s.a, [] {}) == kCudaSuccess);
    CHECK(cuda.EventRecord(captured, s.a) == kCudaSuccess);
    CHECK(c.call() == c.code);
    CHECK(cuda.Enqueue(s.a, [] {}) == kCudaCaptureInvalidated);
    CHECK(cuda.EventRecord(captured, s.a) == kCudaCaptureInvalidated);
    CHECK(cuda.StreamWaitEvent(s.b, captured) == kCudaCaptureInvalidated);
    CHECK(cuda.EndCapture(s.a, &graph) == kCudaCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(cuda.StreamWaitEvent(s.b, captured) == kCudaCapturedEvent);  // of a capture that has ended
  }
  // What is queued elsewhere, and another thread, are not touched.
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  std::thread([&] {
    CHECK(cuda.StreamSynchronize(s.c) == kCudaSuccess);
    CHECK(cuda.EventQuery(plain) == kCudaSuccess);
  }).join();
  Finish(&cuda, s.a);
}

TEST_CASE("fake cuda graph: two captures do not mix, and only the origin ends one") {
  FakeCuda cuda;
  Streams s(&cuda);
  const auto e = NewEvent(&cuda);
  CudaGraphHandle graph = nullptr;
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  REQUIRE(cuda.BeginCapture(s.b) == kCudaSuccess);
  cuda.EventRecord(e, s.a);
  CHECK(cuda.StreamWaitEvent(s.b, e) == kCudaCaptureMerge);
  CHECK(cuda.EndCapture(s.b, &graph) == kCudaCaptureInvalidated);
  CHECK(cuda.EndCapture(s.a, &graph) == kCudaCaptureInvalidated);
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  cuda.EventRecord(e, s.a);
  CHECK(cuda.StreamWaitEvent(s.b, e) == kCudaSuccess);
  CHECK(cuda.EndCapture(s.b, &graph) == kCudaCaptureUnmatched);
  CHECK(cuda.EndCapture(s.a, &graph) == kCudaCaptureInvalidated);
}

TEST_CASE("fake cuda graph: memory of the pool that is captured lives with the graph; a graph can be part of another") {
  FakeCuda cuda;
  Streams s(&cuda);
  int* const total = NewMemory<int>(&cuda, 1);
  *total = 0;
  void *scratch = nullptr, *foreign = nullptr;
  REQUIRE(cuda.MallocAsync(8, s.c, &foreign) == kCudaSuccess);
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  REQUIRE(cuda.MallocAsync(4, s.a, &scratch) == kCudaSuccess);
  CHECK(cuda.MemsetAsync(scratch, 1, 4, s.a) == kCudaSuccess);
  cuda.Enqueue(s.a, [=] { *total += *static_cast<int*>(scratch) & 0xff; });
  CHECK(cuda.FreeAsync(scratch, s.a) == kCudaSuccess);
  const auto inner = Finish(&cuda, s.a);
  REQUIRE(cuda.BeginCapture(s.b) == kCudaSuccess);
  CHECK(cuda.GraphLaunch(inner, s.b) == kCudaSuccess);
  CHECK(cuda.GraphLaunch(inner, s.b) == kCudaSuccess);
  const auto outer = Finish(&cuda, s.b);
  CHECK(cuda.GraphLaunch(inner, s.a) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s.a) == kCudaSuccess);
  CHECK(cuda.GraphExecDestroy(inner) == kCudaSuccess);
  CHECK(cuda.GraphLaunch(outer, s.a) == kCudaSuccess);
  CHECK(cuda.StreamSynchronize(s.a) == kCudaSuccess);
  CHECK(*total == 3);
  CHECK(cuda.books().allocations == 3);
  CHECK(cuda.GraphExecDestroy(outer) == kCudaSuccess);
  // Also the stream has let go of it.
  CHECK(cuda.books().allocations == 2);
  CudaGraphHandle graph = nullptr;
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  CHECK(cuda.FreeAsync(foreign, s.a) == kCudaInvalidValue);
  CHECK(cuda.EndCapture(s.a, &graph) == kCudaCaptureInvalidated);
}

TEST_CASE("fake cuda graph: a graph that waits for ever ends with the device") {
  FakeCuda cuda;
  Streams s(&cuda);
  auto* const word = NewMemory<uint32_t>(&cuda, 1);
  const auto fork = NewEvent(&cuda), join = NewEvent(&cuda);
  REQUIRE(cuda.BeginCapture(s.a) == kCudaSuccess);
  cuda.EventRecord(fork, s.a);
  cuda.StreamWaitEvent(s.b, fork);
  cuda.StreamWait32(s.b, word, 1);
  cuda.EventRecord(join, s.b);
  cuda.StreamWaitEvent(s.a, join);
  cuda.Enqueue(s.a, [] { FAIL("ran"); });
  const auto exec = Finish(&cuda, s.a);
  REQUIRE(cuda.GraphLaunch(exec, s.a) == kCudaSuccess);
  CHECK(cuda.StreamQuery(s.a) == kCudaNotReady);
  cuda.BreakDevice(kCudaLaunchFailure);
  CHECK(cuda.StreamSynchronize(s.a) == kCudaLaunchFailure);
}

}  // namespace
}  // namespace weft
