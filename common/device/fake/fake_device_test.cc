#include "common/device/fake/fake_device.h"

#include <catch2/catch.hpp>
#include <vector>

namespace weft {
namespace {

Work Do(Work::Where where, std::function<void()> f) {
  Work w;
  w.where = where;
  w.run = [f = std::move(f)] {
    f();
    return absl::OkStatus();
  };
  return w;
}

TEST_CASE("fake device: inline work runs in Launch, its event comes by the script") {
  FakeClock clock;
  FakeDevice::Options o;
  o.polls = {2, 0};
  FakeDevice device(&clock, o);
  auto stream = *device.NewStream(v1::LANE_COMPUTE);
  bool a = false;
  const EventRef e = *stream->Launch(Do(Work::kInline, [&] { a = true; }));
  CHECK(a);
  CHECK_FALSE(e->Ready());
  CHECK_FALSE(e->Ready());
  CHECK(e->Ready());
  CHECK(IsReady(*stream->Launch(Do(Work::kInline, [] {}))));
}

TEST_CASE("fake device: thread work is not there before its event") {
  FakeClock clock;
  FakeDevice::Options o;
  o.polls = {1};
  FakeDevice device(&clock, o);
  auto stream = *device.NewStream(v1::LANE_COMPUTE);
  std::vector<int> ran;
  const EventRef a = *stream->Launch(Do(Work::kThread, [&] { ran.push_back(0); }));
  const EventRef b = *stream->Launch(Do(Work::kThread, [&] { ran.push_back(1); }));
  CHECK(ran.empty());
  int polls = 0;
  while (!b->Ready()) ++polls;  // asking the second alone moves the first
  CHECK(polls == 2);
  CHECK(a->Ready());
  CHECK(ran == std::vector<int>{0, 1});
}

TEST_CASE("fake device: time and holds follow the clock") {
  FakeClock clock;
  FakeDevice::Options o;
  o.polls = {0};
  FakeDevice device(&clock, o);
  auto stream = *device.NewStream(v1::LANE_COMPUTE);
  Nanos hold = 100;
  Work w = Do(Work::kThread, [&] { hold = 70; });
  w.hold = &hold;
  const EventRef e = *stream->Launch(std::move(w));
  CHECK_FALSE(e->Ready());
  CHECK(e->ReadyAt() == 70);
  clock.Advance(70);
  CHECK(e->Ready());

  FakeDevice::Options d;
  d.max_delay = 1000;
  FakeDevice timed(&clock, d);
  auto s = *timed.NewStream(v1::LANE_COMPUTE);
  for (int i = 0; i < 50; ++i) {
    bool ran = false;
    const EventRef t = *s->Launch(Do(Work::kThread, [&] { ran = true; }));
    if (!t->Ready()) {
      CHECK_FALSE(ran);
      clock.Set(t->ReadyAt());
      CHECK(t->Ready());
    }
    CHECK(ran);
  }
}

TEST_CASE("fake device: equal seeds give equal runs, others differ") {
  const auto polls = [](uint64_t seed) {
    FakeClock clock;
    FakeDevice::Options o;
    o.seed = seed;
    o.max_polls = 9;
    FakeDevice device(&clock, o);
    auto stream = *device.NewStream(v1::LANE_COMPUTE);
    std::vector<int> counts;
    for (int i = 0; i < 20; ++i) {
      const EventRef e = *stream->Launch(Do(Work::kInline, [] {}));
      int n = 0;
      while (!e->Ready()) ++n;
      counts.push_back(n);
    }
    return counts;
  };
  CHECK(polls(1) == polls(1));
  CHECK(polls(1) != polls(2));
}

TEST_CASE("fake device: a stream waits for another's event in its queue") {
  FakeClock clock;
  FakeDevice::Options o;
  o.polls = {1};
  o.queue_depth = 4;
  o.can_wait = true;
  FakeDevice device(&clock, o);
  auto a = *device.NewStream(v1::LANE_COMPUTE);
  auto b = *device.NewStream(v1::LANE_SEND);
  std::vector<int> ran;
  const EventRef first = *a->Launch(Do(Work::kThread, [&] { ran.push_back(0); }));
  REQUIRE(device.CanWaitFor(first));
  b->WaitFor(first);
  const EventRef second = *b->Launch(Do(Work::kThread, [&] { ran.push_back(1); }));
  while (!second->Ready()) {
  }
  CHECK(ran == std::vector<int>{0, 1});
}

TEST_CASE("fake device: a launch fails and health is lost as the test wants") {
  FakeClock clock;
  FakeDevice::Options o;
  o.fail_launch = 1;
  FakeDevice device(&clock, o);
  auto stream = *device.NewStream(v1::LANE_COMPUTE);
  CHECK(stream->Launch(Do(Work::kInline, [] {})).ok());
  CHECK_FALSE(stream->Launch(Do(Work::kInline, [] {})).ok());
  CHECK(stream->Launch(Do(Work::kInline, [] {})).ok());
  CHECK(device.launches() == 3);
  CHECK(device.Health().ok());
  device.SetHealth(absl::InternalError("illegal address"));
  CHECK_FALSE(device.Health().ok());
}

}  // namespace
}  // namespace weft
