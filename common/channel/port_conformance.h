#pragma once

// What every port that buffers in host memory must do; included by the tests of each implementation, so that the fakes and the real
// ones cannot drift apart.

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/channel/doorbell.h"
#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"

namespace weft::conformance {

struct Pair {
  std::shared_ptr<void> keep;  // whatever both ports rest on
  std::unique_ptr<SendPort> send;
  std::unique_ptr<RecvPort> recv;
  Doorbell* send_bell = nullptr;
  Doorbell* recv_bell = nullptr;
  std::function<void(const absl::Status&)> close_sender;  // the sender's end closes
};
using Factory = std::function<Pair(const ShmEdgeSpec& spec, Clock* clock)>;

inline ShmEdgeSpec EdgeOf(const std::string& shape, int slots) {
  ShmEdgeSpec e;
  e.edge = 5;
  e.slots = slots;
  e.spec = Spec{v1::F32, *Shape::Parse(shape)};
  e.bytes = e.spec.MaxBytes();
  e.name = "edge a:0 -> b:0 (w0 -> w1)";
  e.src_worker = "w0";
  e.dst_worker = "w1";
  return e;
}

inline Value ValueOf(const Dims& dims, int64_t seed) {
  Value v;
  v.tensor = *Tensor::OnHost(v1::F32, dims);
  for (int64_t i = 0; i < v.tensor.elements(); ++i) v.tensor.as<float>()[i] = static_cast<float>((seed * 131 + i) % 65521);
  return v;
}

inline Value ErrorValue(int64_t k) {
  auto e = std::make_shared<TaskError>();
  e->worker = "w0";
  e->node = "a";
  e->execution = k;
  e->code = absl::StatusCode::kInvalidArgument;
  e->message = "bad luck";
  Value v;
  v.error = e;
  return v;
}

// Waits as the loop does; the limit only keeps a broken build from hanging.
inline bool Await(Doorbell* bell, const std::function<bool()>& done, Nanos until = Event::kUnknown) {
  const Nanos limit = Clock::Real()->Now() + 60 * kNanosPerSecond;
  for (;;) {
    const uint32_t seen = bell->Snapshot();
    if (done()) return true;
    if (Clock::Real()->Now() > limit) return false;
    bell->Wait(seen, until < limit ? until : limit, 0);
  }
}

inline void CarriesValuesAndErrors(const Factory& make) {
  FakeClock clock;
  Pair p = make(EdgeOf("[?<=7]", 3), &clock);
  CHECK(p.recv->ZeroCopy());
  for (int64_t k = 0; k < 50; ++k) {  // round the ring many times
    CHECK(p.recv->Poll(k) == PortState::kWaiting);
    CHECK(p.recv->WaitsFor() == "w0 to write execution " + std::to_string(k));
    REQUIRE(p.send->Poll(k) == PortState::kReady);
    const Value v = k % 5 == 4 ? ErrorValue(k) : ValueOf({k % 8}, k);  // an empty one too
    const uint32_t seen = p.recv_bell->Snapshot();
    const absl::StatusOr<EventRef> sent = p.send->Send(k, v, nullptr);
    REQUIRE(sent.ok());
    CHECK(IsReady(*sent));
    CHECK(p.recv_bell->Snapshot() != seen);
    REQUIRE(p.recv->Poll(k) == PortState::kReady);
    Value out;
    const absl::StatusOr<EventRef> got = p.recv->Recv(k, Tensor(), &out, nullptr);
    REQUIRE(got.ok());
    REQUIRE(IsReady(*got));
    if (v.error != nullptr) {
      REQUIRE(out.error != nullptr);
      CHECK(out.error->ToString() == v.error->ToString());
    } else {
      REQUIRE(out.error == nullptr);
      CHECK(BitEqual(out.tensor, v.tensor));
    }
    p.recv->Release(k);
  }
}

inline void CreditsRunOutAndComeBack(const Factory& make) {
  FakeClock clock;
  Pair p = make(EdgeOf("[4]", 2), &clock);
  for (int64_t k = 0; k < 2; ++k) REQUIRE(p.send->Send(k, ValueOf({4}, k), nullptr).ok());
  CHECK(p.send->Poll(2) == PortState::kWaiting);
  CHECK(p.send->WaitsFor() == "w1 to release execution 0 (2 of 2 slots taken)");
  CHECK_FALSE(p.send->Send(2, ValueOf({4}, 2), nullptr).ok());
  Value a, b;
  REQUIRE(p.recv->Recv(0, Tensor(), &a, nullptr).ok());
  REQUIRE(p.recv->Recv(1, Tensor(), &b, nullptr).ok());
  CHECK(p.send->Poll(2) == PortState::kWaiting);  // received is not released
  const uint32_t before = p.send_bell->Snapshot();
  p.recv->Release(0);
  CHECK(p.send_bell->Snapshot() != before);
  CHECK(p.send->Poll(2) == PortState::kReady);
  REQUIRE(p.send->Send(2, ValueOf({4}, 2), nullptr).ok());
  CHECK(p.send->WaitsFor() == "w1 to release execution 1 (2 of 2 slots taken)");
  CHECK(BitEqual(b.tensor, ValueOf({4}, 1).tensor));  // its slot was not touched
  p.recv->Release(1);
  p.recv->Release(2);  // nothing is received yet: no credit comes of it
  CHECK(p.send->Poll(3) == PortState::kReady);
  REQUIRE(p.send->Send(3, ValueOf({4}, 3), nullptr).ok());
  CHECK(p.send->Poll(4) == PortState::kWaiting);
}

inline void RefusesWhatDoesNotFit(const Factory& make) {
  FakeClock clock;
  Pair p = make(EdgeOf("[?<=4]", 1), &clock);
  const absl::StatusOr<EventRef> big = p.send->Send(0, ValueOf({5}, 0), nullptr);
  REQUIRE_FALSE(big.ok());
  CHECK(big.status().code() == absl::StatusCode::kOutOfRange);
  CHECK(std::string(big.status().message()).find("edge a:0 -> b:0 (w0 -> w1)") != std::string::npos);
  Value f64;
  f64.tensor = *Tensor::OnHost(v1::F64, {2});
  CHECK(p.send->Send(0, f64, nullptr).status().code() == absl::StatusCode::kOutOfRange);
  // Nothing was used up: the error goes in the value's place, and the edge works on.
  for (int64_t k = 0; k < 2; ++k) {
    REQUIRE(p.send->Send(k, k == 0 ? ErrorValue(0) : ValueOf({4}, 1), nullptr).ok());
    Value out;
    REQUIRE(p.recv->Poll(k) == PortState::kReady);
    REQUIRE(IsReady(*p.recv->Recv(k, Tensor(), &out, nullptr)));
    CHECK((out.error != nullptr) == (k == 0));
    p.recv->Release(k);
  }
}

inline void GrowsWithTheValue(const Factory& make) {
  FakeClock clock;
  Pair p = make(EdgeOf("[?, 256]", 2), &clock);
  int64_t k = 0;
  for (const int64_t rows : {0, 1, 3, 1, 100, 0, 2000, 50, 4096, 1}) {
    REQUIRE(p.send->Send(k, ValueOf({rows, 256}, k), nullptr).ok());
    REQUIRE(p.recv->Poll(k) == PortState::kReady);
    Value out;
    REQUIRE(IsReady(*p.recv->Recv(k, Tensor(), &out, nullptr)));
    REQUIRE(out.error == nullptr);
    CHECK(BitEqual(out.tensor, ValueOf({rows, 256}, k).tensor));
    p.recv->Release(k++);
  }
}

inline void ClosesWithItsCause(const Factory& make) {
  FakeClock clock;
  Pair p = make(EdgeOf("[4]", 2), &clock);
  CHECK(p.send->closed().ok());
  CHECK(p.recv->closed().ok());
  REQUIRE(p.send->Send(0, ValueOf({4}, 0), nullptr).ok());
  const uint32_t seen = p.recv_bell->Snapshot();
  p.close_sender(absl::DataLossError("the sky fell"));
  CHECK(p.recv_bell->Snapshot() != seen);
  CHECK(p.send->Poll(1) == PortState::kClosed);
  CHECK(p.send->closed().code() == absl::StatusCode::kDataLoss);
  CHECK_FALSE(p.send->Send(1, ValueOf({4}, 1), nullptr).ok());
  // What had come can still be received.
  REQUIRE(p.recv->Poll(0) == PortState::kReady);
  Value out;
  REQUIRE(IsReady(*p.recv->Recv(0, Tensor(), &out, nullptr)));
  CHECK(BitEqual(out.tensor, ValueOf({4}, 0).tensor));
  p.recv->Release(0);
  CHECK(p.recv->Poll(1) == PortState::kClosed);
  CHECK(p.recv->closed().code() == absl::StatusCode::kDataLoss);
  CHECK(std::string(p.recv->closed().message()).find("the sky fell") != std::string::npos);
  CHECK_FALSE(p.recv->Recv(1, Tensor(), &out, nullptr).ok());
  p.close_sender(absl::InternalError("later"));
  CHECK(p.recv->closed().code() == absl::StatusCode::kDataLoss);
}

inline void RendezvousTakesTheLinksTime(const Factory& make) {
  FakeClock clock(1000);
  ShmEdgeSpec e = EdgeOf("[?<=1000]", 2);
  e.rendezvous = true;
  e.latency_s = 100e-9;
  e.bandwidth = 4e9;  // 4 bytes a nanosecond
  Pair p = make(e, &clock);

  // The receiver first.
  REQUIRE(p.recv->Poll(0) == PortState::kReady);
  Value out;
  const uint32_t before = p.send_bell->Snapshot();
  const EventRef got = *p.recv->Recv(0, Tensor(), &out, nullptr);
  CHECK(p.send_bell->Snapshot() != before);
  CHECK_FALSE(IsReady(got));
  CHECK(got->ReadyAt() == Event::kUnknown);
  CHECK(p.recv->WaitsFor() == "w0 to send execution 0");
  clock.Advance(500);
  const EventRef sent = *p.send->Send(0, ValueOf({1000}, 3), nullptr);
  CHECK_FALSE(IsReady(sent));
  CHECK(sent->ReadyAt() == 1500 + 100 + 1000);
  CHECK(got->ReadyAt() == 1500 + 100 + 1000);
  clock.Set(2599);
  CHECK_FALSE(got->Ready());
  CHECK_FALSE(sent->Ready());
  CHECK_FALSE(out.tensor.defined());
  clock.Set(2600);
  REQUIRE(got->Ready());
  CHECK(BitEqual(out.tensor, ValueOf({1000}, 3).tensor));
  p.recv->Release(0);
  CHECK(sent->Ready());  // also when it asks late

  // The sender first; smaller, and an error, which takes as long as the largest value.
  const EventRef s1 = *p.send->Send(1, ValueOf({500}, 4), nullptr);
  const EventRef s2 = *p.send->Send(2, ErrorValue(2), nullptr);
  CHECK(s1->ReadyAt() == Event::kUnknown);
  CHECK(p.send->WaitsFor() == "w1 to receive execution 1");
  CHECK(p.send->Poll(3) == PortState::kWaiting);
  clock.Set(5000);
  Value o1, o2;
  const EventRef g1 = *p.recv->Recv(1, Tensor(), &o1, nullptr);
  const EventRef g2 = *p.recv->Recv(2, Tensor(), &o2, nullptr);
  CHECK(p.recv->Poll(3) == PortState::kWaiting);  // no place left to receive into
  CHECK(g1->ReadyAt() == 5600);
  CHECK(s1->ReadyAt() == 5600);
  CHECK(g2->ReadyAt() == 6100);
  clock.Set(6100);
  CHECK(s1->Ready());
  CHECK(s2->Ready());
  REQUIRE(g1->Ready());
  REQUIRE(g2->Ready());
  CHECK(BitEqual(o1.tensor, ValueOf({500}, 4).tensor));
  CHECK(o2.error != nullptr);
  p.recv->Release(1);
  p.recv->Release(2);

  // A receive that is under way when the sender goes comes to an end.
  Value o3;
  const EventRef g3 = *p.recv->Recv(3, Tensor(), &o3, nullptr);
  CHECK_FALSE(g3->Ready());
  p.close_sender(absl::UnavailableError("w0 is gone"));
  REQUIRE(g3->Ready());
  REQUIRE(o3.error != nullptr);
  CHECK(o3.error->code == absl::StatusCode::kUnavailable);
  CHECK(o3.error->message.find("w0 is gone") != std::string::npos);
}

// Both ends on threads of their own, sleeping at their doorbells, `rounds` values.
inline void RunsOnTwoThreads(const Factory& make, ShmEdgeSpec spec, int64_t rounds) {
  Pair p = make(spec, Clock::Real());
  bool sent_all = true;
  std::thread sender([&] {
    for (int64_t k = 0; k < rounds; ++k) {
      if (!Await(p.send_bell, [&] { return p.send->Poll(k) == PortState::kReady; })) sent_all = false;
      Value v = k % 7 == 6 ? ErrorValue(k) : ValueOf({k % 300}, k);
      absl::StatusOr<EventRef> e = p.send->Send(k, v, nullptr);
      if (!e.ok()) {
        sent_all = false;
        return;
      }
      while (!IsReady(*e)) {
        const uint32_t seen = p.send_bell->Snapshot();
        if (!IsReady(*e)) p.send_bell->Wait(seen, (*e)->ReadyAt(), 0);
      }
      if (v.error == nullptr && v.tensor.bytes() > 0) std::memset(v.tensor.data(), 0xEE, v.tensor.bytes());  // it is read no more
    }
  });
  int64_t wrong = 0;
  std::unique_ptr<Value> held[2];  // slots are held a while
  for (int64_t k = 0; k < rounds; ++k) {
    REQUIRE(Await(p.recv_bell, [&] { return p.recv->Poll(k) == PortState::kReady; }));
    auto v = std::make_unique<Value>();
    absl::StatusOr<EventRef> e = p.recv->Recv(k, Tensor(), v.get(), nullptr);
    REQUIRE(e.ok());
    while (!IsReady(*e)) {
      const uint32_t seen = p.recv_bell->Snapshot();
      if (!IsReady(*e)) p.recv_bell->Wait(seen, (*e)->ReadyAt(), 0);
    }
    held[k % 2] = std::move(v);
    if (k > 0) {
      const Value& old = *held[(k - 1) % 2];
      const bool error = (k - 1) % 7 == 6;
      if (error != (old.error != nullptr)) ++wrong;
      if (!error && !BitEqual(old.tensor, ValueOf({(k - 1) % 300}, k - 1).tensor)) ++wrong;
      p.recv->Release(k - 1);
    }
  }
  sender.join();
  CHECK(sent_all);
  CHECK(wrong == 0);
}

// Everything above; call it from a TEST_CASE.
inline void All(const Factory& make) {
  SECTION("carries values and errors") { CarriesValuesAndErrors(make); }
  SECTION("credits run out and come back") { CreditsRunOutAndComeBack(make); }
  SECTION("refuses what does not fit") { RefusesWhatDoesNotFit(make); }
  SECTION("grows with the value") { GrowsWithTheValue(make); }
  SECTION("closes with its cause") { ClosesWithItsCause(make); }
  SECTION("rendezvous takes the link's time") { RendezvousTakesTheLinksTime(make); }
  SECTION("two threads, buffered") { RunsOnTwoThreads(make, EdgeOf("[?<=300]", 3), 2000); }
  SECTION("two threads, dynamic") { RunsOnTwoThreads(make, EdgeOf("[?]", 2), 1000); }
  SECTION("two threads, rendezvous") {
    ShmEdgeSpec e = EdgeOf("[?<=300]", 2);
    e.rendezvous = true;
    e.latency_s = 20e-6;
    RunsOnTwoThreads(make, e, 300);
  }
}

}  // namespace weft::conformance
