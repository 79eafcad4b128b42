#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "common/device/cuda/fake/fake_nccl_test_util.h"

namespace weft {
namespace {

constexpr int kRounds = 30;
constexpr size_t kN = 50000;

// One exchange and one sum of a round, as every rank makes them.
void Round(TestRank* rank, int me, int32_t* mine, int32_t* theirs, int32_t* sum) {
  FakeNccl& nccl = rank->nccl();
  REQUIRE(nccl.GroupStart() == kNcclSuccess);
  REQUIRE(nccl.Send(mine, kN, kNcclInt32, 1 - me, rank->comm, rank->stream) == kNcclSuccess);
  REQUIRE(nccl.Recv(theirs, kN, kNcclInt32, 1 - me, rank->comm, rank->stream) == kNcclSuccess);
  REQUIRE(nccl.GroupEnd() == kNcclSuccess);
  REQUIRE(nccl.AllReduce(mine, sum, kN, kNcclInt32, kNcclSum, rank->comm, rank->stream) == kNcclSuccess);
}

void TestExchange(TestRank* rank, int me) {
  int32_t* const x = NewMemory<int32_t>(&rank->cuda(), 3 * kN);
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kN; ++i) x[i] = static_cast<int32_t>(i) + round * 1000 + me;
    Round(rank, me, x, x + kN, x + 2 * kN);
    REQUIRE(rank->cuda().StreamSynchronize(rank->stream) == kCudaSuccess);
    for (size_t i = 0; i < kN; ++i) {
      const int32_t other = static_cast<int32_t>(i) + round * 1000 + 1 - me;
      wrong += x[kN + i] != other || x[2 * kN + i] != x[i] + other;
    }
  }
  CHECK(wrong == 0);
}

void JoinAs(TestRank* rank, int me, const NcclId& id) {
  REQUIRE(rank->nccl().CommInit(&rank->comm, 2, id, me, 4) == kNcclInProgress);
  REQUIRE(rank->Becomes(rank->comm, kNcclSuccess));
}

NcclId IdOfEnvironment() {
  NcclId id{};
  FromHex(std::getenv("WEFT_FAKE_ID"), id.bytes, sizeof(id.bytes));
  return id;
}

TEST_CASE("child: exchanges", "[.]") {
  TestRank rank(AtOnce());
  JoinAs(&rank, 1, IdOfEnvironment());
  TestExchange(&rank, 1);
}

TEST_CASE("child: joins and dies", "[.]") {
  TestRank rank(AtOnce());
  JoinAs(&rank, 1, IdOfEnvironment());
  int* const x = NewMemory<int>(&rank.cuda(), 1);
  *x = 9;
  REQUIRE(rank.nccl().Send(x, 1, kNcclInt32, 0, rank.comm, rank.stream) == kNcclSuccess);
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));  // until it is killed
}

TEST_CASE("fake nccl: two processes exchange and sum") {
  TestRank rank(AtOnce());
  NcclId id;
  REQUIRE(rank.nccl().GetUniqueId(&id) == kNcclSuccess);
  TestChild child("child: exchanges", {"WEFT_FAKE_ID=" + ToHex(id.bytes, sizeof(id.bytes))});
  JoinAs(&rank, 0, id);
  TestExchange(&rank, 0);
  CHECK(child.Wait() == 0);
}

TEST_CASE("fake nccl: a process that is killed is not reported, or is, as the option says; abort ends it either way") {
  for (const bool report : {false, true}) {
    FakePlugin::Options options = AtOnce();
    options.nccl.report_dead_peers = report;
    TestRank rank(options);
    NcclId id;
    REQUIRE(rank.nccl().GetUniqueId(&id) == kNcclSuccess);
    TestChild child("child: joins and dies", {"WEFT_FAKE_ID=" + ToHex(id.bytes, sizeof(id.bytes))});
    JoinAs(&rank, 0, id);
    int* const x = NewMemory<int>(&rank.cuda(), 2);
    REQUIRE(rank.nccl().Recv(x, 1, kNcclInt32, 1, rank.comm, rank.stream) == kNcclSuccess);
    REQUIRE(rank.cuda().StreamSynchronize(rank.stream) == kCudaSuccess);
    CHECK(*x == 9);
    REQUIRE(rank.nccl().Recv(x + 1, 1, kNcclInt32, 1, rank.comm, rank.stream) == kNcclSuccess);
    child.Kill();
    if (report) {
      CHECK(rank.Becomes(rank.comm, kNcclRemoteError));
    } else {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      while (std::chrono::steady_clock::now() < until) {
        int state = -1;
        REQUIRE(rank.nccl().GetAsyncError(rank.comm, &state) == kNcclSuccess);
        REQUIRE(state == kNcclSuccess);
      }
    }
    CHECK(rank.cuda().StreamQuery(rank.stream) == kCudaNotReady);
    CHECK(rank.nccl().CommAbort(rank.comm) == kNcclSuccess);
    CHECK(rank.cuda().StreamSynchronize(rank.stream) == kCudaSuccess);
  }
}

TEST_CASE("fake nccl: a dead peer is reported on an idle communicator too") {
  FakePlugin::Options options = AtOnce();
  options.nccl.report_dead_peers = true;
  RankSet set(2, options);
  set.Join(1);
  CHECK(set[1].nccl().CommAbort(set[1].comm) == kNcclSuccess);
  CHECK(set[0].Becomes(set[0].comm, kNcclRemoteError));
  CHECK(std::string(set[0].nccl().LastError(set[0].comm)).find("closed its connection") != std::string::npos);
}

}  // namespace
}  // namespace weft
