// Where calls of a worker may wait until no kernel runs (NcclLink::Options::at_once): what has been launched or promised ends without its thread.

#include <catch2/catch.hpp>

#include "common/channel/nccl/nccl_link_test_util.h"

namespace weft {
namespace {

TEST_CASE("nccl at once: where calls may wait until no kernel runs, nothing that is launched waits to be told of or to be announced") {
  TestGpu a, b;
  const auto at_once = std::make_shared<std::atomic<int>>(0);
  LinkEnds ends(&a, &b, 7, 7, true, true, false, at_once);
  auto [s, r] = ends.Ports(NcclEdge(1, Large()));
  const auto compute = *b.device->NewStream(v1::LANE_COMPUTE), makes = *a.device->NewStream(v1::LANE_COMPUTE);
  for (int64_t k = 0; k < 4; ++k) {
    const bool meanwhile = k % 2 == 0;  // a graph whose calls do so comes while this is under way; or before
    at_once->store(meanwhile ? 0 : 1);
    StreamGate gate, making;
    gate.Hold(&b, compute.get());
    ends.recv->stream->WaitFor(*b.device->Record(compute->native()));
    Value v = Of(&a, kLate, k);
    making.Hold(&a, makes.get());
    v.event = *a.device->Record(makes->native());
    ends.send->stream->WaitFor(v.event);
    const EventRef sent = *s->Send(k, v, ends.send->stream.get());
    if (meanwhile) {
      Ask({sent});
      CHECK(r->Poll(k) == PortState::kWaiting);
      CHECK_FALSE(sent->Queued());
      at_once->store(1);
    }
    REQUIRE(Until([&] {
      (void)AllReady({sent});
      return r->Poll(k) == PortState::kReady && sent->Queued();
    }));
    if (meanwhile) at_once->store(0);
    Value out;
    const EventRef got = *r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    if (meanwhile) {
      Ask({got});
      CHECK(r->WaitsFor() == "the GPU to be done with what is ahead of receiving execution " + std::to_string(k));
      at_once->store(1);
      REQUIRE(Until([&] {
        (void)AllReady({got});
        return r->WaitsFor() == "w0 to send execution " + std::to_string(k);
      }));
    }
    making.Open();
    gate.Open();
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(BitEqual(b.Download(out.tensor), HostValue({kLate}, k)));
  }
}

TEST_CASE("nccl at once: a send that its receiver has been told of is owed until NCCL has launched it; a receive never is before it is launched") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, Large()));
  for (int64_t k = 0; k < 2; ++k) {
    CHECK_FALSE(ends.send->queue->Owes());
    a.nccl.polls = 1000;  // NCCL takes its time to launch
    const EventRef sent = *s->Send(k, Of(&a, kLate, k), ends.send->stream.get());
    Ask({sent});
    CHECK_FALSE(sent->Queued());
    CHECK(ends.send->queue->Owes());
    a.nccl.polls = 0;
    REQUIRE(Until([&] { return sent->Queued(); }));
    CHECK_FALSE(ends.send->queue->Owes());
    REQUIRE(Until([&] { return r->Poll(k) == PortState::kReady; }));
    CHECK_FALSE(ends.recv->queue->Owes());
    Value out;
    const EventRef got = *r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK_FALSE(ends.recv->queue->Owes());
  }
  // Announced and not taken yet, it waits for that, and is owed; at once it is launched.
  const auto at_once = std::make_shared<std::atomic<int>>(0);
  TestGpu c, d;
  LinkEnds told(&c, &d, 7, 7, /*send_when_taken=*/true, false, false, at_once);
  auto [from, to] = told.Ports(NcclEdge(1, Large()));
  const EventRef sent = *from->Send(0, Of(&c, kLate, 0), told.send->stream.get());
  Ask({sent});
  CHECK(told.send->queue->Owes());
  at_once->store(1);
  REQUIRE(Until([&] { return sent->Queued(); }));
  CHECK_FALSE(told.send->queue->Owes());
}

}  // namespace
}  // namespace weft
