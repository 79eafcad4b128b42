#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "common/channel/port_conformance.h"
#include "common/channel/shm/hub.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/channel/shm/test_peer.h"
#include "common/device/cpu/cpu_device.h"

namespace weft {
namespace {

using conformance::EdgeOf;
using conformance::ErrorValue;
using conformance::Pair;
using conformance::ValueOf;

Nanos Soon() { return Clock::Real()->Now() + 30 * kNanosPerSecond; }

// Two processes in one: two hubs, two doorbells, one segment.
struct Both {
  explicit Both(std::vector<ShmEdgeSpec> edges) {
    writer = *writer_hub->Export("k", std::move(edges), 42);
    reader = *reader_hub->Import(writer_hub->address(), "k", Soon());
  }
  std::unique_ptr<Doorbell> writer_bell = *Doorbell::Create();
  std::unique_ptr<Doorbell> reader_bell = *Doorbell::Create();
  std::unique_ptr<ShmHub> writer_hub = *ShmHub::Create(writer_bell.get());
  std::unique_ptr<ShmHub> reader_hub = *ShmHub::Create(reader_bell.get());
  std::shared_ptr<ShmSegment> writer, reader;
};

struct Ends {
  std::shared_ptr<Both> both;
  std::unique_ptr<ShmSendPort> send;
  std::unique_ptr<ShmRecvPort> recv;
};

Ends MakeEnds(const ShmEdgeSpec& spec, const Clock* clock) {
  Ends e;
  e.both = std::make_shared<Both>(std::vector<ShmEdgeSpec>{spec});
  e.send = *ShmSendPort::Create(e.both->writer, spec.edge, clock);
  e.recv = *ShmRecvPort::Create(e.both->reader, spec, clock);
  return e;
}

Pair MakePair(const ShmEdgeSpec& spec, Clock* clock) {
  Ends e = MakeEnds(spec, clock);
  Pair p;
  p.send = std::move(e.send);
  p.recv = std::move(e.recv);
  p.send_bell = e.both->writer_bell.get();
  p.recv_bell = e.both->reader_bell.get();
  p.close_sender = [w = e.both->writer](const absl::Status& s) { w->Close(s); };
  p.keep = e.both;
  return p;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("shm ports: do what every port does") { conformance::All(MakePair); }

TEST_CASE("shm ports: 64 MiB go over the device's thread, many edges over one segment") {
  FakeClock clock;
  std::vector<ShmEdgeSpec> edges;
  for (int i = 0; i < 3; ++i) {
    edges.push_back(EdgeOf(i == 1 ? "[?]" : "[16777216]", 2));
    edges.back().edge = 10 + i;
  }
  Both both(edges);
  auto bell = Doorbell::InProcess();
  CpuDevice device(&clock, bell.get());
  auto stream = *device.NewStream(v1::LANE_SEND);
  for (int i = 0; i < 3; ++i) {
    auto send = *ShmSendPort::Create(both.writer, 10 + i, &clock);
    auto recv = *ShmRecvPort::Create(both.reader, edges[i], &clock);
    for (int64_t k = 0; k < 2; ++k) {
      const Value v = ValueOf({16777216}, k + i);
      const EventRef sent = *send->Send(k, v, stream.get());
      REQUIRE(conformance::Await(both.reader_bell.get(), [&] { return recv->Poll(k) == PortState::kReady; }));
      REQUIRE(conformance::Await(bell.get(), [&] { return IsReady(sent); }));
      Value out;
      REQUIRE(IsReady(*recv->Recv(k, Tensor(), &out, nullptr)));
      REQUIRE(out.error == nullptr);
      CHECK(reinterpret_cast<uintptr_t>(out.tensor.data()) % 4096 == 0);
      CHECK(BitEqual(out.tensor, v.tensor));
      recv->Release(k);
    }
  }
}

TEST_CASE("shm ports: a value stays mapped after ports, segments and hubs are gone") {
  Value fixed, grown;
  {
    FakeClock clock;
    ShmEdgeSpec a = EdgeOf("[1000]", 1), b = EdgeOf("[?]", 1);
    b.edge = 6;
    Both both({a, b});
    for (const ShmEdgeSpec& e : {a, b}) {
      auto send = *ShmSendPort::Create(both.writer, e.edge, &clock);
      auto recv = *ShmRecvPort::Create(both.reader, e, &clock);
      REQUIRE(send->Send(0, ValueOf({1000}, e.edge), nullptr).ok());
      REQUIRE(recv->Recv(0, Tensor(), e.edge == 6 ? &grown : &fixed, nullptr).ok());
    }
  }
  CHECK(BitEqual(fixed.tensor, ValueOf({1000}, 5).tensor));
  CHECK(BitEqual(grown.tensor, ValueOf({1000}, 6).tensor));
}

TEST_CASE("shm ports: a message before execution 0 tests the edge") {
  FakeClock clock;
  Ends e = MakeEnds(EdgeOf("[4]", 2), &clock);
  REQUIRE(e.send->Send(-1, ErrorValue(-1), nullptr).ok());
  Value out;
  REQUIRE(e.recv->Poll(-1) == PortState::kReady);
  REQUIRE(e.recv->Recv(-1, Tensor(), &out, nullptr).ok());
  REQUIRE(out.error != nullptr);
  CHECK(out.error->message == "bad luck");
  e.recv->Release(-1);
  REQUIRE(e.send->Send(0, ValueOf({4}, 0), nullptr).ok());
  REQUIRE(e.recv->Recv(0, Tensor(), &out, nullptr).ok());
  CHECK(BitEqual(out.tensor, ValueOf({4}, 0).tensor));
}

TEST_CASE("shm ports: ends made from unequal plans are refused by field") {
  FakeClock clock;
  Both both({EdgeOf("[4]", 2)});
  ShmEdgeSpec e = EdgeOf("[4]", 3);
  CHECK(Has(std::string(ShmRecvPort::Create(both.reader, e, &clock).status().message()), "slots 2"));
  CHECK(ShmRecvPort::Create(both.reader, EdgeOf("[8]", 2), &clock).status().code() == absl::StatusCode::kFailedPrecondition);
  e = EdgeOf("[4]", 2);
  e.rendezvous = true;
  CHECK_FALSE(ShmRecvPort::Create(both.reader, e, &clock).ok());
  e = EdgeOf("[4]", 2);
  e.edge = 77;
  CHECK(ShmRecvPort::Create(both.reader, e, &clock).status().code() == absl::StatusCode::kNotFound);
  CHECK(ShmSendPort::Create(both.writer, 77, &clock).status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(ShmSendPort::Create(both.reader, 5, &clock).ok());
  CHECK_FALSE(ShmRecvPort::Create(both.writer, EdgeOf("[4]", 2), &clock).ok());
  CHECK(both.reader->plan_hash() == 42);
}

TEST_CASE("shm ports: what a broken peer writes is an error that names the edge") {
  FakeClock clock;
  Ends e = MakeEnds(EdgeOf("[?]", 2), &clock);
  ShmSegment* w = e.both->writer.get();
  Value out;

  SECTION("a header of another plan: the value fails, the port goes on") {
    REQUIRE(e.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    ShmTestPeer::Control(w, 0, 0)->header.plan_hash = 43;
    REQUIRE(e.recv->Recv(0, Tensor(), &out, nullptr).ok());
    REQUIRE(out.error != nullptr);
    CHECK(out.error->code == absl::StatusCode::kFailedPrecondition);
    CHECK(Has(out.error->message, "edge a:0 -> b:0"));
    e.recv->Release(0);
    REQUIRE(e.send->Send(1, ValueOf({4}, 1), nullptr).ok());
    REQUIRE(e.recv->Recv(1, Tensor(), &out, nullptr).ok());
    CHECK(BitEqual(out.tensor, ValueOf({4}, 1).tensor));
  }
  SECTION("a place outside the file") {
    const uint64_t places[][2] = {{0, 4096}, {4096, 4096}, {1 << 30, 4096}, {~uint64_t{0} - 4095, 4096}, {1 << 20, ~uint64_t{0} - 4095},
                                  {1 << 20, 0}, {12345, 4096}};
    int64_t k = 0;
    for (const auto& place : places) {
      REQUIRE(e.send->Send(k, ValueOf({4}, 0), nullptr).ok());
      ShmTestPeer::Control(w, 0, k)->grown_offset = place[0];
      ShmTestPeer::Control(w, 0, k)->grown_capacity = place[1];
      REQUIRE(e.recv->Recv(k, Tensor(), &out, nullptr).ok());
      REQUIRE(out.error != nullptr);
      CHECK(out.error->code == absl::StatusCode::kDataLoss);
      e.recv->Release(k++);
    }
  }
  SECTION("a size beyond the slot") {
    REQUIRE(e.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    ShmTestPeer::Control(w, 0, 0)->header.dims[0] = 1 << 20;
    ShmTestPeer::Control(w, 0, 0)->header.bytes = 4 << 20;
    REQUIRE(e.recv->Recv(0, Tensor(), &out, nullptr).ok());
    REQUIRE(out.error != nullptr);
  }
  SECTION("an impossible message number closes the segment for both") {
    ShmTestPeer::Control(w, 0, 0)->sent.store(99);
    CHECK(e.recv->Poll(0) == PortState::kClosed);
    CHECK(e.recv->closed().code() == absl::StatusCode::kDataLoss);
    CHECK(Has(std::string(e.recv->closed().message()), "edge a:0 -> b:0"));
    CHECK(e.send->closed().code() == absl::StatusCode::kDataLoss);
  }
  SECTION("impossible credits close the segment for both") {
    REQUIRE(e.send->Send(0, ValueOf({4}, 0), nullptr).ok());
    REQUIRE(e.send->Send(1, ValueOf({4}, 1), nullptr).ok());
    ShmTestPeer::Ring(w, 0)->released.store(~uint64_t{0});
    CHECK(e.send->Poll(2) == PortState::kClosed);
    CHECK(Has(std::string(e.send->closed().message()), "claims to have released"));
    CHECK(e.recv->closed().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("shm ports: a receive under way forgets its value when the port goes") {
  FakeClock clock;
  ShmEdgeSpec spec = EdgeOf("[4]", 1);
  spec.rendezvous = true;
  Ends e = MakeEnds(spec, &clock);
  auto out = std::make_unique<Value>();
  const EventRef got = *e.recv->Recv(0, Tensor(), out.get(), nullptr);
  e.recv.reset();
  out.reset();
  REQUIRE(e.send->Send(0, ValueOf({4}, 0), nullptr).ok());
  CHECK(got->Ready());
}

TEST_CASE("shm ports: a copy under way keeps what it needs") {
  FakeClock clock;
  auto bell = Doorbell::InProcess();
  auto device = std::make_unique<CpuDevice>(&clock, bell.get());
  auto stream = *device->NewStream(v1::LANE_SEND);
  EventRef sent;
  {
    Ends e = MakeEnds(EdgeOf("[4000000]", 2), &clock);
    sent = *e.send->Send(0, ValueOf({4000000}, 0), stream.get());
  }
  REQUIRE(conformance::Await(bell.get(), [&] { return IsReady(sent); }));
}

}  // namespace
}  // namespace weft
