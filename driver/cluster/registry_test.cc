#include "driver/cluster/registry.h"

#include <catch2/catch.hpp>

#include "driver/cluster/fake_cluster.h"

namespace weft {
namespace {

using What = v1::DriverMessage;

TEST_CASE("workers get the name they ask for, or the first free one") {
  FakeCluster c;
  FakeWorker a(&c.coordinator, "", "i1");
  FakeWorker b(&c.coordinator, "w1", "i2");
  FakeWorker d(&c.coordinator, "", "i3");
  CHECK(a.name == "w0");
  CHECK(b.name == "w1");
  CHECK(d.name == "w2");
  REQUIRE(a.link->sent.size() >= 1);
  const v1::DriverMessage& first = a.link->sent[0];
  REQUIRE(first.has_welcome());
  CHECK(first.welcome().name() == "w0");
  CHECK(first.welcome().driver_host_id() == "hostA");
  CHECK(first.welcome().driver_shm_address() == "shm-driver");
  CHECK(first.driver_incarnation() == "driver1");
}

TEST_CASE("a live worker's name is refused, a lost one's is free again") {
  FakeCluster c;
  FakeWorker a(&c.coordinator, "x", "i1", 77);
  FakeWorker b(&c.coordinator, "x", "i2");
  REQUIRE_FALSE(b.joined.ok());
  CHECK(absl::IsAlreadyExists(b.joined.status()));
  CHECK(std::string(b.joined.status().message()).find("pid 77") != std::string::npos);
  a.Die();
  CHECK(c.coordinator.ListWorkers().worker(0).state() == "lost");
  FakeWorker d(&c.coordinator, "x", "i3");
  REQUIRE(d.joined.ok());
  CHECK(c.coordinator.ListWorkers().worker_size() == 1);
  CHECK(c.coordinator.ListWorkers().worker(0).state() == "alive");
  // The old stream's end, reported late, does not touch the new incarnation.
  a.Die();
  CHECK(c.coordinator.ListWorkers().worker(0).state() == "alive");
}

TEST_CASE("bad registrations are refused with words") {
  FakeCluster c;
  auto link = std::make_shared<FakeLink>();
  v1::WorkerMessage m;
  CHECK(absl::IsInvalidArgument(c.coordinator.WorkerJoined(m, link).status()));
  m.mutable_register_()->set_plan_version(kPlanVersion);
  CHECK(absl::IsInvalidArgument(c.coordinator.WorkerJoined(m, link).status()));  // no incarnation
  m.set_incarnation("i");
  m.mutable_register_()->set_name("a/b");
  CHECK(absl::IsInvalidArgument(c.coordinator.WorkerJoined(m, link).status()));
  m.mutable_register_()->set_name("ab");
  m.mutable_register_()->set_plan_version(kPlanVersion + 1);
  CHECK(absl::IsFailedPrecondition(c.coordinator.WorkerJoined(m, link).status()));
  CHECK(link->sent.empty());
}

TEST_CASE("missing heartbeats make a worker unresponsive and nothing else") {
  FakeCluster c;
  FakeWorker a(&c.coordinator, "", "i1");
  c.MakeReady(FakeCluster::Graph("g", {"w0"}), {&a});
  REQUIRE(c.StateOf("g") == "ready");
  c.After(10);
  CHECK(c.coordinator.ListWorkers().worker(0).state() == "unresponsive");
  CHECK(c.coordinator.ListWorkers().worker(0).heartbeat_age_s() == Approx(10));
  CHECK(c.StateOf("g") == "ready");
  a.Heartbeat(1);
  CHECK(c.coordinator.ListWorkers().worker(0).state() == "alive");
}

TEST_CASE("messages of another incarnation are dropped and counted") {
  FakeCluster c;
  FakeWorker a(&c.coordinator, "", "i1");
  const int64_t before = c.coordinator.ListWorkers().dropped_messages();
  v1::WorkerMessage m;
  m.set_incarnation("i0");
  m.mutable_heartbeat()->set_progress(99);
  c.coordinator.WorkerSaid("w0", m);
  CHECK(c.coordinator.ListWorkers().dropped_messages() == before + 1);
  CHECK(c.coordinator.registry()->ProgressOf("w0") == 0);
  c.coordinator.WorkerSaid("nobody", m);
  CHECK(c.coordinator.ListWorkers().dropped_messages() == before + 2);
}

TEST_CASE("names sort naturally") {
  CHECK(NaturalLess("w2", "w10"));
  CHECK_FALSE(NaturalLess("w10", "w2"));
  CHECK(NaturalLess("a", "b"));
  CHECK(NaturalLess("w", "w0"));
  CHECK_FALSE(NaturalLess("w3", "w3"));
  CHECK(NaturalLess("w01", "w1") != NaturalLess("w1", "w01"));
}

TEST_CASE("the clock's offset comes from the fastest of the last samples") {
  FakeCluster c;
  FakeWorker a(&c.coordinator, "", "i1");
  WorkerRegistry* registry = c.coordinator.registry();
  ClockSync sync(&c.clock, registry);
  sync.Joined("w0", "i1");
  // The worker's clock stands 5 s behind. Round trips of 9, 8, ... ms; the reply lies at a third of each.
  for (int i = 0; i < ClockSync::kKept; ++i) {
    const Nanos round = (9 - i) * 1'000'000;
    const auto pings = a.link->Of(What::kClockPing);
    c.clock.Advance(round / 3);
    const Nanos worker = c.clock.Now() - 5 * kNanosPerSecond;
    c.clock.Advance(round - round / 3);
    sync.Reply("w0", pings.back().clock_ping().request(), worker, c.clock.Now());
  }
  const ClockSync::Offset offset = sync.OffsetOf("w0");
  REQUIRE(offset.known);
  CHECK(offset.error == 1'000'000);
  CHECK(std::abs(offset.offset - 5 * kNanosPerSecond) <= offset.error);
  // After the burst it waits.
  const int count = a.link->Count(What::kClockPing);
  sync.Tick();
  CHECK(a.link->Count(What::kClockPing) == count);
  c.clock.Advance(ClockSync::kInterval);
  sync.Tick();
  CHECK(a.link->Count(What::kClockPing) == count + 1);
  // A reply to a ping that was never sent changes nothing.
  sync.Reply("w0", 12345, 0, c.clock.Now());
  CHECK(sync.OffsetOf("w0").error == 1'000'000);
}

}  // namespace
}  // namespace weft
