#include "common/channel/gloo/gloo_link.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "common/comm/gloo/gloo_test_util.h"

namespace weft {
namespace {

ShmEdgeSpec EdgeOf(int32_t edge, const std::string& shape, DType dtype = v1::F32) {
  ShmEdgeSpec e;
  e.edge = edge;
  e.spec = Spec{dtype, *Shape::Parse(shape)};
  e.bytes = e.spec.MaxBytes();
  e.name = "edge a:0 -> b:0 (w0 -> w1)";
  e.src_worker = "w0";
  e.dst_worker = "w1";
  return e;
}

Value ValueOf(const Dims& dims, int64_t seed) {
  Value v;
  v.tensor = *Tensor::OnHost(v1::F32, dims);
  for (int64_t i = 0; i < v.tensor.elements(); ++i) v.tensor.as<float>()[i] = static_cast<float>((seed * 131 + i) % 65521);
  return v;
}

// Both ends of a link within this process.
struct Ends {
  explicit Ends(uint64_t send_hash = 7, uint64_t recv_hash = 7) {
    const auto device = *GlooDevice::Create("127.0.0.1");
    meshes = ConnectAll(device, 2, {send_bell.get(), recv_bell.get()});
    send = std::make_unique<GlooLink>(meshes[0], send_hash, send_bell.get());
    recv = std::make_unique<GlooLink>(meshes[1], recv_hash, recv_bell.get());
  }
  bool SendDone(const EventRef& e) { return AwaitBell(send_bell.get(), [&] { return IsReady(e); }); }
  bool RecvDone(const EventRef& e) { return AwaitBell(recv_bell.get(), [&] { return IsReady(e); }); }

  std::unique_ptr<Doorbell> send_bell = Doorbell::InProcess(), recv_bell = Doorbell::InProcess();
  std::vector<std::shared_ptr<GlooMesh>> meshes;
  std::unique_ptr<GlooLink> send, recv;
};

TEST_CASE("gloo link: values of every size and errors, one after the other") {
  Ends ends;
  const auto s = *ends.send->NewSendPort(EdgeOf(5, "[?<=300]"));
  const auto r = *ends.recv->NewRecvPort(EdgeOf(5, "[?<=300]"));
  CHECK_FALSE(r->ZeroCopy());
  for (int64_t k = 0; k < 200; ++k) {
    REQUIRE(s->Poll(k) == PortState::kReady);
    REQUIRE(r->Poll(k) == PortState::kReady);
    Value v = ValueOf({k % 300}, k), out;
    if (k % 7 == 6) {
      auto e = std::make_shared<TaskError>();
      e->worker = "w0";
      e->node = "a";
      e->execution = k;
      e->code = absl::StatusCode::kInvalidArgument;
      e->message = "bad luck";
      v = Value{Tensor(), nullptr, e};
    }
    const Tensor buffer = *Tensor::OnHost(v1::F32, {300});
    const EventRef sent = *s->Send(k, v, nullptr);
    const EventRef got = *r->Recv(k, buffer, &out, nullptr);
    REQUIRE(ends.SendDone(sent));
    REQUIRE(ends.RecvDone(got));
    if (v.error != nullptr) {
      CHECK(out.error->ToString() == v.error->ToString());
      continue;
    }
    REQUIRE(out.error == nullptr);
    CHECK(BitEqual(out.tensor, v.tensor));
    if (v.tensor.bytes() > 0) CHECK(out.tensor.data() == buffer.data());
    r->Release(k);
  }
}

TEST_CASE("gloo link: dynamic shapes are allocated by what comes, control edges move nothing, large values take pieces") {
  Ends ends;
  const auto s = *ends.send->NewSendPort(EdgeOf(1, "[?, ?]"));
  const auto r = *ends.recv->NewRecvPort(EdgeOf(1, "[?, ?]"));
  int64_t k = 0;
  for (const Dims& dims : {Dims{2, 3}, Dims{0, 9}, Dims{(9 << 20) + 3, 1}, Dims{1, 1}}) {
    const Value v = ValueOf(dims, k);
    Value out;
    const EventRef got = *r->Recv(k, Tensor(), &out, nullptr);
    const EventRef sent = *s->Send(k, v, nullptr);
    REQUIRE(ends.RecvDone(got));
    REQUIRE(ends.SendDone(sent));
    REQUIRE(out.error == nullptr);
    CHECK(BitEqual(out.tensor, v.tensor));
    ++k;
  }
  const auto cs = *ends.send->NewSendPort(EdgeOf(2, "[]", v1::DTYPE_UNSPECIFIED));
  const auto cr = *ends.recv->NewRecvPort(EdgeOf(2, "[]", v1::DTYPE_UNSPECIFIED));
  Value out;
  const EventRef got = *cr->Recv(0, Tensor(), &out, nullptr);
  CHECK_FALSE(IsReady(got));
  REQUIRE(cs->Send(0, Value(), nullptr).ok());
  REQUIRE(ends.RecvDone(got));
  CHECK(out.error == nullptr);
}

TEST_CASE("gloo link: a rendezvous keeps the sender until the receiver takes, and Send never blocks") {
  Ends ends;
  const auto s = *ends.send->NewSendPort(EdgeOf(1, "[4]"));
  const auto r = *ends.recv->NewRecvPort(EdgeOf(1, "[4]"));
  const EventRef sent = *s->Send(3, ValueOf({4}, 0), nullptr);
  CHECK_FALSE(IsReady(sent));
  CHECK(s->WaitsFor() == "w1 to receive execution 3");
  Value out;
  const EventRef got = *r->Recv(3, *Tensor::OnHost(v1::F32, {4}), &out, nullptr);
  CHECK(r->WaitsFor() == "w0 to send execution 3");
  CHECK(ends.SendDone(sent));
  CHECK(ends.RecvDone(got));  // `out` must live until then
}

TEST_CASE("gloo link: many edges share it, each with its own order of executions") {
  Ends ends;
  std::vector<std::unique_ptr<SendPort>> s;
  std::vector<std::unique_ptr<RecvPort>> r;
  for (int32_t e = 0; e < 10; ++e) {
    s.push_back(*ends.send->NewSendPort(EdgeOf(e * 1000, "[?<=64]")));
    r.push_back(*ends.recv->NewRecvPort(EdgeOf(e * 1000, "[?<=64]")));
  }
  std::mt19937 rng(3);
  std::vector<std::pair<int, int64_t>> order;
  std::vector<int64_t> next(10, 0);
  for (int i = 0; i < 500; ++i) {
    const int e = static_cast<int>(rng() % 10);
    order.emplace_back(e, next[e]++);
  }
  std::vector<Value> outs(order.size());
  std::vector<EventRef> sent, got;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [e, k] = order[i];
    sent.push_back(*s[e]->Send(k, ValueOf({(e * 7 + k) % 65}, e * 1000 + k), nullptr));
    got.push_back(*r[e]->Recv(k, *Tensor::OnHost(v1::F32, {64}), &outs[i], nullptr));
  }
  REQUIRE(ends.SendDone(sent.back()));
  REQUIRE(ends.RecvDone(got.back()));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [e, k] = order[i];
    REQUIRE(outs[i].error == nullptr);
    CHECK(BitEqual(outs[i].tensor, ValueOf({(e * 7 + k) % 65}, e * 1000 + k).tensor));
  }
}

TEST_CASE("gloo link: what does not fit is refused at the sender, or an error at the receiver, and the edge goes on") {
  Ends ends;
  const auto s = *ends.send->NewSendPort(EdgeOf(1, "[?<=100]"));
  const auto r = *ends.recv->NewRecvPort(EdgeOf(1, "[?<=50]"));  // as if the two plans differed
  const absl::Status big = s->Send(0, ValueOf({101}, 0), nullptr).status();
  CHECK(big.code() == absl::StatusCode::kOutOfRange);
  CHECK(std::string(big.message()).find("edge a:0 -> b:0") != std::string::npos);
  const auto pass = [&](int64_t send_k, int64_t recv_k, int64_t n, int64_t reserved) {
    Value out;
    const EventRef sent = *s->Send(send_k, ValueOf({n}, send_k), nullptr);
    const EventRef got = *r->Recv(recv_k, *Tensor::OnHost(v1::F32, {reserved}), &out, nullptr);
    REQUIRE(ends.SendDone(sent));
    REQUIRE(ends.RecvDone(got));
    return out;
  };
  CHECK(pass(0, 0, 80, 100).error->code == absl::StatusCode::kOutOfRange);   // beyond the receiver's spec
  CHECK(pass(1, 1, 40, 30).error->code == absl::StatusCode::kOutOfRange);    // beyond its buffer
  const Value wrong = pass(2, 9, 40, 100);                                   // another execution
  REQUIRE(wrong.error != nullptr);
  CHECK(wrong.error->message.find("execution 9") != std::string::npos);
  const Value good = pass(3, 3, 40, 100);
  REQUIRE(good.error == nullptr);
  CHECK(BitEqual(good.tensor, ValueOf({40}, 3).tensor));
}

TEST_CASE("gloo link: another plan at the other end is an error, not a hang") {
  Ends ends(7, 8);
  const auto s = *ends.send->NewSendPort(EdgeOf(1, "[4]"));
  const auto r = *ends.recv->NewRecvPort(EdgeOf(1, "[4]"));
  Value out;
  REQUIRE(s->Send(0, ValueOf({4}, 0), nullptr).ok());
  const EventRef got = *r->Recv(0, *Tensor::OnHost(v1::F32, {4}), &out, nullptr);
  REQUIRE(ends.RecvDone(got));
  CHECK(out.error->code == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("gloo link: closing ends what is under way at both ends, a hundred times at any moment") {
  for (int round = 0; round < 100; ++round) {
    Ends ends;
    const auto s = *ends.send->NewSendPort(EdgeOf(1, "[?]"));
    const auto r = *ends.recv->NewRecvPort(EdgeOf(1, "[?]"));
    std::vector<Value> outs(4);
    std::vector<EventRef> sent, got;
    for (int64_t k = 0; k < 4; ++k) {
      sent.push_back(*s->Send(k, ValueOf({k == 2 ? 1 << 18 : 4}, k), nullptr));
      if (k < 3) got.push_back(*r->Recv(k, Tensor(), &outs[k], nullptr));
    }
    if (round % 2 == 0) REQUIRE(ends.RecvDone(got[round / 2 % 3]));
    (round % 3 == 0 ? ends.send : ends.recv)->Close(absl::AbortedError("worker w9 failed"));
    for (const EventRef& e : sent) REQUIRE(ends.SendDone(e));
    for (const EventRef& e : got) REQUIRE(ends.RecvDone(e));
    for (int64_t k = 0; k < 3; ++k) {
      if (outs[k].error == nullptr) CHECK(BitEqual(outs[k].tensor, ValueOf({k == 2 ? 1 << 18 : 4}, k).tensor));
    }
    REQUIRE(AwaitBell(ends.send_bell.get(), [&] { return s->Poll(4) == PortState::kClosed; }));
    REQUIRE(AwaitBell(ends.recv_bell.get(), [&] { return r->Poll(4) == PortState::kClosed; }));
    CHECK_FALSE(s->closed().ok());
    CHECK_FALSE(s->Send(4, ValueOf({4}, 0), nullptr).ok());
    Value late;
    CHECK_FALSE(r->Recv(4, Tensor(), &late, nullptr).ok());
    const absl::Status& own = round % 3 == 0 ? ends.send->Health() : ends.recv->Health();
    CHECK(own.message() == "worker w9 failed");
  }
}

TEST_CASE("gloo link: ports outlive the link") {
  Ends ends;
  const auto s = *ends.send->NewSendPort(EdgeOf(1, "[4]"));
  const EventRef sent = *s->Send(0, ValueOf({4}, 0), nullptr);
  ends.send.reset();
  CHECK(IsReady(sent));
  CHECK(s->Poll(1) == PortState::kClosed);
}

TEST_CASE("gloo link: ends and edges that cannot be") {
  Ends ends;
  CHECK_FALSE(ends.send->NewRecvPort(EdgeOf(1, "[4]")).ok());
  CHECK_FALSE(ends.recv->NewSendPort(EdgeOf(1, "[4]")).ok());
  CHECK_FALSE(ends.send->NewSendPort(EdgeOf(-1, "[4]")).ok());
  ShmEdgeSpec emulated = EdgeOf(1, "[4]");
  emulated.latency_s = 1;
  CHECK_FALSE(ends.send->NewSendPort(emulated).ok());
}

}  // namespace
}  // namespace weft
