#include "worker/run/executor.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "common/device/cpu/cpu_device.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

class Count : public Actor {
 public:
  absl::StatusOr<int> Method(const std::string&) const override { return 0; }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return false; }
  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {2});
    if (!out.ok()) return out.status();
    out->as<float>()[0] = out->as<float>()[1] = args.empty() ? 1 : args[0].as<float>()[0] + 1;
    (*outs)[0] = *out;
    return absl::OkStatus();
  }
};

// A device that fails for good when it is told to.
class BreakingDevice : public CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  absl::Status Health() const override { return broken ? absl::InternalError("the device is broken") : absl::OkStatus(); }
  bool broken = false;
};

// Breaks it, and says that all is well.
class Breaks : public Count {
 public:
  explicit Breaks(BreakingDevice* device) : device_(device) {}
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    device_->broken = true;
    return Count::Call(method, ctx, args, outs);
  }

 private:
  BreakingDevice* const device_;
};

// A graph without edges: two tasks in a row.
std::unique_ptr<GraphRun> MakeRun(const std::string& name, Device* device, std::atomic<int64_t>* admitted,
                                  std::unique_ptr<Actor> does = std::make_unique<Count>()) {
  TestPlan t({"w0"});
  t.plan.graph = name;
  const int actor = t.Actor("count");
  const int a = t.Compute("a", actor, "m", {});
  const int b = t.Compute("b", actor, "m", {{a, 0}});
  t.Wait(a, b, 2, v1::PlanWait::BUFFER);
  LoadedGraph l;
  l.plan = t.plan;
  l.actors[actor] = std::move(does);
  l.admitted = [admitted] { return admitted->load(); };
  GraphRun::Options o;
  o.clock = Clock::Real();
  o.device = device;
  o.trace_capacity = 1000;
  return *GraphRun::Create(std::move(l), o);
}

TEST_CASE("executor: several graphs run, are inspected, aborted and removed from other threads") {
  auto bell = Doorbell::InProcess();
  CpuDevice device(Clock::Real(), bell.get());
  std::atomic<int64_t> admitted{-1};
  std::promise<void> done[2];
  std::atomic<int> failed{0};
  Executor::Options o;
  o.clock = Clock::Real();
  o.doorbell = bell.get();
  o.on_completed = [&](const GraphRun& g, int64_t n) {
    if (n == 100) done[g.name() == "g1"].set_value();
  };
  o.on_failed = [&](const GraphRun&, const absl::Status&) { ++failed; };
  Executor e(o);
  e.Start();
  e.Add(MakeRun("g0", &device, &admitted));
  e.Add(MakeRun("g1", &device, &admitted));
  admitted = 99;
  bell->Ring();
  done[0].get_future().get();
  done[1].get_future().get();

  std::promise<std::vector<v1::WorkerView>> views;
  e.Inspect("", [&](std::vector<v1::WorkerView> v) { views.set_value(std::move(v)); });
  const auto seen = views.get_future().get();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].completed() == 100);

  std::promise<v1::TraceTrack> track;
  e.FetchTrace("g0", 3, [&](v1::TraceTrack t) { track.set_value(std::move(t)); });
  const v1::TraceTrack t = track.get_future().get();
  CHECK(t.event_size() == 6);
  CHECK(t.event(0).name() == "COMPUTE a");
  CHECK(t.event(0).end_ns() >= t.event(0).start_ns());

  e.Abort("g0", absl::UnavailableError("elsewhere"));
  e.Abort("unknown", absl::UnavailableError("late"));
  std::promise<void> removed;
  e.Remove("g0", [&] { removed.set_value(); });
  removed.get_future().get();
  std::promise<void> removed_again;
  e.Remove("g0", [&] { removed_again.set_value(); });  // late messages are normal
  removed_again.get_future().get();
  CHECK(failed == 0);  // what came from elsewhere is not told again
  CHECK(e.progress() == 400);
}

TEST_CASE("executor: while it is to pause, graphs come to rest though executions are admitted, and a view says why") {
  auto bell = Doorbell::InProcess();
  CpuDevice device(Clock::Real(), bell.get());
  std::atomic<int64_t> admitted{-1};
  bool pauses = true;
  std::vector<bool> rests;
  Executor::Options o;
  o.clock = Clock::Real();
  o.doorbell = bell.get();
  o.pauses = [&] { return pauses; };
  o.holds_device = [&](bool at_rest) {
    rests.push_back(at_rest);
    return false;
  };
  o.why_held = [] { return std::string("for a reason"); };
  Executor e(o);
  e.Add(MakeRun("g", &device, &admitted));
  admitted = 4;
  for (int i = 0; i < 3; ++i) e.StepOnce();
  CHECK(rests == std::vector<bool>{true, true, true});
  std::vector<v1::WorkerView> views;
  e.Inspect("", [&](std::vector<v1::WorkerView> v) { views = std::move(v); });
  e.StepOnce();
  REQUIRE(views.size() == 1);
  CHECK(views[0].completed() == 0);
  CHECK(views[0].problem() == "for a reason");
  pauses = false;
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  int64_t completed = 0;
  while (completed < 5 && Clock::Real()->Now() < limit) {
    e.StepOnce();
    e.Inspect("", [&](std::vector<v1::WorkerView> v) { completed = v[0].completed(); });
  }
  CHECK(completed == 5);
}

// Counts the calls that put something on it.
class CountingDevice : public CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  void SetTiming(bool on) override { ++timings; }
  int timings = 0;
};

TEST_CASE("executor: while it is to leave the device alone nothing is put there, whatever it is told, and it asks again though nothing rings") {
  auto bell = Doorbell::InProcess();
  CountingDevice device(Clock::Real(), bell.get());
  FakeClock clock(kNanosPerSecond);
  std::atomic<int64_t> admitted{-1};
  bool holds = true;
  Executor::Options o;
  o.clock = &clock;
  o.doorbell = bell.get();
  o.device = &device;
  o.holds_device = [&](bool) { return holds; };
  Executor e(o);
  e.Add(MakeRun("g", &device, &admitted));
  std::vector<std::string> told;
  // The same plan; one with other lanes would make streams.
  TestPlan t({"w0"});
  t.plan.graph = "g";
  const int actor = t.Actor("count");
  const int a = t.Compute("a", actor, "m", {});
  const int b = t.Compute("b", actor, "m", {{a, 0}});
  t.Wait(a, b, 2, v1::PlanWait::BUFFER);
  e.Replan("g", std::make_shared<const Plan>(t.plan), 0, [&](const absl::Status& s) { told.push_back(s.ok() ? "" : std::string(s.message())); });
  for (int i = 0; i < 3; ++i) e.StepOnce();
  CHECK(device.timings == 0);
  CHECK(told.empty());
  CHECK(e.NextTime() == 2 * kNanosPerSecond);
  holds = false;
  e.StepOnce();
  CHECK(device.timings == 1);
  CHECK(told == std::vector<std::string>{""});
  CHECK(e.NextTime() == Event::kUnknown);
  bool gone = false;
  e.Remove("g", [&] { gone = true; });
  for (int i = 0; i < 3; ++i) e.StepOnce();
  CHECK(gone);
  CHECK(device.timings == 2);
}

// A task that takes until it is let go.
class Holds : public Count {
 public:
  explicit Holds(const std::atomic<bool>* let_go) : let_go_(let_go) {}
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    while (!let_go_->load()) std::this_thread::yield();
    return Count::Call(method, ctx, args, outs);
  }

 private:
  const std::atomic<bool>* const let_go_;
};

TEST_CASE("executor: while it is to pause and what has begun is stuck, what is admitted by then begins too, and is again waited for twice as long") {
  auto bell = Doorbell::InProcess();
  CpuDevice device(Clock::Real(), bell.get()), slow(Clock::Real(), bell.get());
  FakeClock clock(kNanosPerSecond);
  std::atomic<int64_t> admitted{0}, other{-1};
  std::atomic<bool> let_go{false}, pauses{false};
  bool rests = false;
  Executor::Options o;
  o.clock = &clock;
  o.doorbell = bell.get();
  o.pauses = [&] { return pauses.load(); };
  o.holds_device = [&](bool at_rest) {
    rests = at_rest;
    return false;
  };
  Executor e(o);
  e.Add(MakeRun("slow", &slow, &admitted, std::make_unique<Holds>(&let_go)));
  e.Add(MakeRun("other", &device, &other));
  e.StepOnce();
  pauses = true;
  e.StepOnce();
  other = 2;
  const auto turns = [&] {
    for (int i = 0; i < 100; ++i) e.StepOnce();
  };
  turns();
  CHECK(e.progress() == 0);
  CHECK_FALSE(rests);
  const Nanos stuck = e.NextTime();
  CHECK(stuck > clock.Now());
  clock.Advance(stuck - clock.Now() - 1);
  turns();
  CHECK(e.progress() == 0);
  clock.Advance(1);
  turns();
  other = 5;  // too late for this time
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (e.progress() < 6 && Clock::Real()->Now() < limit) e.StepOnce();
  turns();
  CHECK(e.progress() == 6);
  CHECK(e.NextTime() - clock.Now() == 2 * (stuck - kNanosPerSecond));
  CHECK_FALSE(rests);
  let_go = true;
  while (!rests && Clock::Real()->Now() < limit) e.StepOnce();
  CHECK(e.progress() == 8);
  CHECK(e.NextTime() == Event::kUnknown);
  pauses = false;
  while (e.progress() < 14 && Clock::Real()->Now() < limit) e.StepOnce();
  CHECK(e.progress() == 14);
}

TEST_CASE("executor: a device that fails for good fails every graph with its cause, then is told of, and what it seems to have done does not count") {
  auto bell = Doorbell::InProcess();
  BreakingDevice device(Clock::Real(), bell.get());
  std::atomic<int64_t> admitted{0}, rests{-1};
  std::vector<std::string> told;
  Executor::Options o;
  o.clock = Clock::Real();
  o.doorbell = bell.get();
  o.device = &device;
  o.on_failed = [&](const GraphRun& g, const absl::Status& s) { told.push_back(g.name() + ": " + std::string(s.message())); };
  o.on_device_failed = [&](const absl::Status& s) { told.push_back(std::string(s.message())); };
  int64_t completed = 0;
  o.on_completed = [&](const GraphRun&, int64_t n) { completed = n; };
  Executor e(o);
  e.Add(MakeRun("rests", &device, &rests));
  e.Add(MakeRun("breaks", &device, &admitted, std::make_unique<Breaks>(&device)));
  // No turn that finds something says that nothing moved: the loop would sleep.
  while (e.StepOnce()) {
  }
  CHECK(told == std::vector<std::string>{"breaks: the device is broken", "rests: the device is broken", "the device is broken"});
  CHECK(completed == 0);
}

}  // namespace
}  // namespace weft
