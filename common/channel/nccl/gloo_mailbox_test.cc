#include "common/channel/nccl/gloo_mailbox.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "common/channel/nccl/nccl_link_test_util.h"
#include "common/comm/gloo/gloo_test_util.h"

namespace weft {
namespace {

ShmEdgeSpec Box(int32_t edge, int slots = 3) {
  ShmEdgeSpec e = NcclHeaderSpec(NcclEdge(edge, "[4]"));
  e.slots = slots;
  return e;
}

Value Message(int64_t bytes, int64_t seed) {
  Value v;
  v.tensor = *Tensor::OnHost(v1::U8, {bytes});
  for (int64_t i = 0; i < bytes; ++i) v.tensor.as<uint8_t>()[i] = static_cast<uint8_t>(seed * 31 + i);
  return v;
}

struct Boxes {
  explicit Boxes(const std::vector<int32_t>& edges, uint64_t recv_hash = 7) {
    meshes = ConnectAll(*GlooDevice::Create("127.0.0.1"), 2, {bells[0].get(), bells[1].get()});
    send = std::make_unique<GlooMailbox>(meshes[0], 7, edges, bells[0].get());
    recv = std::make_unique<GlooMailbox>(meshes[1], recv_hash, edges, bells[1].get());
  }
  bool Came(RecvPort* r, int64_t k) {
    return AwaitBell(bells[1].get(), [&] { return r->Poll(k) == PortState::kReady; });
  }
  std::unique_ptr<Doorbell> bells[2] = {Doorbell::InProcess(), Doorbell::InProcess()};
  std::vector<std::shared_ptr<GlooMesh>> meshes;
  std::unique_ptr<GlooMailbox> send, recv;
};

TEST_CASE("gloo mailbox: messages of many edges, sent in one order and taken in another") {
  Boxes boxes({0, 1, 2, 7});
  std::vector<std::unique_ptr<SendPort>> s;
  std::vector<std::unique_ptr<RecvPort>> r;
  const std::vector<int32_t> edges = {0, 1, 2, 7};
  for (const int32_t e : edges) {
    s.push_back(*boxes.send->NewSendPort(Box(e)));
    r.push_back(*boxes.recv->NewRecvPort(Box(e)));
  }
  CHECK(r[0]->Poll(0) == PortState::kWaiting);
  CHECK(r[0]->WaitsFor() == "w0 to write execution 0");
  std::mt19937 rng(5);
  std::vector<std::pair<int, int64_t>> order;
  int64_t next[4] = {};
  for (int i = 0; i < 300; ++i) {
    const int e = static_cast<int>(rng() % 4);
    order.emplace_back(e, next[e]++);
  }
  for (const auto& [e, k] : order) {
    REQUIRE(AwaitBell(boxes.bells[0].get(), [&, e = e, k = k] { return s[e]->Poll(k) == PortState::kReady; }));
    const absl::StatusOr<EventRef> sent = s[e]->Send(k, k % 5 == 4 ? Poison(k) : Message(k + 1, e + k), nullptr);
    REQUIRE(sent.ok());
    CHECK(IsReady(*sent));
  }
  for (int e = 3; e >= 0; --e) {
    for (int64_t k = 0; k < next[e]; ++k) {
      REQUIRE(boxes.Came(r[e].get(), k));
      Value out;
      REQUIRE(IsReady(*r[e]->Recv(k, Tensor(), &out, nullptr)));
      if (k % 5 == 4) {
        REQUIRE(out.error != nullptr);
        CHECK(out.error->ToString() == Poison(k).error->ToString());
      } else {
        REQUIRE(out.error == nullptr);
        CHECK(BitEqual(out.tensor, Message(k + 1, e + k).tensor));
      }
      r[e]->Release(k);
    }
    CHECK(r[e]->Poll(next[e]) == PortState::kWaiting);
  }
}

TEST_CASE("gloo mailbox: another plan or execution is an error value that names the edge") {
  for (const bool plan : {true, false}) {
    Boxes boxes({1}, plan ? 8 : 7);
    const auto s = *boxes.send->NewSendPort(Box(1));
    const auto r = *boxes.recv->NewRecvPort(Box(1));
    REQUIRE(s->Send(0, Message(8, 1), nullptr).ok());
    REQUIRE(boxes.Came(r.get(), 0));
    Value out;
    REQUIRE(IsReady(*r->Recv(plan ? 0 : 3, Tensor(), &out, nullptr)));
    REQUIRE(out.error != nullptr);
    CHECK(out.error->message.find("edge a:0 -> b:0 (w0 -> w1): ") == 0);
    CHECK(out.error->code == (plan ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInternal));
  }
}

TEST_CASE("gloo mailbox: closes at both ends with its cause; what had come can be taken") {
  Boxes boxes({1, 2});
  const auto s = *boxes.send->NewSendPort(Box(1));
  const auto r = *boxes.recv->NewRecvPort(Box(1));
  REQUIRE(s->Send(0, Message(8, 1), nullptr).ok());
  REQUIRE(boxes.Came(r.get(), 0));
  boxes.send->Close(absl::AbortedError("worker w9 failed"));
  CHECK(s->Poll(1) == PortState::kClosed);
  CHECK(s->closed().message() == "worker w9 failed");
  CHECK(s->Send(1, Message(8, 1), nullptr).status().message() == "worker w9 failed");
  REQUIRE(AwaitBell(boxes.bells[1].get(), [&] { return !boxes.recv->Health().ok(); }));
  REQUIRE(r->Poll(0) == PortState::kReady);
  Value out;
  REQUIRE(r->Recv(0, Tensor(), &out, nullptr).ok());
  CHECK(BitEqual(out.tensor, Message(8, 1).tensor));
  CHECK(r->Poll(1) == PortState::kClosed);
  CHECK_FALSE(r->Recv(1, Tensor(), &out, nullptr).ok());
  boxes.send.reset();
  boxes.recv.reset();
  CHECK(s->Poll(2) == PortState::kClosed);  // ports outlive it
}

TEST_CASE("gloo mailbox: a message that comes before its port is kept, one of an unknown edge closes") {
  Boxes boxes({1, 2});
  const auto s = *boxes.send->NewSendPort(Box(2));
  REQUIRE(s->Send(0, Message(8, 1), nullptr).ok());
  REQUIRE(AwaitBell(boxes.bells[0].get(), [&] { return s->Poll(1) == PortState::kReady; }));
  const auto r = *boxes.recv->NewRecvPort(Box(2));
  REQUIRE(boxes.Came(r.get(), 0));

  CHECK_FALSE(boxes.recv->NewRecvPort(Box(2)).ok());  // a second port
  CHECK_FALSE(boxes.recv->NewSendPort(Box(1)).ok());  // the other end
  CHECK_FALSE(boxes.send->NewSendPort(Box(9)).ok());  // not named
  ShmEdgeSpec big = Box(1);
  big.bytes = GlooMailbox::kMaxBytes + 1;
  CHECK_FALSE(boxes.send->NewSendPort(big).ok());
  CHECK(s->Send(1, Message(2000, 1), nullptr).status().code() == absl::StatusCode::kOutOfRange);

  const auto meshes = ConnectAll(*GlooDevice::Create("127.0.0.1"), 2);
  GlooMailbox out(meshes[0], 7, {5}, nullptr), in(meshes[1], 7, {4}, nullptr);
  const auto stranger = *out.NewSendPort(Box(5));
  REQUIRE(stranger->Send(0, Message(8, 1), nullptr).ok());
  REQUIRE(Until([&] { return !in.Health().ok(); }));
  CHECK(in.Health().code() == absl::StatusCode::kDataLoss);
  CHECK(std::string(in.Health().message()).find("w0 sends a message of an edge that is not here, 5") != std::string::npos);
}

TEST_CASE("gloo mailbox: announcements of a link between hosts") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  Boxes boxes({1, 2});
  const ShmEdgeSpec edges[2] = {NcclEdge(1, "[?<=65536]"), NcclEdge(2, "[?<=64]")};
  std::unique_ptr<SendPort> s[2];
  std::unique_ptr<RecvPort> r[2];
  for (int e = 0; e < 2; ++e) {
    s[e] = *NcclLink::NewSendPort(ends.send->link, edges[e], *boxes.send->NewSendPort(NcclHeaderSpec(edges[e])));
    r[e] = *NcclLink::NewRecvPort(ends.recv->link, edges[e], *boxes.recv->NewRecvPort(NcclHeaderSpec(edges[e])));
  }
  // The large one's announcement waits for its value: the small one's overtakes it.
  const auto compute = *a.device->NewStream(v1::LANE_COMPUTE);
  StreamGate gate;
  gate.Hold(&a, compute.get());
  Value v[2], out[2];
  EventRef sent[2], got[2];
  for (int e = 0; e < 2; ++e) v[e].tensor = a.Upload(HostValue({50}, e));
  v[0].event = *a.device->Record(compute->native());
  for (int e = 0; e < 2; ++e) sent[e] = *s[e]->Send(0, v[e], ends.send->stream.get());
  REQUIRE(boxes.Came(r[1].get(), 0));
  CHECK(r[0]->Poll(0) == PortState::kWaiting);
  gate.Open();
  REQUIRE(Until([&] { return IsReady(v[0].event) && s[0]->Poll(1) == PortState::kReady; }));
  for (int e = 0; e < 2; ++e) {
    REQUIRE(boxes.Came(r[e].get(), 0));
    got[e] = *r[e]->Recv(0, b.Buffer(v1::F32, {e == 0 ? 65536 : 64}), &out[e], ends.recv->stream.get());
  }
  for (int e = 0; e < 2; ++e) {
    REQUIRE(Until([&] { return IsReady(sent[e]) && IsReady(got[e]); }));
    REQUIRE(out[e].error == nullptr);
    CHECK(BitEqual(b.Download(out[e].tensor), HostValue({50}, e)));
  }
}

}  // namespace
}  // namespace weft
