#include "common/device/cuda/fake/fake_nccl.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/device/cuda/fake/fake_nccl_test_util.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "common/tensor/dtype.h"

namespace weft {
namespace {

TEST_CASE("fake nccl: a communicator is in progress until all ranks are there, and is not used before") {
  RankSet set(2, AtOnce());
  NcclId id;
  REQUIRE(set[0].nccl().GetUniqueId(&id) == kNcclSuccess);
  NcclCommHandle a = nullptr, b = nullptr;
  REQUIRE(set[0].nccl().CommInit(&a, 2, id, 0, 8) == kNcclInProgress);
  CHECK(set[0].nccl().max_ctas(a) == 8);
  int state = -1;
  for (int i = 0; i < 100; ++i) {
    CHECK(set[0].nccl().GetAsyncError(a, &state) == kNcclSuccess);
    CHECK(state == kNcclInProgress);
  }
  float* const x = NewMemory<float>(&set[0].cuda(), 1);
  CHECK(set[0].nccl().Send(x, 1, kNcclFloat32, 1, a, set[0].stream) == kNcclInvalidArgument);
  CHECK(std::string(set[0].nccl().LastError(nullptr)).find("before its last call") != std::string::npos);
  REQUIRE(set[1].nccl().CommInit(&b, 2, id, 1, 8) == kNcclInProgress);
  CHECK(set[0].Becomes(a, kNcclSuccess));
  CHECK(set[1].Becomes(b, kNcclSuccess));
  CHECK(set[0].nccl().CommAbort(a) == kNcclSuccess);
  CHECK(set[0].nccl().CommAbort(a) == kNcclInvalidArgument);
  CHECK(set[0].nccl().GetAsyncError(a, &state) == kNcclInvalidArgument);
  CHECK(set[0].nccl().comms() == 0);
  CHECK(set[0].nccl().max_ctas(a) == 8);
  CHECK(set[0].nccl().max_ctas(&set) == -1);
}

TEST_CASE("fake nccl: a peer that never joins leaves it in progress, and it can be aborted") {
  RankSet set(1, AtOnce());
  NcclId id;
  REQUIRE(set[0].nccl().GetUniqueId(&id) == kNcclSuccess);
  NcclCommHandle c = nullptr, d = nullptr;
  REQUIRE(set[0].nccl().CommInit(&c, 3, id, 0, 1) == kNcclInProgress);
  REQUIRE(set[0].nccl().CommInit(&d, 3, id, 2, 1) == kNcclInProgress);  // one comes, one does not
  int state = -1;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  while (std::chrono::steady_clock::now() < until) {
    CHECK(set[0].nccl().GetAsyncError(c, &state) == kNcclSuccess);
    REQUIRE(state == kNcclInProgress);
    CHECK(set[0].nccl().GetAsyncError(d, &state) == kNcclSuccess);
    REQUIRE(state == kNcclInProgress);
  }
  CHECK(set[0].nccl().CommAbort(c) == kNcclSuccess);
  CHECK(set[0].nccl().comms() == 1);  // the other is aborted at the end
}

TEST_CASE("fake nccl: wrong ids, ranks and doubles are refused") {
  RankSet set(1, AtOnce());
  FakeNccl& nccl = set[0].nccl();
  NcclId id, rubbish{};
  REQUIRE(nccl.GetUniqueId(&id) == kNcclSuccess);
  NcclCommHandle c = nullptr, d = nullptr;
  CHECK(nccl.CommInit(&c, 2, rubbish, 0, 1) == kNcclInvalidArgument);
  CHECK(nccl.CommInit(&c, 2, id, 2, 1) == kNcclInvalidArgument);
  CHECK(nccl.CommInit(&c, 0, id, 0, 1) == kNcclInvalidArgument);
  REQUIRE(nccl.CommInit(&c, 3, id, 1, 1) == kNcclInProgress);
  REQUIRE(nccl.CommInit(&d, 3, id, 1, 1) == kNcclInProgress);
  int c_state = 0, d_state = 0;
  CHECK(Eventually([&] {
    nccl.GetAsyncError(c, &c_state);
    nccl.GetAsyncError(d, &d_state);
    return c_state == kNcclInvalidUsage || d_state == kNcclInvalidUsage;
  }));
  NcclCommHandle e = nullptr, f = nullptr;
  REQUIRE(nccl.GetUniqueId(&id) == kNcclSuccess);
  REQUIRE(nccl.CommInit(&e, 2, id, 0, 1) == kNcclInProgress);
  REQUIRE(nccl.CommInit(&f, 3, id, 2, 1) == kNcclInProgress);
  CHECK(set[0].Becomes(e, kNcclInvalidUsage));
  CHECK(std::string(nccl.LastError(e)).find("rank 2 of 3") != std::string::npos);
}

TEST_CASE("fake nccl: a send and a receive move data; neither is done without the other") {
  RankSet set(2, AtOnce());
  set.Join(16);
  constexpr size_t kBytes = 3 << 20;
  char* const from = NewMemory<char>(&set[0].cuda(), kBytes);
  char* const to = NewMemory<char>(&set[1].cuda(), kBytes);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<char>(i * 7);
  const auto sent = NewEvent(&set[0].cuda());
  REQUIRE(set[0].nccl().Send(from, kBytes, kNcclInt8, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  REQUIRE(set[0].cuda().EventRecord(sent, set[0].stream) == kCudaSuccess);
  char* const small = NewMemory<char>(&set[0].cuda(), 1);
  REQUIRE(set[0].nccl().Send(small, 1, kNcclInt8, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  for (int i = 0; i < 1000; ++i) REQUIRE(set[0].cuda().EventQuery(sent) == kCudaNotReady);
  REQUIRE(set[1].nccl().Recv(to, kBytes, kNcclInt8, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  CHECK(set[1].cuda().StreamSynchronize(set[1].stream) == kCudaSuccess);
  CHECK(std::memcmp(from, to, kBytes) == 0);
  CHECK(Eventually([&] { return set[0].cuda().EventQuery(sent) == kCudaSuccess; }));
  // Even one byte waits for its receiver.
  CHECK(set[0].cuda().StreamQuery(set[0].stream) == kCudaNotReady);
  *small = 5;
  REQUIRE(set[1].nccl().Recv(to, 1, kNcclUint8, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  CHECK(set.Synchronize());
  CHECK(*to == 5);
  CHECK(set[0].nccl().calls("Send") == 2);
}

TEST_CASE("fake nccl: without a group two sends towards each other wait for ever; in a group with the receives they do not") {
  RankSet set(2, AtOnce());
  set.Join(1);
  constexpr size_t kN = 1 << 20;
  int *from[2], *to[2];
  for (int r = 0; r < 2; ++r) {
    from[r] = NewMemory<int>(&set[r].cuda(), kN);
    to[r] = NewMemory<int>(&set[r].cuda(), kN);
    for (size_t i = 0; i < kN; ++i) from[r][i] = static_cast<int>(i) * (r + 1);
  }
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < 2; ++r) {
      FakeNccl& nccl = set[r].nccl();
      REQUIRE(nccl.GroupStart() == kNcclSuccess);
      REQUIRE(nccl.GroupStart() == kNcclSuccess);
      REQUIRE(nccl.Send(from[r], kN, kNcclInt32, 1 - r, set[r].comm, set[r].stream) == kNcclSuccess);
      REQUIRE(nccl.GroupEnd() == kNcclSuccess);
      REQUIRE(nccl.Recv(to[r], kN, kNcclInt32, 1 - r, set[r].comm, set[r].stream) == kNcclSuccess);
      CHECK(set[r].cuda().StreamQuery(set[r].stream) == kCudaSuccess);  // nothing is put before the end
      REQUIRE(nccl.GroupEnd() == kNcclSuccess);
    }
    REQUIRE(set.Synchronize());
  }
  for (int r = 0; r < 2; ++r) CHECK(std::memcmp(to[r], from[1 - r], kN * sizeof(int)) == 0);
  for (int r = 0; r < 2; ++r) {
    REQUIRE(set[r].nccl().Send(from[r], 1, kNcclInt32, 1 - r, set[r].comm, set[r].stream) == kNcclSuccess);
    REQUIRE(set[r].nccl().Recv(to[r], 1, kNcclInt32, 1 - r, set[r].comm, set[r].stream) == kNcclSuccess);
  }
  for (int r = 0; r < 2; ++r) REQUIRE(Eventually([&] { return set[r].cuda().State().find("Send runs") != std::string::npos; }));
  CHECK(set[0].nccl().GroupEnd() == kNcclInvalidUsage);
}

TEST_CASE("fake nccl: abort ends what is under way and what is behind it, and the peer's stays as it is") {
  RankSet set(2, AtOnce());
  set.Join(1);
  int* const x = NewMemory<int>(&set[0].cuda(), 4);
  int* const y = NewMemory<int>(&set[1].cuda(), 4);
  const int before = x[0];
  std::atomic<bool> ran{false};
  REQUIRE(set[0].nccl().Recv(x, 4, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  REQUIRE(set[0].nccl().AllReduce(x, x, 4, kNcclInt32, kNcclSum, set[0].comm, set[0].stream) == kNcclSuccess);
  set[0].cuda().Enqueue(set[0].stream, [&] { ran = true; });
  REQUIRE(set[1].nccl().Recv(y, 4, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  CHECK(set[0].cuda().StreamQuery(set[0].stream) == kCudaNotReady);
  CHECK(set[0].nccl().CommAbort(set[0].comm) == kNcclSuccess);
  CHECK(set[0].cuda().StreamSynchronize(set[0].stream) == kCudaSuccess);
  CHECK(ran);
  CHECK(x[0] == before);
  for (int i = 0; i < 1000; ++i) REQUIRE(set[1].cuda().StreamQuery(set[1].stream) == kCudaNotReady);
  int state = -1;
  CHECK(set[1].nccl().GetAsyncError(set[1].comm, &state) == kNcclSuccess);
  CHECK(state == kNcclSuccess);
  CHECK(set[1].nccl().CommAbort(set[1].comm) == kNcclSuccess);
  CHECK(set[1].cuda().StreamSynchronize(set[1].stream) == kCudaSuccess);
}

TEST_CASE("fake nccl: a broken device ends what is under way") {
  RankSet set(2, AtOnce());
  set.Join(1);
  int* const x = NewMemory<int>(&set[0].cuda(), 1);
  REQUIRE(set[0].nccl().Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  set[0].cuda().BreakDevice(kCudaEccUncorrectable);
  CHECK(set[0].cuda().StreamSynchronize(set[0].stream) == kCudaEccUncorrectable);
  CHECK(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclUnhandledCudaError);
  CHECK(set[0].nccl().CommAbort(set[0].comm) == kNcclSuccess);
}

TEST_CASE("fake nccl: ranks that disagree on sizes or types are told, both") {
  RankSet set(2, AtOnce());
  int *x = NewMemory<int>(&set[0].cuda(), 8), *y = NewMemory<int>(&set[1].cuda(), 8);
  SECTION("sizes") {
    set.Join(1);
    REQUIRE(set[0].nccl().Send(x, 2, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
    REQUIRE(set[1].nccl().Recv(y, 4, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  }
  SECTION("types") {
    set.Join(1);
    REQUIRE(set[0].nccl().AllReduce(x, x, 4, kNcclInt32, kNcclSum, set[0].comm, set[0].stream) == kNcclSuccess);
    REQUIRE(set[1].nccl().AllReduce(y, y, 4, kNcclFloat32, kNcclSum, set[1].comm, set[1].stream) == kNcclSuccess);
  }
  SECTION("kinds") {
    set.Join(1);
    REQUIRE(set[0].nccl().AllReduce(x, x, 4, kNcclInt32, kNcclSum, set[0].comm, set[0].stream) == kNcclSuccess);
    REQUIRE(set[1].nccl().AllReduce(y, y, 4, kNcclInt32, kNcclMax, set[1].comm, set[1].stream) == kNcclSuccess);
  }
  for (int r = 0; r < 2; ++r) {
    CHECK(set[r].Becomes(set[r].comm, kNcclInvalidUsage));
    CHECK(std::string(set[r].nccl().LastError(set[r].comm)).find("where rank " + std::to_string(1 - r)) != std::string::npos);
    CHECK(set[r].nccl().Send(r == 0 ? x : y, 1, kNcclInt32, 1 - r, set[r].comm, set[r].stream) == kNcclInvalidUsage);
    CHECK(set[r].cuda().StreamQuery(set[r].stream) == kCudaNotReady);
  }
  for (int r = 0; r < 2; ++r) CHECK(set[r].nccl().CommAbort(set[r].comm) == kNcclSuccess);
  CHECK(set.Synchronize());
}

TEST_CASE("fake nccl: arguments are checked, and a refused call spoils its communicator") {
  RankSet set(2, AtOnce());
  FakeNccl& nccl = set[0].nccl();
  const auto s = set[0].stream;
  int* const x = NewMemory<int>(&set[0].cuda(), 4);
  int outside[4];
  const auto refused = [&](int code, const std::function<int()>& call) {
    set.Join(1);
    CHECK(call() == code);
    CHECK(set[0].Becomes(set[0].comm, code));
    CHECK(nccl.Send(x, 1, kNcclInt32, 1, set[0].comm, s) == code);
    CHECK(set[0].cuda().StreamSynchronize(s) == kCudaSuccess);  // nothing was put there
    CHECK(nccl.CommAbort(set[0].comm) == kNcclSuccess);
  };
  refused(kNcclInvalidArgument, [&] { return nccl.Send(outside, 4, kNcclInt32, 1, set[0].comm, s); });
  refused(kNcclInvalidArgument, [&] { return nccl.Send(x, 5, kNcclInt32, 1, set[0].comm, s); });
  refused(kNcclInvalidArgument, [&] { return nccl.AllGather(x, x, 4, kNcclInt32, set[0].comm, s); });  // two times 4 do not fit
  refused(kNcclInvalidArgument, [&] { return nccl.Send(x, 4, 77, 1, set[0].comm, s); });
  refused(kNcclInvalidArgument, [&] { return nccl.Send(x, 4, kNcclInt32, 2, set[0].comm, s); });
  refused(kNcclInvalidArgument, [&] { return nccl.AllReduce(x, x, 4, kNcclInt32, 9, set[0].comm, s); });
  refused(kNcclUnhandledCudaError, [&] { return nccl.Send(x, 4, kNcclInt32, 1, set[0].comm, nullptr); });
  refused(kNcclInvalidUsage, [&] { return nccl.Send(x, 1, kNcclInt32, 0, set[0].comm, s); });  // to oneself: only with the receive
  refused(kNcclInvalidArgument, [&] {
    CHECK(nccl.GroupStart() == kNcclSuccess);
    CHECK(nccl.Send(x, 4, kNcclInt32, 1, set[0].comm, s) == kNcclSuccess);
    CHECK(nccl.Recv(x, 4, kNcclInt32, 5, set[0].comm, s) == kNcclInvalidArgument);
    return nccl.GroupEnd();
  });
  CHECK(nccl.Send(x, 4, kNcclInt32, 1, nullptr, s) == kNcclInvalidArgument);
  set.Join(1);
  x[0] = 8;
  REQUIRE(nccl.GroupStart() == kNcclSuccess);
  nccl.Recv(x + 1, 1, kNcclInt32, 0, set[0].comm, s);
  nccl.Send(x, 1, kNcclInt32, 0, set[0].comm, s);
  CHECK(nccl.GroupEnd() == kNcclSuccess);
  CHECK(set[0].cuda().StreamSynchronize(s) == kCudaSuccess);
  CHECK(x[1] == 8);
}

TEST_CASE("fake nccl: faults are injected") {
  RankSet set(2, AtOnce());
  set.Join(1);
  FakeNccl& nccl = set[0].nccl();
  int* const x = NewMemory<int>(&set[0].cuda(), 1);
  nccl.FailCall("Recv", 2, kNcclSystemError);
  CHECK(nccl.Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  CHECK(nccl.Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSystemError);
  CHECK(std::string(nccl.LastError(set[0].comm)) == "Recv was told to fail");
  CHECK(set[0].Becomes(set[0].comm, kNcclSystemError));
  CHECK(set[0].cuda().StreamQuery(set[0].stream) == kCudaNotReady);
  CHECK(nccl.CommAbort(set[0].comm) == kNcclSuccess);

  set.Join(1);
  nccl.FailCall("GroupEnd", 1, kNcclInternalError);
  CHECK(nccl.GroupStart() == kNcclSuccess);
  CHECK(nccl.Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  CHECK(nccl.GroupEnd() == kNcclInternalError);
  CHECK(nccl.GroupEnd() == kNcclInvalidUsage);
  CHECK(set[0].cuda().StreamSynchronize(set[0].stream) == kCudaSuccess);
  CHECK(set[0].Becomes(set[0].comm, kNcclInternalError));

  set.Join(1);
  int state = -1;
  CHECK(nccl.Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  CHECK(nccl.GetAsyncError(set[0].comm, &state) == kNcclSuccess);
  CHECK(state == kNcclSuccess);
  nccl.SetAsyncError(set[0].comm, kNcclRemoteError);
  CHECK(nccl.GetAsyncError(set[0].comm, &state) == kNcclSuccess);
  CHECK(state == kNcclRemoteError);
  CHECK(nccl.Recv(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclRemoteError);
  CHECK(set[0].cuda().StreamQuery(set[0].stream) == kCudaNotReady);
  CHECK(nccl.calls("Recv") == 5);
  int version = 0;
  CHECK(nccl.Version(&version) == kNcclSuccess);
  CHECK(version == 22803);
}

TEST_CASE("fake nccl: the first use of a connection can take its time, and only then is the work on its stream") {
  FakePlugin::Options options = AtOnce();
  options.nccl.connect_polls = 3;
  RankSet set(2, options);
  set.Join(1);
  int *x = NewMemory<int>(&set[0].cuda(), 1), *y = NewMemory<int>(&set[1].cuda(), 1);
  *x = 6;
  REQUIRE(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclInProgress);
  CHECK(set[0].cuda().calls("Enqueue") == 0);
  REQUIRE(set[1].nccl().GroupStart() == kNcclSuccess);
  REQUIRE(set[1].nccl().Recv(y, 1, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  REQUIRE(set[1].nccl().GroupEnd() == kNcclInProgress);
  int state = -1;
  for (int i = 0; i < 4; ++i) {
    for (int r = 0; r < 2; ++r) {
      REQUIRE(set[r].nccl().GetAsyncError(set[r].comm, &state) == kNcclSuccess);
      CHECK(state == (i < 3 ? kNcclInProgress : kNcclSuccess));
      CHECK(set[r].cuda().calls("Enqueue") == (i < 3 ? 0 : 1));
    }
  }
  CHECK(set.Synchronize());
  CHECK(*y == 6);
  // Connected: at once.
  CHECK(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
  CHECK(set[1].nccl().Recv(y, 1, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclSuccess);
  CHECK(set.Synchronize());
  CHECK(set[0].nccl().AllReduce(x, x, 1, kNcclInt32, kNcclSum, set[0].comm, set[0].stream) == kNcclInProgress);
  CHECK(set[1].nccl().AllReduce(y, y, 1, kNcclInt32, kNcclSum, set[1].comm, set[1].stream) == kNcclInProgress);
  for (int r = 0; r < 2; ++r) CHECK(set[r].Becomes(set[r].comm, kNcclSuccess));
  CHECK(set.Synchronize());
  CHECK(*x == 12);
}

TEST_CASE("fake nccl: to use a communicator before its last call has succeeded spoils it; what was under way goes on") {
  FakePlugin::Options options;
  options.nccl.launch_polls = 1;
  RankSet set(2, options);
  set.Join(1);
  int *x = NewMemory<int>(&set[0].cuda(), 1), *y = NewMemory<int>(&set[1].cuda(), 1);
  *x = 4;
  REQUIRE(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclInProgress);
  CHECK(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclInvalidArgument);
  CHECK(set[0].Becomes(set[0].comm, kNcclInvalidArgument));
  REQUIRE(set[1].nccl().Recv(y, 1, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclInProgress);
  CHECK(set[1].Becomes(set[1].comm, kNcclSuccess));
  CHECK(set.Synchronize());
  CHECK(*y == 4);
}

TEST_CASE("fake nccl: every launch can take its time: an event that is recorded before it has succeeded comes too early") {
  FakePlugin::Options options;
  options.nccl.launch_polls = 2;
  RankSet set(2, options);
  set.Join(1);
  int *x = NewMemory<int>(&set[0].cuda(), 1), *y = NewMemory<int>(&set[1].cuda(), 1);
  const auto early = NewEvent(&set[0].cuda()), late = NewEvent(&set[0].cuda());
  for (int round = 0; round < 3; ++round) {
    *x = round;
    REQUIRE(set[0].nccl().Send(x, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclInProgress);
    REQUIRE(set[0].cuda().EventRecord(early, set[0].stream) == kCudaSuccess);
    REQUIRE(set[0].Becomes(set[0].comm, kNcclSuccess));
    REQUIRE(set[0].cuda().EventRecord(late, set[0].stream) == kCudaSuccess);
    CHECK(Eventually([&] { return set[0].cuda().EventQuery(early) == kCudaSuccess; }));
    CHECK(set[0].cuda().EventQuery(late) == kCudaNotReady);
    REQUIRE(set[1].nccl().Recv(y, 1, kNcclInt32, 0, set[1].comm, set[1].stream) == kNcclInProgress);
    CHECK(set[1].Becomes(set[1].comm, kNcclSuccess));
    CHECK(set.Synchronize());
    CHECK(*y == round);
    CHECK(set[0].cuda().EventQuery(late) == kCudaSuccess);
  }
  // In a capture: polled before its end, it is part of the graph.
  CudaGraphHandle graph[2];
  CudaGraphExecHandle exec[2];
  for (int r = 0; r < 2; ++r) {
    int* const p = r == 0 ? x : y;
    *p = r + 1;
    REQUIRE(set[r].cuda().BeginCapture(set[r].stream) == kCudaSuccess);
    REQUIRE(set[r].nccl().AllReduce(p, p, 1, kNcclInt32, kNcclSum, set[r].comm, set[r].stream) == kNcclInProgress);
    REQUIRE(set[r].Becomes(set[r].comm, kNcclSuccess));
    REQUIRE(set[r].cuda().EndCapture(set[r].stream, &graph[r]) == kCudaSuccess);
    REQUIRE(set[r].cuda().GraphInstantiate(graph[r], &exec[r]) == kCudaSuccess);
    REQUIRE(set[r].cuda().GraphLaunch(exec[r], set[r].stream) == kCudaSuccess);
  }
  CHECK(set.Synchronize());
  CHECK(*x == 3);
  CHECK(*y == 3);
}

TEST_CASE("fake nccl: calls on one communicator keep their order on different streams") {
  RankSet set(2, AtOnce());
  set.Join(1);
  constexpr int kN = 40;
  int *x = NewMemory<int>(&set[0].cuda(), kN), *y = NewMemory<int>(&set[1].cuda(), kN);
  std::iota(x, x + kN, 100);
  CudaStreamHandle streams[3] = {set[1].stream, NewStream(&set[1].cuda()), NewStream(&set[1].cuda())};
  Gate gate;
  gate.Hold(&set[1].cuda(), streams[0]);
  for (int i = 0; i < kN; ++i) {
    REQUIRE(set[0].nccl().Send(x + i, 1, kNcclInt32, 1, set[0].comm, set[0].stream) == kNcclSuccess);
    REQUIRE(set[1].nccl().Recv(y + i, 1, kNcclInt32, 0, set[1].comm, streams[i % 3]) == kNcclSuccess);
  }
  gate.Open();
  for (const auto s : streams) CHECK(set[1].cuda().StreamSynchronize(s) == kCudaSuccess);
  CHECK(std::memcmp(x, y, kN * sizeof(int)) == 0);
}

TEST_CASE("fake nccl: a captured exchange runs at each launch, and not after its communicator is aborted") {
  RankSet set(2, AtOnce());
  set.Join(1);
  int* x[2];
  CudaGraphExecHandle exec[2];
  for (int r = 0; r < 2; ++r) {
    FakeCuda& cuda = set[r].cuda();
    FakeNccl& nccl = set[r].nccl();
    x[r] = NewMemory<int>(&cuda, 2);
    x[r][0] = r + 1;
    const auto other = NewStream(&cuda);
    const auto fork = NewEvent(&cuda), join = NewEvent(&cuda);
    REQUIRE(cuda.BeginCapture(set[r].stream) == kCudaSuccess);
    cuda.EventRecord(fork, set[r].stream);
    cuda.StreamWaitEvent(other, fork);
    REQUIRE(nccl.GroupStart() == kNcclSuccess);
    REQUIRE(nccl.Send(x[r], 1, kNcclInt32, 1 - r, set[r].comm, other) == kNcclSuccess);
    REQUIRE(nccl.Recv(x[r] + 1, 1, kNcclInt32, 1 - r, set[r].comm, other) == kNcclSuccess);
    REQUIRE(nccl.GroupEnd() == kNcclSuccess);
    // The communicator keeps the order of its calls within the graph too.
    REQUIRE(nccl.AllReduce(x[r], x[r], 1, kNcclInt32, kNcclSum, set[r].comm, set[r].stream) == kNcclSuccess);
    cuda.EventRecord(join, other);
    cuda.StreamWaitEvent(set[r].stream, join);
    CudaGraphHandle graph = nullptr;
    REQUIRE(cuda.EndCapture(set[r].stream, &graph) == kCudaSuccess);
    REQUIRE(cuda.GraphInstantiate(graph, &exec[r]) == kCudaSuccess);
    REQUIRE(cuda.GraphDestroy(graph) == kCudaSuccess);
    CHECK(x[r][0] == r + 1);
  }
  int sum = 3;
  for (int round = 0; round < 20; ++round) {
    for (int r = 0; r < 2; ++r) REQUIRE(set[r].cuda().GraphLaunch(exec[r], set[r].stream) == kCudaSuccess);
    REQUIRE(set.Synchronize());
    for (int r = 0; r < 2; ++r) {
      CHECK(x[r][0] == sum);
      CHECK(x[r][1] == (round == 0 ? 2 - r : sum / 2));
    }
    sum *= 2;
  }
  REQUIRE(set[0].cuda().GraphLaunch(exec[0], set[0].stream) == kCudaSuccess);
  CHECK(set[0].nccl().CommAbort(set[0].comm) == kNcclSuccess);
  CHECK(set[0].cuda().StreamSynchronize(set[0].stream) == kCudaSuccess);
  REQUIRE(set[0].cuda().GraphLaunch(exec[0], set[0].stream) == kCudaSuccess);
  CHECK(set[0].cuda().StreamSynchronize(set[0].stream) == kCudaSuccess);
  CHECK(x[0][0] == sum / 2);
}

TEST_CASE("fake plugin: hands out its parts, or says why there is no NCCL") {
  FakePlugin with;
  const CudaPlugin a = with.plugin(nullptr);
  CHECK(a.version == kCudaPluginVersion);
  CHECK(a.cuda == &with.cuda);
  CHECK(a.nccl == &with.nccl);
  CHECK(a.nccl_problem == nullptr);
  FakePlugin::Options options;
  options.nccl_problem = "libnccl.so.2 is not there";
  FakePlugin without(options);
  const CudaPlugin b = without.plugin(nullptr);
  CHECK(b.nccl == nullptr);
  CHECK(std::string(b.nccl_problem) == "libnccl.so.2 is not there");
}

}  // namespace
}  // namespace weft
