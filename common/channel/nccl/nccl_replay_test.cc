// Transfers of a link that are captured once and replayed.

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/channel/nccl/nccl_link_test_util.h"
#include "common/channel/planned_places.h"

namespace weft {
namespace {

TEST_CASE("nccl link: transfers between planned places are captured once and replayed; others go as ever") {
  TestGpu a, b;
  auto ends = std::make_unique<LinkEnds>(&a, &b, 7, 7, false, false, /*replay=*/true);
  const ShmEdgeSpec edge = NcclEdge(1, "[?<=1000]");
  auto [s, r] = ends->Ports(edge);
  // Two places at each end, with a status word behind the value.
  constexpr size_t kBytes = 4000, kPlace = 4096;
  const std::shared_ptr<void> from = *a.device->Allocate(2 * kPlace), to = *b.device->Allocate(2 * kPlace);
  const auto place = [&](const std::shared_ptr<void>& memory, int64_t k) {
    return Tensor(v1::F32, {1000}, static_cast<char*>(memory.get()) + (k % 2) * kPlace, memory);
  };
  const auto word = [&](const std::shared_ptr<void>& memory, int64_t k) {
    return reinterpret_cast<DeviceStatus*>(place(memory, k).as<char>() + kBytes);
  };
  for (int64_t k = 0; k < 2; ++k) {
    // The two ends need not be at it at the same time.
    REQUIRE(dynamic_cast<PlannedPlaces*>(s.get())->Plan(place(from, k), word(from, k)).ok());
    REQUIRE(dynamic_cast<PlannedPlaces*>(s.get())->Plan(place(from, k), word(from, k)).ok());  // nothing new
  }
  for (int64_t k = 0; k < 2; ++k) REQUIRE(dynamic_cast<PlannedPlaces*>(r.get())->Plan(place(to, k), word(to, k)).ok());
  const int64_t captured = a.fake.nccl.calls("GroupEnd");
  CHECK(captured == 4);  // each place with and without its word
  for (int64_t k = 0; k < 12; ++k) {
    INFO("execution " << k);
    const bool with_word = k % 3 == 1, is_short = k % 4 == 3;
    const int64_t n = is_short ? 10 : 1000;
    Value v, out;
    v.tensor = Tensor(v1::F32, {n}, place(from, k).data(), from);
    const Tensor made = HostValue({n}, k);
    std::copy_n(made.as<float>(), n, v.tensor.as<float>());  // a fake GPU's memory is the host's
    if (with_word) {
      v.status = word(from, k);
      v.status->word = static_cast<uint64_t>(77 + k);
    }
    out.status = word(to, k);
    const int64_t calls = a.fake.nccl.calls("GroupEnd"), launches = a.fake.cuda.calls("GraphLaunch");
    const EventRef sent = *s->Send(k, v, ends->send->stream.get());
    REQUIRE(r->Poll(k) == PortState::kReady);
    const EventRef got = *r->Recv(k, place(to, k), &out, ends->recv->stream.get());
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(a.fake.nccl.calls("GroupEnd") == calls + is_short);
    CHECK(a.fake.cuda.calls("GraphLaunch") == launches + !is_short);
    REQUIRE(out.error == nullptr);
    CHECK(BitEqual(b.Download(out.tensor), HostValue({n}, k)));
    CHECK(out.status->word == (with_word ? static_cast<uint64_t>(77 + k) : 0));
    r->Release(k);
  }
  // A value that lies elsewhere, and a word that nobody asked for.
  Value v, out;
  v.tensor = a.Upload(HostValue({1000}, 12));
  const EventRef sent = *s->Send(12, v, ends->send->stream.get());
  const EventRef got = *r->Recv(12, place(to, 12), &out, ends->recv->stream.get());
  REQUIRE(Until([&] { return AllReady({sent, got}); }));
  CHECK(BitEqual(b.Download(out.tensor), HostValue({1000}, 12)));
  Value worded, plain;
  worded.tensor = place(from, 13);
  worded.status = word(from, 13);
  const EventRef sent_word = *s->Send(13, worded, ends->send->stream.get());
  const EventRef got_word = *r->Recv(13, place(to, 13), &plain, ends->recv->stream.get());
  REQUIRE(Until([&] { return AllReady({sent_word, got_word}); }));
  // A captured receive whose sender never comes ends with the communicator, which frees what it captured.
  Value next;
  next.tensor = place(from, 14);
  (void)*s->Send(14, next, ends->send->stream.get());
  REQUIRE(r->Poll(14) == PortState::kReady);
  Value never;
  StreamGate gate;
  gate.Hold(&b, ends->recv->stream.get());
  const EventRef lost = *r->Recv(14, place(to, 14), &never, ends->recv->stream.get());
  CHECK_FALSE(IsReady(lost));
  ends->send->link->Close(absl::UnavailableError("w1 is gone"));
  ends->recv->link->Close(absl::UnavailableError("w0 is gone"));
  gate.Open();
  CHECK(Until([&] { return IsReady(lost); }));
  CHECK(b.fake.cuda.calls("GraphExecDestroy") == 4);
}

TEST_CASE("nccl link: what cannot be captured is launched one by one") {
  for (const char* call : {"BeginCapture", "EndCapture", "GraphInstantiate"}) {
    INFO(call);
    TestGpu a, b;
    LinkEnds ends(&a, &b, 7, 7, false, false, /*replay=*/true);
    auto [s, r] = ends.Ports(NcclEdge(1, "[100]"));
    Value v, out;
    v.tensor = a.Upload(HostValue({100}, 1));
    a.fake.cuda.FailCall(call, 1, kCudaInvalidValue);
    REQUIRE(dynamic_cast<PlannedPlaces*>(s.get())->Plan(v.tensor, nullptr).ok());
    REQUIRE(dynamic_cast<PlannedPlaces*>(s.get())->Plan(v.tensor, nullptr).ok());  // it does not try again
    const EventRef sent = *s->Send(0, v, ends.send->stream.get());
    REQUIRE(r->Poll(0) == PortState::kReady);
    const EventRef got = *r->Recv(0, b.Buffer(v1::F32, {100}), &out, ends.recv->stream.get());
    REQUIRE(Until([&] { return AllReady({sent, got}); }));
    CHECK(BitEqual(b.Download(out.tensor), HostValue({100}, 1)));
    CHECK(a.fake.cuda.calls("GraphLaunch") == 0);
  }
}

TEST_CASE("nccl link: NCCL's failure while a transfer is captured, and CUDA's when it is replayed, are told with what failed") {
  for (const char* call : {"GraphLaunch", "GroupEnd", "Send"}) {
    INFO(call);
    TestGpu a, b;
    LinkEnds ends(&a, &b, 7, 7, false, false, /*replay=*/true);
    auto [s, r] = ends.Ports(NcclEdge(1, "[100]"));
    const Tensor place = a.Upload(HostValue({100}, 1));
    const bool later = std::string(call) == "GraphLaunch";
    if (later) {
      a.fake.cuda.FailCall(call, 1, kCudaInvalidValue);
    } else {
      a.fake.nccl.FailCall(call, 1, kNcclInternalError);
    }
    absl::Status told = dynamic_cast<PlannedPlaces*>(s.get())->Plan(place, nullptr);
    CHECK(told.ok() == later);
    if (later) {
      Value v;
      v.tensor = place;
      const absl::StatusOr<EventRef> sent = s->Send(0, v, ends.send->stream.get());
      if (sent.ok()) CHECK(Until([&] { return IsReady(*sent); }));
      told = s->closed();
    }
    CHECK_FALSE(told.ok());
    CHECK(std::string(told.message()).find(later ? "sending of execution 0" : "w0 -> w1") != std::string::npos);
  }
}

}  // namespace
}  // namespace weft
