#include "common/channel/nccl/nccl_link.h"

#include <catch2/catch.hpp>
#include <random>
#include <utility>

#include "common/channel/nccl/nccl_link_test_util.h"

namespace weft {
namespace {

// One value from end to end.
Value Pass(LinkEnds* ends, SendPort* s, RecvPort* r, int64_t k, const Value& v, int64_t reserved, Value out = Value()) {
  INFO("execution " << k);
  REQUIRE(Until([&] { return s->Poll(k) == PortState::kReady; }));
  const absl::StatusOr<EventRef> sent = s->Send(k, v, ends->send->stream.get());
  REQUIRE(sent.ok());
  REQUIRE(Until([&] {
    (void)IsReady(*sent);
    return r->Poll(k) == PortState::kReady;
  }));
  const Tensor buffer = ends->recv->gpu->Buffer(v1::F32, {reserved});
  const absl::StatusOr<EventRef> got = r->Recv(k, buffer, &out, ends->recv->stream.get());
  REQUIRE(got.ok());
  REQUIRE(Until([&] { return AllReady({*sent, *got}); }));
  if (out.error == nullptr && out.tensor.bytes() > 0) {
    CHECK(out.tensor.data() == buffer.data());
    out.tensor = ends->recv->gpu->Download(out.tensor);
  }
  r->Release(k);
  return out;
}

TEST_CASE("nccl link: values of every size and errors; what is poisoned or empty moves nothing") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  for (const int64_t most : {int64_t{300}, 2 * kLate}) {  // announced at once, and when ready
    auto [s, r] = ends.Ports(NcclEdge(static_cast<int32_t>(most), "[?<=" + std::to_string(most) + "]"));
    CHECK_FALSE(r->ZeroCopy());
    for (int64_t k = 0; k < 60; ++k) {
      const int64_t sends = a.fake.nccl.calls("Send"), recvs = b.fake.nccl.calls("Recv");
      const int64_t n = k % 6 == 5 ? 0 : k % 6 == 4 ? most : k;
      Value v = k % 7 == 6 ? Poison(k) : Value();
      if (v.error == nullptr) v.tensor = a.Upload(HostValue({n}, k));
      const Value out = Pass(&ends, s.get(), r.get(), k, v, most);
      const int moved = v.error == nullptr && n > 0 ? 1 : 0;
      CHECK(a.fake.nccl.calls("Send") == sends + moved);
      CHECK(b.fake.nccl.calls("Recv") == recvs + moved);
      if (v.error != nullptr) {
        REQUIRE(out.error != nullptr);
        CHECK(out.error->ToString() == v.error->ToString());
        CHECK(out.error->code == v.error->code);
        continue;
      }
      REQUIRE(out.error == nullptr);
      CHECK(BitEqual(out.tensor, HostValue({n}, k)));
    }
  }
  CHECK(a.fake.cuda.pageable_copies() == 0);
}

TEST_CASE("nccl link: a large value is announced once it is ready, a small one at once; the device waits, not the host") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  const auto compute = *a.device->NewStream(v1::LANE_COMPUTE);
  for (const bool large : {true, false}) {
    const int64_t n = large ? kLate : 100;
    auto [s, r] = ends.Ports(NcclEdge(large, "[" + std::to_string(n) + "]"));
    StreamGate gate;
    gate.Hold(&a, compute.get());
    Value v;
    v.tensor = a.Upload(HostValue({n}, 1));
    v.event = *a.device->Record(compute->native());
    const int64_t sends = a.fake.nccl.calls("Send");
    const EventRef sent = *s->Send(0, v, ends.send->stream.get());
    CHECK(a.fake.nccl.calls("Send") == sends + 1);  // launched behind the value
    CHECK(a.device->CanWaitFor(sent));
    CHECK_FALSE(IsReady(sent));
    if (large) {
      CHECK(r->Poll(0) == PortState::kWaiting);
      CHECK(s->Poll(1) == PortState::kWaiting);
      CHECK(s->WaitsFor() == "the GPU to have the value of execution 0");
      CHECK(r->WaitsFor() == "w0 to write execution 0");
      gate.Open();
      REQUIRE(Until([&] { return IsReady(v.event); }));
      CHECK(s->Poll(1) == PortState::kReady);  // and that announces it
    }
    REQUIRE(r->Poll(0) == PortState::kReady);
    CHECK(s->WaitsFor() == "w1 to receive execution 0");
    Value out;
    const EventRef got = *r->Recv(0, b.Buffer(v1::F32, {n}), &out, ends.recv->stream.get());
    CHECK(b.device->CanWaitFor(got));
    CHECK(out.tensor.elements() == n);  // known at issue, for who waits on the device
    if (!large) {
      CHECK_FALSE(IsReady(got));
      CHECK(r->WaitsFor() == "w0 to send execution 0");
      // Work behind it on another stream of the device.
      const auto reader = *b.device->NewStream(v1::LANE_COMPUTE);
      const Tensor copy = b.Buffer(v1::F32, {n});
      reader->WaitFor(got);
      REQUIRE(b.fake.cuda.MemcpyAsync(copy.data(), out.tensor.data(), copy.bytes(), reader->native()) == kCudaSuccess);
      const EventRef read = *b.device->Record(reader->native());
      CHECK_FALSE(IsReady(read));
      gate.Open();
      REQUIRE(Until([&] { return IsReady(read); }));
      CHECK(BitEqual(b.Download(copy), HostValue({n}, 1)));
    }
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(BitEqual(b.Download(out.tensor), HostValue({n}, 1)));
  }
}

TEST_CASE("nccl link: where workers share a GPU, a large value's kernel comes only when the receiver is at it; a small one's at once") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, /*send_when_taken=*/true);
  auto [large_s, large_r] = ends.Ports(NcclEdge(1, "[" + std::to_string(kLate) + "]"));
  auto [small_s, small_r] = ends.Ports(NcclEdge(2, "[100]"));
  for (int64_t k = 0; k < 3; ++k) {
    Value large, small;
    large.tensor = a.Upload(HostValue({kLate}, k));
    small.tensor = a.Upload(HostValue({100}, k));
    const int64_t sends = a.fake.nccl.calls("Send");
    const EventRef first = *large_s->Send(k, large, ends.send->stream.get());
    const EventRef second = *small_s->Send(k, small, ends.send->stream.get());  // stays behind it, in the plan's order
    REQUIRE(large_r->Poll(k) == PortState::kReady);
    for (int i = 0; i < 100; ++i) CHECK_FALSE(IsReady(first));
    CHECK(a.fake.nccl.calls("Send") == sends);
    CHECK_FALSE(first->Queued());
    CHECK(large_s->WaitsFor() == "w1 to receive execution " + std::to_string(k));
    Value out, other;
    const EventRef got = *large_r->Recv(k, b.Buffer(v1::F32, {kLate}), &out, ends.recv->stream.get());
    const EventRef rest = *small_r->Recv(k, b.Buffer(v1::F32, {100}), &other, ends.recv->stream.get());
    REQUIRE(Until([&] { return AllReady({first, second, got, rest}); }));
    CHECK(a.fake.nccl.calls("Send") == sends + 2);
    CHECK(BitEqual(b.Download(out.tensor), HostValue({kLate}, k)));
    CHECK(BitEqual(b.Download(other.tensor), HostValue({100}, k)));
    large_r->Release(k);
    small_r->Release(k);
  }
  // A receiver that never comes ends it, as any other.
  Value large;
  large.tensor = a.Upload(HostValue({kLate}, 9));
  const EventRef never = *large_s->Send(3, large, ends.send->stream.get());
  CHECK_FALSE(IsReady(never));
  ends.send->link->Close(absl::UnavailableError("w1 is gone"));
  CHECK(Until([&] { return IsReady(never); }));
}

TEST_CASE("nccl link: received alone, one large value's kernel stands behind that under way, and its sender is told when that is over; a small one's at once") {
  TestGpu a, b;
  LinkEnds ends(&a, &b, 7, 7, /*send_when_taken=*/true, /*receive_alone=*/true);
  constexpr int kEdges = 3;
  std::vector<std::pair<std::unique_ptr<SendPort>, std::unique_ptr<RecvPort>>> large;
  for (int e = 0; e < kEdges; ++e) large.push_back(ends.Ports(NcclEdge(1 + e, "[" + std::to_string(kLate) + "]")));
  auto [small_s, small_r] = ends.Ports(NcclEdge(1 + kEdges, "[100]"));
  for (int64_t k = 0; k < 4; ++k) {
    StreamGate gate;
    gate.Hold(&a, ends.send->stream.get());  // the first value stays under way
    const int64_t sends = a.fake.nccl.calls("Send"), receives = b.fake.nccl.calls("Recv");
    Value out[kEdges], other;
    std::vector<EventRef> sent, got;
    for (int e = 0; e < kEdges; ++e) {
      Value v;
      v.tensor = a.Upload(HostValue({kLate}, 10 * k + e));
      sent.push_back(*large[e].first->Send(k, v, ends.send->stream.get()));
    }
    for (int e = 0; e < kEdges; ++e) {
      REQUIRE(large[e].second->Poll(k) == PortState::kReady);
      got.push_back(*large[e].second->Recv(k, b.Buffer(v1::F32, {kLate}), &out[e], ends.recv->stream.get()));
    }
    std::vector<EventRef> all = sent;
    all.insert(all.end(), got.begin(), got.end());
    REQUIRE(Until([&] {
      (void)AllReady(all);
      return got[1]->Queued() && a.fake.nccl.calls("Send") > sends;
    }));
    for (int i = 0; i < 100; ++i) CHECK_FALSE(AllReady(all));
    CHECK(b.fake.nccl.calls("Recv") == receives + 2);
    CHECK_FALSE(got[2]->Queued());  // so the loop issues nothing behind it
    CHECK(a.fake.nccl.calls("Send") == sends + 1);  // the second sender was not told
    CHECK(large[0].second->WaitsFor() == "w0 to send execution " + std::to_string(k));
    for (const int e : {1, 2}) CHECK(large[e].second->WaitsFor() == "the GPU to be done with what is ahead of receiving execution " + std::to_string(k));
    gate.Open();
    REQUIRE(Until([&] { return AllReady(all); }));
    CHECK(a.fake.nccl.calls("Send") == sends + kEdges);
    for (int e = 0; e < kEdges; ++e) CHECK(BitEqual(b.Download(out[e].tensor), HostValue({kLate}, 10 * k + e)));

    StreamGate next;
    next.Hold(&b, ends.recv->stream.get());
    Value small;
    small.tensor = a.Upload(HostValue({100}, k));
    const EventRef second = *small_s->Send(k, small, ends.send->stream.get());
    REQUIRE(small_r->Poll(k) == PortState::kReady);
    const EventRef rest = *small_r->Recv(k, b.Buffer(v1::F32, {100}), &other, ends.recv->stream.get());
    REQUIRE(Until([&] { return rest->Queued(); }));
    CHECK_FALSE(IsReady(rest));
    next.Open();
    REQUIRE(Until([&] { return AllReady({second, rest}); }));
    CHECK(BitEqual(b.Download(other.tensor), HostValue({100}, k)));
  }
  // Senders that die before the receiver is at them, and ports that go meanwhile: one that is launched and not told, one that is not launched.
  StreamGate gate;
  gate.Hold(&a, ends.send->stream.get());
  Value out[kEdges];
  std::vector<EventRef> never;
  for (int e = 0; e < kEdges; ++e) {
    Value v;
    v.tensor = a.Upload(HostValue({kLate}, e));
    never.push_back(*large[e].first->Send(4, v, ends.send->stream.get()));
  }
  for (int e = 0; e < kEdges; ++e) {
    REQUIRE(large[e].second->Poll(4) == PortState::kReady);
    never.push_back(*large[e].second->Recv(4, b.Buffer(v1::F32, {kLate}), &out[e], ends.recv->stream.get()));
  }
  for (int i = 0; i < 100; ++i) CHECK_FALSE(AllReady(never));
  for (auto& ports : large) ports.second = nullptr;
  ends.send->link->Close(absl::UnavailableError("w1 is gone"));
  ends.recv->link->Close(absl::UnavailableError("w0 is gone"));
  gate.Open();
  CHECK(Until([&] { return AllReady(never); }));
  // Nothing of the ports that went is left in the queue, and with it all that it needed.
  const std::weak_ptr<NcclLink> link = ends.recv->link;
  small_r = nullptr;
  ends.recv->link = nullptr;
  CHECK(link.use_count() == kEdges);  // those of `never`
  ends.recv->link = link.lock();
}

TEST_CASE("nccl link: a port that goes while NCCL connects for it leaves nothing in the queue") {
  FakePlugin::Options options;
  options.nccl.connect_polls = 1 << 30;  // it never comes to an end
  TestGpu a(options), b;
  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, "[100]"));
  const EventRef sent = *s->Send(kTrialExecution, TrialValue(1), ends.send->stream.get());
  CHECK_FALSE(sent->Queued());
  s = nullptr;
  CHECK_FALSE(IsReady(sent));
  const std::weak_ptr<NcclLink> link = ends.send->link;
  ends.send->link = nullptr;
  CHECK(link.use_count() == 1);  // `sent`
  ends.send->link = link.lock();
  ends.send->link->Close(absl::UnavailableError("w1 is gone"));
  CHECK(Until([&] { return IsReady(sent); }));
}

TEST_CASE("nccl link: a value that is passed on before it has come keeps nothing once the ports go, though nobody asks any more") {
  TestGpu a, b, c;
  const auto first = JoinAll({&a, &b}), second = JoinAll({&b, &c});
  auto queue = std::make_shared<NcclQueue>();  // of the one that passes it on
  LinkEnd from(&a, first[0], std::make_shared<NcclQueue>(), 7), in(&b, first[1], queue, 7), out(&b, second[0], queue, 7);
  const ShmEdgeSpec edge = NcclEdge(1, "[" + std::to_string(kLate) + "]");
  auto [from_header, in_header] = FakeLink::Make(NcclHeaderSpec(edge), {});
  auto [out_header, to_header] = FakeLink::Make(NcclHeaderSpec(edge), {});
  auto sender = *NcclLink::NewSendPort(from.link, edge, std::move(from_header));
  auto receiver = *NcclLink::NewRecvPort(in.link, edge, std::move(in_header));
  auto passes = *NcclLink::NewSendPort(out.link, edge, std::move(out_header));
  StreamGate gate;
  gate.Hold(&a, from.stream.get());
  Value v, passed;
  v.tensor = a.Upload(HostValue({kLate}, 1));
  const EventRef sent = *sender->Send(0, v, from.stream.get());
  REQUIRE(receiver->Poll(0) == PortState::kReady);
  EventRef got = *receiver->Recv(0, b.Buffer(v1::F32, {kLate}), &passed, in.stream.get());
  passed.event = got;
  EventRef sent_on = *passes->Send(0, passed, out.stream.get());
  CHECK_FALSE(AllReady({sent, got, sent_on}));
  CHECK(to_header->Poll(0) == PortState::kWaiting);  // its announcement waits for the value
  passes = nullptr;
  receiver = nullptr;
  passed = Value();
  got = sent_on = nullptr;
  in.link = out.link = nullptr;
  in.queue = out.queue = nullptr;
  const std::weak_ptr<NcclQueue> left = std::exchange(queue, nullptr);
  CHECK(left.expired());
  from.link->Close(absl::CancelledError("the test is over"));
  CHECK(Until([&] { return IsReady(sent); }));
}

TEST_CASE("nccl link: a control edge's announcement comes after all that is ahead of it on its stream") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, "[0]", v1::U8));
  StreamGate gate;
  gate.Hold(&a, ends.send->stream.get());
  Value v;
  v.tensor = *Tensor::OnHost(v1::U8, {0});
  const EventRef sent = *s->Send(0, v, ends.send->stream.get());
  CHECK_FALSE(IsReady(sent));
  CHECK(r->Poll(0) == PortState::kWaiting);
  gate.Open();
  REQUIRE(Until([&] { return IsReady(sent); }));
  REQUIRE(r->Poll(0) == PortState::kReady);
  Value out;
  CHECK(IsReady(*r->Recv(0, Tensor(), &out, ends.recv->stream.get())));
  CHECK(out.error == nullptr);
  CHECK(a.fake.nccl.calls("Send") == 0);
}

TEST_CASE("nccl link: status words travel with their values, are cleared where there is none, and may be unwanted") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, "[?<=8]"));
  const std::shared_ptr<void> out_memory = *a.device->Allocate(sizeof(DeviceStatus)), in_memory = *b.device->Allocate(sizeof(DeviceStatus));
  auto* const out_word = static_cast<DeviceStatus*>(out_memory.get());
  auto* const in_word = static_cast<DeviceStatus*>(in_memory.get());
  int64_t k = 0;
  for (const int64_t n : {4, 0}) {
    for (const bool has : {true, false}) {
      for (const bool wants : {true, false}) {
        *out_word = {0x1234567, 0};
        *in_word = {99, 99};
        Value v, want;
        v.tensor = a.Upload(HostValue({n}, k));
        if (has) v.status = out_word;
        if (wants) want.status = in_word;
        const Value out = Pass(&ends, s.get(), r.get(), k++, v, 8, want);
        REQUIRE(out.error == nullptr);
        CHECK(BitEqual(out.tensor, HostValue({n}, k - 1)));
        CHECK(out.status == want.status);
        const EventRef cleared = *b.device->Record(ends.recv->stream->native());
        REQUIRE(Until([&] { return IsReady(cleared); }));
        CHECK(in_word->word == (!wants ? 99u : has ? 0x1234567u : 0u));
      }
    }
  }
}

TEST_CASE("nccl link: the trial connects both ends, each edge once, and is checked") {
  FakePlugin::Options options;
  options.nccl.connect_polls = 4;
  TestGpu a(options), b(options);
  LinkEnds ends(&a, &b);
  for (const int32_t edge : {1, 2}) {
    auto [s, r] = ends.Ports(NcclEdge(edge, edge == 1 ? "[?<=8]" : "[0]", edge == 1 ? v1::F32 : v1::U8));
    const int64_t sends = a.fake.nccl.calls("Send");
    const EventRef sent = *s->Send(kTrialExecution, TrialValue(edge), ends.send->stream.get());
    if (edge == 1) {
      CHECK(s->WaitsFor() == "NCCL to connect to w1 for execution -1");
      CHECK_FALSE(a.device->CanWaitFor(sent));
    }
    // No other trial of the link meanwhile.
    auto [s2, r2] = ends.Ports(NcclEdge(10 + edge, "[1]"));
    CHECK(s2->Send(kTrialExecution, TrialValue(10 + edge), ends.send->stream.get()).status().code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(Until([&] { return r->Poll(kTrialExecution) == PortState::kReady; }));
    Value out;
    const EventRef got = *r->Recv(kTrialExecution, Tensor(), &out, ends.recv->stream.get());
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(CheckTrialValue(out, edge, "edge").ok());
    r->Release(kTrialExecution);
    CHECK(a.fake.nccl.calls("Send") == sends + 1);
    // And then execution 0.
    Value v;
    v.tensor = edge == 1 ? a.Upload(HostValue({5}, 3)) : *Tensor::OnHost(v1::U8, {0});
    const Value after = Pass(&ends, s.get(), r.get(), 0, v, 8);
    CHECK(after.error == nullptr);
  }
  // Damaged on the way.
  a.nccl.damage = true;
  auto [s, r] = ends.Ports(NcclEdge(3, "[4]"));
  const EventRef sent = *s->Send(kTrialExecution, TrialValue(3), ends.send->stream.get());
  Value out;
  REQUIRE(Until([&] { return r->Poll(kTrialExecution) == PortState::kReady; }));
  const EventRef got = *r->Recv(kTrialExecution, Tensor(), &out, ends.recv->stream.get());
  REQUIRE(Until([&] { return AllReady({sent, got}); }));
  const absl::Status bad = CheckTrialValue(out, 3, "edge a:0 -> b:0");
  CHECK(bad.code() == absl::StatusCode::kDataLoss);
  CHECK(std::string(bad.message()).find("the trial transfer brought wrong data: byte ") != std::string::npos);
}

TEST_CASE("nccl link: many edges, in the order of the link, whatever is ready first") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  const auto compute = *a.device->NewStream(v1::LANE_COMPUTE);
  std::vector<std::unique_ptr<SendPort>> s;
  std::vector<std::unique_ptr<RecvPort>> r;
  for (int32_t e = 0; e < 4; ++e) {
    auto [out, in] = ends.Ports(NcclEdge(e, "[?<=" + std::to_string(e % 2 == 0 ? kLate : 64) + "]", v1::F32, 4));
    s.push_back(std::move(out));
    r.push_back(std::move(in));
  }
  std::mt19937 rng(3);
  std::vector<std::pair<int, int64_t>> order;
  int64_t next[4] = {};
  for (int i = 0; i < 200; ++i) {
    const int e = static_cast<int>(rng() % 4);
    order.emplace_back(e, next[e]++);
  }
  std::vector<Value> outs(order.size());
  std::vector<EventRef> sent(order.size()), got(order.size());
  std::vector<Tensor> kept;  // freeing would wait for the device, which waits for this thread
  size_t to_send = 0, to_recv = 0;
  const auto step = [&] {
    if (to_send < order.size()) {
      const auto [e, k] = order[to_send];
      if (s[e]->Poll(k) == PortState::kReady) {
        StreamGate gate;  // opened at once: values become ready at any time
        gate.Hold(&a, compute.get());
        Value v;
        v.tensor = a.Upload(HostValue({static_cast<int64_t>((e * 7 + k) % 64 + 1)}, e * 1000 + k));
        v.event = *a.device->Record(compute->native());
        kept.push_back(v.tensor);
        sent[to_send++] = *s[e]->Send(k, v, ends.send->stream.get());
      }
    }
    if (to_recv < order.size()) {
      const auto [e, k] = order[to_recv];
      if (r[e]->Poll(k) == PortState::kReady) {
        const Tensor buffer = b.Buffer(v1::F32, {e % 2 == 0 ? kLate : 64});
        kept.push_back(buffer);
        got[to_recv] = *r[e]->Recv(k, buffer, &outs[to_recv], ends.recv->stream.get());
        ++to_recv;
      }
    }
    for (size_t i = 0; i < to_send; ++i) (void)IsReady(sent[i]);
    return to_recv == order.size();
  };
  REQUIRE(Until(step));
  REQUIRE(Until([&] { return AllReady(sent) && AllReady(got); }));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [e, k] = order[i];
    REQUIRE(outs[i].error == nullptr);
    CHECK(BitEqual(b.Download(outs[i].tensor), HostValue({static_cast<int64_t>((e * 7 + k) % 64 + 1)}, e * 1000 + k)));
  }
  CHECK(ends.send->link->Health().ok());
  CHECK(ends.recv->link->Health().ok());
}

TEST_CASE("nccl link: NCCL may be in progress after any call") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  a.nccl.polls = 3;
  b.nccl.polls = 5;
  auto [s, r] = ends.Ports(NcclEdge(1, "[?<=64]", v1::F32, 4));
  auto [s2, r2] = ends.Ports(NcclEdge(2, "[?<=64]", v1::F32, 4));
  const std::shared_ptr<void> memory = *a.device->Allocate(sizeof(DeviceStatus));
  std::memset(memory.get(), 0, sizeof(DeviceStatus));
  std::vector<Value> outs(20);
  std::vector<EventRef> events;
  std::vector<Tensor> kept;
  for (int64_t k = 0; k < 10; ++k) {
    for (const int e : {0, 1}) {
      Value v;
      v.tensor = a.Upload(HostValue({k + 1}, k + 100 * e));
      kept.push_back(v.tensor);
      if (k % 2 == 0) v.status = static_cast<DeviceStatus*>(memory.get());
      SendPort* const out = e == 0 ? s.get() : s2.get();
      RecvPort* const in = e == 0 ? r.get() : r2.get();
      REQUIRE(Until([&] { return out->Poll(k) == PortState::kReady; }));
      events.push_back(*out->Send(k, v, ends.send->stream.get()));
      REQUIRE(in->Poll(k) == PortState::kReady);
      events.push_back(*in->Recv(k, b.Buffer(v1::F32, {64}), &outs[k * 2 + e], ends.recv->stream.get()));
    }
  }
  REQUIRE(Until([&] { return AllReady(events); }));
  for (int64_t k = 0; k < 10; ++k) {
    for (const int e : {0, 1}) {
      REQUIRE(outs[k * 2 + e].error == nullptr);
      CHECK(BitEqual(b.Download(outs[k * 2 + e].tensor), HostValue({k + 1}, k + 100 * e)));
    }
  }
  CHECK(a.nccl.violations == 0);
  CHECK(b.nccl.violations == 0);
}

// Runs one value at both ends, closing what fails as a worker does; both ends must come to an end. Returns what the sender and the receiver saw.
std::pair<absl::Status, absl::Status> RunWithFaults(LinkEnds* ends, SendPort* s, RecvPort* r, int64_t k, const Value& v) {
  absl::Status sent_status, got_status;
  EventRef sent, got;
  bool received = false;
  auto out = std::make_unique<Value>();
  absl::StatusOr<EventRef> e = s->Send(k, v, ends->send->stream.get());
  if (e.ok()) {
    sent = *e;
  } else {
    sent_status = e.status();
  }
  CHECK(Until([&] {
    if (!received && r->Poll(k) == PortState::kReady) {
      received = true;
      absl::StatusOr<EventRef> g = r->Recv(k, ends->recv->gpu->Buffer(v1::F32, {2 * kLate}), out.get(), ends->recv->stream.get());
      if (g.ok()) {
        got = *g;
      } else {
        got_status = g.status();
      }
    }
    // Whoever sees its link fail tells the other: in a worker that is the driver.
    if (!ends->send->link->Health().ok()) ends->recv->link->Close(ends->send->link->Health());
    if (!ends->recv->link->Health().ok()) ends->send->link->Close(ends->recv->link->Health());
    const bool failed = !ends->send->link->Health().ok();
    return AllReady({sent, got}) && (received || failed);
  }));
  if (sent_status.ok()) sent_status = s->closed();
  if (got_status.ok()) got_status = r->closed();
  if (got_status.ok() && out->error != nullptr) got_status = absl::Status(out->error->code, out->error->message);
  return {sent_status, got_status};
}

TEST_CASE("nccl link: a failure of any call is a status that names the edge or the peer, at both ends, and nothing hangs") {
  struct Fault {
    bool sender;
    bool cuda;
    std::string method;
  };
  const Fault faults[] = {{true, false, "Send"},         {true, false, "GroupStart"},   {true, false, "GroupEnd"},     {true, false, "GetAsyncError"},
                          {true, true, "EventRecord"},   {true, true, "EventCreate"},   {true, true, "StreamWaitEvent"},
                          {false, false, "Recv"},        {false, false, "GroupStart"},  {false, false, "GroupEnd"},    {false, false, "GetAsyncError"},
                          {false, true, "EventRecord"},  {false, true, "EventCreate"},  {false, true, "MemcpyAsync"},  {true, true, "MemcpyAsync"},
                          {false, true, "MemsetAsync"}};
  for (const Fault& f : faults) {
    for (const int64_t k : {kTrialExecution, int64_t{0}}) {
      if (f.method == "MemcpyAsync" && k != kTrialExecution) continue;
      if (k == kTrialExecution && (f.method.find("Group") == 0 || f.method == "StreamWaitEvent" || f.method == "MemsetAsync")) continue;
      TestGpu a, b;
      LinkEnds ends(&a, &b);
      const std::string label = (f.sender ? "sender's " : "receiver's ") + f.method + " at " + std::to_string(k);
      auto [s, r] = ends.Ports(NcclEdge(1, "[?<=" + std::to_string(2 * kLate) + "]"));
      const auto compute = *a.device->NewStream(v1::LANE_COMPUTE);
      Value v = TrialValue(1);
      StreamGate gate;
      if (k == 0) {
        gate.Hold(&a, compute.get());
        v = Value();
        v.tensor = a.Upload(HostValue({kLate}, 1));
        v.event = *a.device->Record(compute->native());
      }
      TestGpu* const gpu = f.sender ? &a : &b;
      if (f.cuda) {
        gpu->fake.cuda.FailCall(f.method, 1, kCudaInvalidValue);
      } else {
        gpu->fake.nccl.FailCall(f.method, 1, kNcclSystemError);
      }
      gate.Open();
      INFO(label);
      const auto [sent, got] = RunWithFaults(&ends, s.get(), r.get(), k, v);
      // A call that was never made, or whose failure is the device's to tell, changes nothing.
      const bool untouched = gpu->fake.cuda.calls(f.method) == 0 && gpu->fake.nccl.calls(f.method) == 0;
      INFO(sent.ToString() << "\n" << got.ToString());
      if (f.method == "MemsetAsync" || f.method == "StreamWaitEvent" || f.method == "EventCreate" || untouched) continue;
      for (const absl::Status& status : {sent, got}) {
        CHECK_FALSE(status.ok());
        const std::string text(status.message());
        CHECK((text.find("edge a:0 -> b:0") != std::string::npos || text.find("w0 -> w1") != std::string::npos));
      }
    }
  }
}

TEST_CASE("nccl link: closing in the middle makes events ready once NCCL has ended; the other link goes on") {
  TestGpu a, b;
  LinkEnds broken(&a, &b), good(&a, &b);
  for (const bool sender_first : {true, false}) {
    LinkEnds ends(&a, &b);
    auto [s, r] = ends.Ports(NcclEdge(1, "[?<=64]"));
    Value v, out;
    v.tensor = a.Upload(HostValue({64}, 1));
    const std::weak_ptr<void> tensor = v.tensor.owner();
    StreamGate gate;
    gate.Hold(sender_first ? &b : &a, sender_first ? ends.recv->stream.get() : ends.send->stream.get());
    const EventRef sent = *s->Send(0, v, ends.send->stream.get());
    v = Value();
    REQUIRE(r->Poll(0) == PortState::kReady);
    const EventRef got = *r->Recv(0, b.Buffer(v1::F32, {64}), &out, ends.recv->stream.get());
    CHECK_FALSE(IsReady(sent));
    CHECK_FALSE(IsReady(got));
    CHECK_FALSE(tensor.expired());
    LinkEnd* const one = sender_first ? ends.send.get() : ends.recv.get();
    const EventRef mine = sender_first ? sent : got;
    one->link->Close(absl::UnavailableError("w9 is gone"));
    REQUIRE(Until([&] { return IsReady(mine); }));
    CHECK(one->comm->Ended());
    CHECK((sender_first ? s->closed() : r->closed()).message() == "w9 is gone");
    CHECK((sender_first ? s->Poll(1) : r->Poll(1)) == PortState::kClosed);
    // Over NVLink the other end learns nothing by itself.
    LinkEnd* const other = sender_first ? ends.recv.get() : ends.send.get();
    const EventRef theirs = sender_first ? got : sent;
    gate.Open();
    CHECK(other->link->Health().ok());
    CHECK_FALSE(IsReady(theirs));
    other->link->Close(absl::UnavailableError("w8 is gone"));
    REQUIRE(Until([&] { return IsReady(theirs); }));
    REQUIRE(out.error != nullptr);
    CHECK(out.error->code == absl::StatusCode::kUnavailable);
    CHECK(out.error->message.find("edge a:0 -> b:0 (w0 -> w1): w") == 0);
    CHECK_FALSE(out.tensor.defined());
    CHECK(tensor.expired());  // it was held until then
    CHECK_FALSE(s->Send(1, Poison(1), ends.send->stream.get()).ok());
    CHECK_FALSE(r->Recv(1, Tensor(), &out, ends.recv->stream.get()).ok());

    auto [s2, r2] = good.Ports(NcclEdge(sender_first, "[4]"));
    Value w;
    w.tensor = a.Upload(HostValue({4}, 5));
    CHECK(BitEqual(Pass(&good, s2.get(), r2.get(), 0, w, 4).tensor, HostValue({4}, 5)));
  }
}

TEST_CASE("nccl link: an asynchronous error closes it, naming the peer") {
  FakePlugin::Options options;
  options.nccl.report_dead_peers = true;
  TestGpu a(options), b(options);
  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, "[4]"));
  Value v;
  v.tensor = a.Upload(HostValue({4}, 1));
  const EventRef sent = *s->Send(0, v, ends.send->stream.get());
  ends.recv->link->Close(absl::InternalError("killed"));
  REQUIRE(Until([&] { return !ends.send->link->Health().ok(); }));
  CHECK(ends.send->link->Health().code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(ends.send->link->Health().message()).find("link w0 -> w1: transfers with w1: NCCL says a remote process has gone") == 0);
  CHECK(Until([&] { return IsReady(sent); }));
  CHECK(s->Poll(1) == PortState::kClosed);
}

TEST_CASE("nccl link: what does not fit the edge fails the link with the reason; the sender refuses it first") {
  TestGpu a, b;
  const auto fails = [&](uint64_t recv_hash, const ShmEdgeSpec& in, int64_t send_k, int64_t recv_k, FakeLink::Options o) {
    LinkEnds ends(&a, &b, 7, recv_hash);
    auto [s, r] = ends.Ports(NcclEdge(1, "[?<=8]"), in, o);
    Value v, out;
    v.tensor = a.Upload(HostValue({6}, 1));
    const EventRef sent = *s->Send(send_k, v, ends.send->stream.get());
    REQUIRE(r->Poll(recv_k) == PortState::kReady);
    const absl::StatusOr<EventRef> got = r->Recv(recv_k, b.Buffer(v1::F32, {8}), &out, ends.recv->stream.get());
    REQUIRE(got.ok());
    CHECK(IsReady(*got));
    REQUIRE(out.error != nullptr);
    CHECK(ends.recv->link->Health().code() == out.error->code);
    ends.send->link->Close(ends.recv->link->Health());
    CHECK(Until([&] { return IsReady(sent); }));
    CHECK(r->closed().message() == out.error->message);
    return out.error->message;
  };
  const auto has = [](const std::string& text, const std::string& word) {
    INFO(text);
    CHECK(text.find("edge a:0 -> b:0 (w0 -> w1): ") == 0);
    CHECK(text.find(word) != std::string::npos);
  };
  has(fails(8, NcclEdge(1, "[?<=8]"), 0, 0, {}), "compile the graph again");          // another plan
  has(fails(7, NcclEdge(1, "[?<=4]"), 0, 0, {}), "a value F32[6] came, the edge is declared F32[?<=4]");
  has(fails(7, NcclEdge(1, "[?<=8]", v1::I32), 0, 0, {}), "the edge is declared I32");
  has(fails(7, NcclEdge(1, "[?<=8]"), 0, 3, {}), "of execution 0");                    // the host channel's own header
  FakeLink::Options corrupt;
  corrupt.corrupt = 0;
  has(fails(7, NcclEdge(1, "[?<=8]"), 0, 0, corrupt), "its announcement: ");

  LinkEnds ends(&a, &b);
  auto [s, r] = ends.Ports(NcclEdge(1, "[?<=4]"));
  Value big;
  big.tensor = a.Upload(HostValue({5}, 1));
  const absl::Status refused = s->Send(0, big, ends.send->stream.get()).status();
  CHECK(refused.code() == absl::StatusCode::kOutOfRange);
  CHECK(std::string(refused.message()).find("edge a:0 -> b:0 (w0 -> w1)") == 0);
  CHECK(Pass(&ends, s.get(), r.get(), 0, Poison(0), 4).error != nullptr);  // in its place
}

TEST_CASE("nccl link: ends that disagree on which transfer is next fail the link") {
  TestGpu a, b;
  LinkEnds ends(&a, &b);
  auto [s1, r1] = ends.Ports(NcclEdge(1, "[4]"));
  auto [s2, r2] = ends.Ports(NcclEdge(2, "[4]"));
  Value v, out;
  v.tensor = a.Upload(HostValue({4}, 1));
  const EventRef first = *s1->Send(0, v, ends.send->stream.get());
  const EventRef second = *s2->Send(0, v, ends.send->stream.get());
  const EventRef got = *r2->Recv(0, b.Buffer(v1::F32, {4}), &out, ends.recv->stream.get());
  CHECK(IsReady(got));
  REQUIRE(out.error != nullptr);
  CHECK(out.error->message.find("w0 sends it as transfer 1 of the link, here transfer 0 is next") != std::string::npos);
  CHECK_FALSE(ends.recv->link->Health().ok());
}

TEST_CASE("nccl link: ports go with transfers under way: nothing is written any more, memory stays until NCCL has ended") {
  for (int round = 0; round < 20; ++round) {
    TestGpu a, b;
    auto ends = std::make_unique<LinkEnds>(&a, &b);
    auto [s, r] = ends->Ports(NcclEdge(1, "[64]"));
    EventRef sent, got;
    {
      StreamGate gate;
      gate.Hold(&a, ends->send->stream.get());
      auto out = std::make_unique<Value>();
      const int64_t k = round % 2 == 0 ? 0 : kTrialExecution;
      Value v = TrialValue(1);
      if (k == 0) v = Value{a.Upload(HostValue({64}, 1)), nullptr, nullptr};
      sent = *s->Send(k, v, ends->send->stream.get());
      got = *r->Recv(k, k == 0 ? b.Buffer(v1::F32, {64}) : Tensor(), out.get(), ends->recv->stream.get());
      s.reset();
      r.reset();
    }
    if (round % 4 < 2) {  // the events go before the link, or after it
      sent.reset();
      got.reset();
    }
    ends.reset();
    if (sent != nullptr) {
      CHECK(Until([&] { return AllReady({sent, got}); }));
      sent.reset();
      got.reset();
    }
    a.device->Collect();  // memory was put aside
    b.device->Collect();
    CHECK(a.fake.cuda.books().allocations == 0);
    CHECK(b.fake.cuda.books().allocations == 0);
    CHECK(b.fake.cuda.books().host_allocations == 0);
    CHECK(b.device->Health().ok());  // the fake breaks the device when freed memory is touched
    CHECK(a.device->Health().ok());
  }
}

TEST_CASE("nccl link: ends and edges that cannot be; no memory") {
  TestGpu a, b, c;
  for (const char* method : {"Malloc", "HostAlloc"}) {
    a.fake.cuda.FailCall(method, 1, kCudaOutOfMemory);
    CHECK(NcclScratch::Create(a.device.get()).status().code() == absl::StatusCode::kResourceExhausted);
  }
  const auto queue = std::make_shared<NcclQueue>();
  const auto scratch = *NcclScratch::Create(b.device.get());
  const auto three = JoinAll({&a, &b, &c}, "collective grads");
  CHECK(NcclLink::Create({three[1], queue, scratch, b.device.get(), 7}).status().code() == absl::StatusCode::kInvalidArgument);
  const auto comms = JoinAll({&a, &b});
  const auto link = *NcclLink::Create({comms[1], queue, scratch, b.device.get(), 7});
  const auto ports = [](const ShmEdgeSpec& e) { return FakeLink::Make(NcclHeaderSpec(e), {}); };
  const ShmEdgeSpec good = NcclEdge(1, "[4]");
  CHECK(NcclLink::NewSendPort(link, good, ports(good).first).status().code() == absl::StatusCode::kInvalidArgument);  // it is the other end
  CHECK_FALSE(NcclLink::NewRecvPort(link, good, nullptr).ok());
  CHECK(std::string(NcclLink::NewRecvPort(link, NcclEdge(1, "[?]"), ports(good).second).status().message()).find("has no bound") != std::string::npos);
  CHECK_FALSE(NcclLink::NewRecvPort(link, NcclEdge(-1, "[4]"), ports(good).second).ok());
  ShmEdgeSpec emulated = good;
  emulated.latency_s = 1;
  CHECK_FALSE(NcclLink::NewRecvPort(link, emulated, ports(good).second).ok());
  CHECK(NcclLink::NewRecvPort(link, good, ports(good).second).ok());
}

}  // namespace
}  // namespace weft
