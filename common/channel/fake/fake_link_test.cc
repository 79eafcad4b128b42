#include "common/channel/fake/fake_link.h"

#include <catch2/catch.hpp>
#include <random>

#include "common/channel/port_conformance.h"

namespace weft {
namespace {

using conformance::EdgeOf;
using conformance::ErrorValue;
using conformance::Pair;
using conformance::ValueOf;

struct Bells {
  std::unique_ptr<Doorbell> send = Doorbell::InProcess();
  std::unique_ptr<Doorbell> recv = Doorbell::InProcess();
  std::unique_ptr<FakeLink> link;
};

Pair MakePair(const ShmEdgeSpec& spec, FakeLink::Options options) {
  auto bells = std::make_shared<Bells>();
  options.send_doorbell = bells->send.get();
  options.recv_doorbell = bells->recv.get();
  bells->link = std::make_unique<FakeLink>(spec, options);
  Pair p;
  p.send = bells->link->TakeSendPort();
  p.recv = bells->link->TakeRecvPort();
  p.send_bell = bells->send.get();
  p.recv_bell = bells->recv.get();
  p.close_sender = [link = bells->link.get()](const absl::Status& s) { link->Close(s); };
  p.keep = bells;
  return p;
}

Pair MakePair(const ShmEdgeSpec& spec, Clock* clock) {
  FakeLink::Options o;
  o.clock = clock;
  return MakePair(spec, o);
}

TEST_CASE("fake link: does what every port does") {
  conformance::All([](const ShmEdgeSpec& spec, Clock* clock) { return MakePair(spec, clock); });
}

TEST_CASE("fake link: late transfers are right, and end when they say") {
  FakeClock clock;
  FakeLink::Options o;
  o.clock = &clock;
  std::mt19937 rng(3);
  o.delay = [&rng] { return static_cast<Nanos>(rng() % 50); };
  Pair p = MakePair(EdgeOf("[4]", 2), o);
  for (int64_t k = 0; k < 100; ++k) {
    const EventRef sent = *p.send->Send(k, ValueOf({4}, k), nullptr);
    REQUIRE(p.recv->Poll(k) == PortState::kReady);
    Value out;
    const EventRef got = *p.recv->Recv(k, Tensor(), &out, nullptr);
    if (!IsReady(got)) {
      CHECK_FALSE(out.tensor.defined());
      clock.Set(got->ReadyAt());
      REQUIRE(got->Ready());
    }
    CHECK(IsReady(sent));
    CHECK(BitEqual(out.tensor, ValueOf({4}, k).tensor));
    p.recv->Release(k);
  }
}

TEST_CASE("fake link: a buffer that changes before its send is done shows") {
  FakeClock clock;
  FakeLink::Options o;
  o.clock = &clock;
  o.delay = [] { return Nanos{10}; };
  Pair p = MakePair(EdgeOf("[4]", 2), o);
  Value v = ValueOf({4}, 1);
  const EventRef sent = *p.send->Send(0, v, nullptr);
  v.tensor.as<float>()[0] = -1;
  Value out;
  const EventRef got = *p.recv->Recv(0, Tensor(), &out, nullptr);
  clock.Advance(10);
  REQUIRE(got->Ready());
  CHECK(out.tensor.as<float>()[0] == -1);
  CHECK(sent->Ready());
  p.recv->Release(0);
  CHECK(out.tensor.as<uint32_t>()[0] == 0xDBDBDBDB);  // and a late reader shows too
}

TEST_CASE("fake link: faults come when the test wants them") {
  FakeClock clock;
  FakeLink::Options o;
  o.clock = &clock;

  SECTION("a send fails once") {
    o.fail_send = 1;
    Pair p = MakePair(EdgeOf("[4]", 2), o);
    CHECK(p.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    CHECK(p.send->Send(1, ValueOf({4}, 1), nullptr).status().code() == absl::StatusCode::kInternal);
    CHECK(p.send->Send(1, ValueOf({4}, 1), nullptr).ok());
  }
  SECTION("the peer goes") {
    o.close_at_send = 1;
    Pair p = MakePair(EdgeOf("[4]", 2), o);
    CHECK(p.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    CHECK(p.send->Send(1, ValueOf({4}, 1), nullptr).status().code() == absl::StatusCode::kUnavailable);
    CHECK(p.send->Poll(2) == PortState::kClosed);
  }
  SECTION("a header is of another plan") {
    o.corrupt = 0;
    Pair p = MakePair(EdgeOf("[4]", 2), o);
    REQUIRE(p.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    Value out;
    REQUIRE(IsReady(*p.recv->Recv(0, Tensor(), &out, nullptr)));
    REQUIRE(out.error != nullptr);
    CHECK(out.error->code == absl::StatusCode::kFailedPrecondition);
    CHECK(out.error->message.find("edge a:0 -> b:0") != std::string::npos);
  }
  SECTION("a credit is lost") {
    o.drop_credit = 0;
    Pair p = MakePair(EdgeOf("[4]", 1), o);
    REQUIRE(p.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    Value out;
    REQUIRE(p.recv->Recv(0, Tensor(), &out, nullptr).ok());
    p.recv->Release(0);
    CHECK(p.send->Poll(1) == PortState::kWaiting);
    CHECK(p.send->WaitsFor() == "w1 to release execution 0 (1 of 1 slots taken)");
  }
}

TEST_CASE("fake link: ports outlive the link") {
  auto [send, recv] = FakeLink::Make(EdgeOf("[4]", 1), FakeLink::Options());
  REQUIRE(send->Send(0, ValueOf({4}, 0), nullptr).ok());
  send.reset();
  Value out;
  REQUIRE(recv->Recv(0, Tensor(), &out, nullptr).ok());
  recv.reset();
  CHECK(BitEqual(out.tensor, ValueOf({4}, 0).tensor));
}

}  // namespace
}  // namespace weft
