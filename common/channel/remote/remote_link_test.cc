#include "common/channel/remote/remote_link.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "common/channel/port_conformance.h"

namespace weft {
namespace {

using conformance::EdgeOf;
using conformance::Pair;
using conformance::ValueOf;

// Hands each message to the other end at once.
class DirectPipe : public MessagePipe {
 public:
  void Send(v1::DataMessage message) override {
    if (const auto link = peer.lock()) {
      if (message.has_piece()) largest = std::max(largest, message.piece().data().size());
      link->OnMessage(message);
    }
  }
  void Close(const absl::Status& why) override {
    if (const auto link = peer.lock()) link->OnClosed(why);
  }
  std::weak_ptr<RemoteLink> peer;
  size_t largest = 0;
};

// Keeps what is sent.
class ListPipe : public MessagePipe {
 public:
  void Send(v1::DataMessage message) override { sent.push_back(std::move(message)); }
  void Close(const absl::Status& why) override { closed = why; }
  std::vector<v1::DataMessage> sent;
  absl::Status closed;
};

std::shared_ptr<Plan> PlanOf(const ShmEdgeSpec& spec, int32_t src, int32_t dst) {
  auto plan = std::make_shared<Plan>();
  plan->graph = "g";
  plan->hash = "00000000000000ab";
  plan->workers = {{"w0", "h0", "cpu"}, {"w1", "h1", "cpu"}};
  PlanEdge e;
  e.id = spec.edge;
  e.src_worker = src;
  e.dst_worker = dst;
  e.src = "a";
  e.dst = "b";
  e.transport = v1::REMOTE;
  e.spec = spec.spec;
  e.bytes = spec.bytes;
  e.slots = spec.slots;
  plan->edges.push_back(e);
  return plan;
}

struct Both {
  explicit Both(const ShmEdgeSpec& spec) {
    auto plan = PlanOf(spec, 0, 1);
    a_pipe = std::make_shared<DirectPipe>();
    b_pipe = std::make_shared<DirectPipe>();
    a = RemoteLink::Create({plan, 0, 1, a_bell.get()}, a_pipe);
    b = RemoteLink::Create({plan, 1, 0, b_bell.get()}, b_pipe);
    a_pipe->peer = b;
    b_pipe->peer = a;
  }
  std::unique_ptr<Doorbell> a_bell = Doorbell::InProcess();
  std::unique_ptr<Doorbell> b_bell = Doorbell::InProcess();
  std::shared_ptr<DirectPipe> a_pipe, b_pipe;
  std::shared_ptr<RemoteLink> a, b;
};

Pair MakePair(const ShmEdgeSpec& spec, Clock*) {
  auto both = std::make_shared<Both>(spec);
  Pair p;
  p.send = *both->a->TakeSendPort(spec.edge);
  p.recv = *both->b->TakeRecvPort(spec.edge);
  p.send_bell = both->a_bell.get();
  p.recv_bell = both->b_bell.get();
  p.close_sender = [a = both->a](const absl::Status& s) { a->Close(s); };
  p.keep = both;
  return p;
}

TEST_CASE("remote ports do what every buffered port does") {
  SECTION("carries values and errors") { conformance::CarriesValuesAndErrors(MakePair); }
  SECTION("credits run out and come back") { conformance::CreditsRunOutAndComeBack(MakePair); }
  SECTION("refuses what does not fit") { conformance::RefusesWhatDoesNotFit(MakePair); }
  SECTION("grows with the value") { conformance::GrowsWithTheValue(MakePair); }
  SECTION("closes with its cause") { conformance::ClosesWithItsCause(MakePair); }
  SECTION("two threads") { conformance::RunsOnTwoThreads(MakePair, EdgeOf("[?<=300]", 3), 2000); }
  SECTION("two threads, dynamic") { conformance::RunsOnTwoThreads(MakePair, EdgeOf("[?]", 2), 1000); }
}

TEST_CASE("large values travel in pieces of at most 1 MiB") {
  Both both(EdgeOf("[?<=3000000]", 1));
  auto send = *both.a->TakeSendPort(5);
  auto recv = *both.b->TakeRecvPort(5);
  const Value v = ValueOf({2'500'001}, 1);
  REQUIRE(send->Send(0, v, nullptr).ok());
  CHECK(both.a_pipe->largest == RemoteLink::kPieceBytes);
  Value out;
  REQUIRE(recv->Poll(0) == PortState::kReady);
  REQUIRE(recv->Recv(0, Tensor(), &out, nullptr).ok());
  CHECK(BitEqual(out.tensor, v.tensor));
}

TEST_CASE("each end of an edge is given once, and only where the plan has it") {
  Both both(EdgeOf("[4]", 1));
  CHECK(absl::IsNotFound(both.a->TakeRecvPort(5).status()));
  CHECK(absl::IsNotFound(both.a->TakeSendPort(6).status()));
  CHECK(both.a->TakeSendPort(5).ok());
  CHECK(absl::IsNotFound(both.a->TakeSendPort(5).status()));
}

// A worker's end, whose peer is the test.
struct Worker {
  Worker() : plan(PlanOf(EdgeOf("[4]", 1), kClient, 1)), pipe(std::make_shared<ListPipe>()) {
    link = RemoteLink::Create({plan, 1, kClient, bell.get()}, pipe);
  }
  v1::DataMessage Good(int64_t execution) {
    const Value v = ValueOf({4}, execution);
    const MessageHeader h = MakeHeader(HashAsNumber(plan->hash), 5, execution, static_cast<uint64_t>(execution), v.tensor, nullptr);
    v1::DataMessage m;
    m.mutable_piece()->set_edge(5);
    m.mutable_piece()->set_execution(execution);
    m.mutable_piece()->set_header(&h, sizeof h);
    m.mutable_piece()->set_data(v.tensor.data(), v.tensor.bytes());
    m.mutable_piece()->set_last(true);
    return m;
  }
  MessageHeader HeaderOf(const v1::DataMessage& m) {
    MessageHeader h;
    std::memcpy(static_cast<void*>(&h), m.piece().header().data(), sizeof h);
    return h;
  }
  std::shared_ptr<Plan> plan;
  std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  std::shared_ptr<ListPipe> pipe;
  std::shared_ptr<RemoteLink> link;
};

TEST_CASE("the highest admitted execution reaches the worker and never goes back") {
  Worker w;
  CHECK(w.link->admitted() == -1);
  v1::DataMessage m;
  m.set_admitted(7);
  const uint32_t seen = w.bell->Snapshot();
  w.link->OnMessage(m);
  CHECK(w.bell->Snapshot() != seen);
  m.set_admitted(3);
  w.link->OnMessage(m);
  CHECK(w.link->admitted() == 7);
  w.link->PublishAdmitted(9);
  CHECK(w.pipe->sent.back().admitted() == 9);
}

TEST_CASE("messages that break the rules close the link with words") {
  Worker w;
  v1::DataMessage m = w.Good(0);
  std::string words;
  SECTION("unknown edge") {
    m.mutable_piece()->set_edge(77);
    words = "edge 77";
  }
  SECTION("short header") {
    m.mutable_piece()->set_header("abc");
    words = "header has 3 bytes";
  }
  SECTION("too large") {
    MessageHeader h = w.HeaderOf(m);
    h.bytes = uint64_t{1} << 50;
    m.mutable_piece()->set_header(&h, sizeof h);
    words = "at most 16";
  }
  SECTION("gap") {
    m.mutable_piece()->set_offset(8);
    words = "where byte 0 of 16";
  }
  SECTION("more than announced") {
    m.mutable_piece()->mutable_data()->append("x");
    words = "came where";
  }
  SECTION("large piece") {
    m.mutable_piece()->set_data(std::string((1 << 20) + 1, 'x'));
    words = "at most 1 MiB";
  }
  SECTION("ends early") {
    m.mutable_piece()->mutable_data()->resize(8);
    words = "after 8 of 16 bytes";
  }
  SECTION("does not end") {
    m.mutable_piece()->set_last(false);
    words = "after 16 of 16 bytes";
  }
  SECTION("no credit") {
    w.link->OnMessage(m);
    REQUIRE(w.link->closed().ok());
    m = w.Good(1);
    words = "without credit";
  }
  SECTION("release of nothing") {
    m.mutable_release()->set_edge(5);
    words = "a release of edge 5";
  }
  SECTION("opened twice") {
    m.mutable_open();
    words = "a second time";
  }
  w.link->OnMessage(m);
  INFO(std::string(w.link->closed().message()));
  CHECK(absl::IsDataLoss(w.link->closed()));
  CHECK(std::string(w.link->closed().message()).find(words) != std::string::npos);
  CHECK(w.pipe->closed == w.link->closed());
  w.link->OnMessage(w.Good(0));  // late: nothing happens
}

TEST_CASE("a value that does not fit the edge becomes an error in its place, and the edge works on") {
  Worker w;
  auto port = *w.link->TakeRecvPort(5);
  v1::DataMessage m = w.Good(0);
  MessageHeader h = w.HeaderOf(m);
  SECTION("another plan") { h.plan_hash ^= 1; }
  SECTION("another dtype") { h.dtype = v1::I32; }
  SECTION("no dtype") { h.dtype = 200; }
  SECTION("absurd dims") { h.dims[0] = int64_t{1} << 62; }
  SECTION("negative dims") { h.dims[0] = -4; }
  SECTION("absurd rank") { h.rank = 255; }
  SECTION("no magic") { h.magic = 0; }
  SECTION("another execution") { h.execution = 4; }
  m.mutable_piece()->set_header(&h, sizeof h);
  w.link->OnMessage(m);
  REQUIRE(w.link->closed().ok());
  REQUIRE(port->Poll(0) == PortState::kReady);
  Value out;
  REQUIRE(port->Recv(0, Tensor(), &out, nullptr).ok());
  REQUIRE(out.error != nullptr);
  CHECK(out.error->message.find("edge a -> b:0 (client -> w1)") != std::string::npos);
  port->Release(0);
  CHECK(w.pipe->sent.back().release().execution() == 0);
  w.link->OnMessage(w.Good(1));
  Value next;
  REQUIRE(port->Recv(1, Tensor(), &next, nullptr).ok());
  CHECK(BitEqual(next.tensor, ValueOf({4}, 1).tensor));
}

}  // namespace
}  // namespace weft
