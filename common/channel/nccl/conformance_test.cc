// What every port must do, over NCCL: an adapter keeps values in host memory for the suite and waits for events on its behalf. Two of its
// sections are about channels with slots of their own and do not hold here by design: credits are the plan's buffers (a slot of the
// announcement comes back when it is read), and nothing can be received over a link that was closed.

#include <catch2/catch.hpp>
#include <deque>

#include "common/channel/nccl/nccl_link_test_util.h"
#include "common/channel/port_conformance.h"

namespace weft {
namespace {

class HostSend : public SendPort {
 public:
  HostSend(std::unique_ptr<SendPort> inner, LinkEnd* end) : inner_(std::move(inner)), end_(end) {}
  PortState Poll(int64_t k) override {
    while (!sent_.empty() && IsReady(sent_.front().second)) sent_.pop_front();
    for (const auto& s : sent_) (void)IsReady(s.second);
    return inner_->Poll(k);
  }
  absl::StatusOr<EventRef> Send(int64_t k, const Value& v, Stream*) override {
    Value there = v;
    if (v.error == nullptr) there.tensor = end_->gpu->Upload(v.tensor);
    absl::StatusOr<EventRef> e = inner_->Send(k, there, end_->stream.get());
    if (!e.ok()) return e;
    // Its announcement waits for what is ahead on the stream; the suite expects it at once.
    if (v.error == nullptr && v.tensor.bytes() == 0) REQUIRE(Until([&] { return IsReady(*e); }));
    sent_.emplace_back(there, *e);  // the caller's tensor was copied
    return EventRef();
  }
  std::string WaitsFor() const override { return inner_->WaitsFor(); }
  absl::Status closed() const override { return inner_->closed(); }

 private:
  const std::unique_ptr<SendPort> inner_;
  LinkEnd* const end_;
  std::deque<std::pair<Value, EventRef>> sent_;
};

class HostRecv : public RecvPort {
 public:
  HostRecv(std::unique_ptr<RecvPort> inner, LinkEnd* end, uint64_t bytes) : inner_(std::move(inner)), end_(end), bytes_(bytes) {}
  PortState Poll(int64_t k) override { return inner_->Poll(k); }
  absl::StatusOr<EventRef> Recv(int64_t k, const Tensor&, Value* out, Stream*) override {
    const Tensor buffer = end_->gpu->Buffer(v1::U8, {static_cast<int64_t>(bytes_)});
    absl::StatusOr<EventRef> e = inner_->Recv(k, buffer, out, end_->stream.get());
    if (!e.ok()) return e;
    REQUIRE(Until([&] { return IsReady(*e); }));
    if (out->tensor.bytes() > 0) out->tensor = end_->gpu->Download(out->tensor);
    return EventRef();
  }
  void Release(int64_t k) override { inner_->Release(k); }
  bool ZeroCopy() const override { return true; }  // for the suite, which then gives no buffer
  std::string WaitsFor() const override { return inner_->WaitsFor(); }
  absl::Status closed() const override { return inner_->closed(); }

 private:
  const std::unique_ptr<RecvPort> inner_;
  LinkEnd* const end_;
  const uint64_t bytes_;
};

struct World {
  TestGpu a, b;
  std::unique_ptr<LinkEnds> ends = std::make_unique<LinkEnds>(&a, &b);
  std::unique_ptr<Doorbell> bells[2] = {Doorbell::InProcess(), Doorbell::InProcess()};
};

conformance::Factory Over() {
  return [](const ShmEdgeSpec& spec, Clock* clock) {
    const auto world = std::make_shared<World>();
    FakeLink::Options o;
    o.clock = clock;
    o.send_doorbell = world->bells[0].get();
    o.recv_doorbell = world->bells[1].get();
    auto [s, r] = world->ends->Ports(spec, o);
    conformance::Pair p;
    p.send = std::make_unique<HostSend>(std::move(s), world->ends->send.get());
    p.recv = std::make_unique<HostRecv>(std::move(r), world->ends->recv.get(), spec.bytes);
    p.send_bell = o.send_doorbell;
    p.recv_bell = o.recv_doorbell;
    p.keep = world;
    return p;
  };
}

TEST_CASE("nccl ports: conformance") {
  SECTION("carries values and errors") { conformance::CarriesValuesAndErrors(Over()); }
  SECTION("refuses what does not fit") { conformance::RefusesWhatDoesNotFit(Over()); }
}

// Both ends on threads of their own, each moving on what is its own, as two workers' loops do.
TEST_CASE("nccl ports: two threads, values of both kinds, one large edge and one small") {
  constexpr int64_t kLate = static_cast<int64_t>(NcclLink::kLateBytes / 4);
  constexpr int64_t kRounds = 300;
  World world;
  const ShmEdgeSpec edges[2] = {NcclEdge(1, "[?<=300]", v1::F32, 3), NcclEdge(2, "[?<=" + std::to_string(kLate) + "]", v1::F32, 2)};
  std::unique_ptr<SendPort> s[2];
  std::unique_ptr<RecvPort> r[2];
  for (int e = 0; e < 2; ++e) {
    auto [out, in] = world.ends->Ports(edges[e]);
    s[e] = std::move(out);
    r[e] = std::move(in);
  }
  const auto size = [](int64_t k) { return (k * 37) % 300; };
  const auto run = [&](bool sends) {
    TestGpu& gpu = sends ? world.a : world.b;
    LinkEnd* const end = sends ? world.ends->send.get() : world.ends->recv.get();
    std::vector<Tensor> memory;  // reused round by round
    for (int i = 0; i < 8; ++i) memory.push_back(gpu.Buffer(v1::F32, {kLate}));
    std::deque<std::pair<int64_t, EventRef>> under_way;
    std::deque<Value> values(2 * kRounds);
    int64_t wrong = 0, done = 0;
    const auto finish = [&](size_t most) {
      while (under_way.size() > most) {
        if (!Until([&] { return IsReady(under_way.front().second); })) ++wrong;
        const int64_t i = under_way.front().first, k = i / 2;
        under_way.pop_front();
        ++done;
        if (sends) continue;
        Value& v = values[i];
        if ((v.error != nullptr) != (k % 7 == 6)) ++wrong;
        if (v.error == nullptr && !BitEqual(gpu.Download(v.tensor), HostValue({size(k)}, i))) ++wrong;
        r[i % 2]->Release(k);
      }
    };
    for (int64_t i = 0; i < 2 * kRounds; ++i) {
      const int e = static_cast<int>(i % 2);
      const int64_t k = i / 2;
      finish(7);
      const Tensor& place = memory[i % 8];
      if (!Until([&] {
            for (const auto& u : under_way) (void)IsReady(u.second);
            return (sends ? s[e]->Poll(k) : r[e]->Poll(k)) == PortState::kReady;
          })) {
        ++wrong;
        return wrong;
      }
      if (sends) {
        Value v = Poison(k);
        if (k % 7 != 6) {
          const Tensor host = HostValue({size(k)}, i);
          if (host.bytes() > 0) std::memcpy(place.data(), host.data(), host.bytes());
          v = Value{Tensor(v1::F32, {size(k)}, place.data(), place.owner()), nullptr, nullptr};
        }
        const absl::StatusOr<EventRef> sent = s[e]->Send(k, v, end->stream.get());
        if (!sent.ok()) return wrong + 1;
        under_way.emplace_back(i, *sent);
      } else {
        const absl::StatusOr<EventRef> got = r[e]->Recv(k, place, &values[i], end->stream.get());
        if (!got.ok()) return wrong + 1;
        under_way.emplace_back(i, *got);
      }
    }
    finish(0);
    return wrong + (done == 2 * kRounds ? 0 : 1);
  };
  int64_t send_wrong = -1;
  std::thread sender([&] { send_wrong = run(true); });
  const int64_t recv_wrong = run(false);
  sender.join();
  CHECK(send_wrong == 0);
  CHECK(recv_wrong == 0);
}

}  // namespace
}  // namespace weft
