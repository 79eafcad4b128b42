#include "worker/run/loop_watch.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/device/cpu/cpu_device.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "worker/run/executor.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr Nanos kMilli = 1'000'000;

bool Within20s(const std::function<bool()>& holds) {
  const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (!holds()) {
    if (Clock::Real()->Now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

// Its method does not return while `shut`.
class GatedActor : public Actor {
 public:
  struct Gate {
    std::atomic<bool> shut{false};
    std::atomic<int> inside{0};
  };
  explicit GatedActor(Gate* gate) : gate_(gate) {}
  absl::StatusOr<int> Method(const std::string&) const override { return 0; }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>&, std::vector<Tensor>* outs) override {
    ++gate_->inside;
    while (gate_->shut.load()) std::this_thread::yield();
    --gate_->inside;
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {2});
    if (!out.ok()) return out.status();
    (*outs)[0] = *out;
    return absl::OkStatus();
  }

 private:
  Gate* const gate_;
};

std::unique_ptr<GraphRun> MakeRun(const std::string& name, Device* device, const Clock* clock, GatedActor::Gate* gate, std::atomic<int64_t>* admitted) {
  TestPlan t({"w0"});
  t.plan.graph = name;
  const int actor = t.Actor("test.Gated");
  t.Compute("x", actor, "make", {});
  LoadedGraph l;
  l.plan = t.plan;
  l.actors[actor] = std::make_unique<GatedActor>(gate);
  l.admitted = [admitted] { return admitted->load(); };
  GraphRun::Options o;
  o.clock = clock;
  o.device = device;
  return *GraphRun::Create(std::move(l), o);
}

struct Asked {
  std::atomic<int> answers{0};
  std::vector<v1::WorkerView> views;  // once answers is 1
  LoopWatch::Reply reply() {
    return [this](std::vector<v1::WorkerView> v) {
      if (answers.load() == 0) views = std::move(v);
      ++answers;
    };
  }
};

// A loop that runs, over a clock that stands still, and graphs "g" (gated) and "other".
struct Worker {
  explicit Worker(Device* on = nullptr) : device(on == nullptr ? &cpu : on), executor(Options()) {
    executor.Start();
    executor.Add(MakeRun("g", device, &clock, &gate, &admitted));
    executor.Add(MakeRun("other", device, &clock, &open, &admitted));
  }
  ~Worker() { gate.shut = false; }

  Executor::Options Options() {
    Executor::Options o;
    o.clock = &clock;
    o.doorbell = bell.get();
    o.device = device;
    o.on_slow = [this](const std::string& text) {
      MutexLock lock(&mu);
      log.push_back(text);
    };
    return o;
  }
  std::vector<std::string> Log() {
    MutexLock lock(&mu);
    return log;
  }
  void Admit(int64_t k) {
    admitted = k;
    bell->Ring();
  }
  // Runs executions below 3, then is stuck in execution 3.
  void GetStuck() {
    Admit(2);
    REQUIRE(Within20s([&] { return executor.progress() == 6; }));
    gate.shut = true;
    Admit(3);
    REQUIRE(Within20s([&] { return gate.inside.load() == 1; }));
  }
  // What the watch's thread does now and then; only the calls made here see the clock where it is.
  void LookTwice() {
    executor.CheckLoop();
    executor.CheckLoop();
  }

  FakeClock clock{100 * kNanosPerSecond};
  std::unique_ptr<Doorbell> bell = Doorbell::InProcess();
  CpuDevice cpu{&clock, bell.get()};
  Device* const device;
  GatedActor::Gate gate, open;
  std::atomic<int64_t> admitted{-1};
  Mutex mu;
  std::vector<std::string> log WEFT_GUARDED_BY(mu);
  Executor executor;
};

TEST_CASE("loop place: what is read was told at one moment") {
  LoopPlace place;
  std::atomic<bool> stop{false};
  std::thread loop([&] {
    for (int64_t k = 0; !stop.load(); ++k) {
      place.SetNow(3 * k);
      place.Enter(static_cast<LoopCall>(k % 8), static_cast<int>(k % LoopPlace::kMaxGraph), static_cast<int>(k % 1000), k);
    }
  });
  int64_t last = 0;
  for (int seen = 0; seen < 20000;) {
    const std::optional<LoopPlace::View> v = place.Read();
    if (!v.has_value() || v->sequence == 0) continue;
    ++seen;
    const int64_t k = v->execution;
    if (k < last || v->since != 3 * k || v->op != k % 1000 || v->graph != k % LoopPlace::kMaxGraph || static_cast<int64_t>(v->call) != k % 8 ||
        v->sequence != 2 * static_cast<uint64_t>(k + 1)) {
      FAIL("execution " << k << " of graph " << v->graph << " at " << v->since);
    }
    last = k;
  }
  stop = true;
  loop.join();
  place.Enter(LoopCall::kIssue, LoopPlace::kMaxGraph, -1, -1);
  const LoopPlace::View v = *place.Read();
  CHECK(v.graph == LoopPlace::kMaxGraph);
  CHECK(v.op == -1);
  CHECK(v.execution == -1);
}

TEST_CASE("loop watch: a loop stuck in a method is spoken for, by method, node, execution and graph") {
  Worker w;
  w.GetStuck();
  w.clock.Advance(3 * kNanosPerSecond);
  Asked one, all, late;
  w.executor.Inspect("g", one.reply());
  w.executor.Inspect("", all.reply());
  w.clock.Advance(LoopWatch::kStuck - kMilli);
  w.LookTwice();
  CHECK(one.answers == 0);
  w.clock.Advance(kMilli);
  w.LookTwice();
  REQUIRE(Within20s([&] { return one.answers == 1 && all.answers == 1; }));
  REQUIRE(one.views.size() == 1);
  CHECK(one.views[0].graph() == "g");
  CHECK(one.views[0].problem() ==
        absl::StrCat("the worker's loop has been inside method `make` of node x, actor a0 of class test.Gated (execution 3 of graph g) for 3.5 s, and serves nothing "
                     "else until that call returns: if it never does, end process ", getpid(), ", and its supervisor starts it anew (where it hangs: gdb -p ", getpid(),
                     ", thread weft-loop)"));
  REQUIRE(all.views.size() == 2);
  CHECK(all.views[0].graph() == "g");
  CHECK(all.views[1].graph() == "other");
  CHECK(all.views[1].problem() == one.views[0].problem());
  // Also a graph that has not come to the loop, and one that waits to be added.
  Asked unknown, added;
  w.executor.Add(MakeRun("new", w.device, &w.clock, &w.open, &w.admitted));
  w.executor.Inspect("unknown", unknown.reply());
  w.executor.Inspect("new", added.reply());
  w.clock.Advance(LoopWatch::kStuck);
  w.LookTwice();
  REQUIRE(Within20s([&] { return unknown.answers == 1 && added.answers == 1; }));
  REQUIRE(unknown.views.size() == 1);
  CHECK(unknown.views[0].graph() == "unknown");
  REQUIRE(added.views.size() == 1);
  CHECK_THAT(added.views[0].problem(), Contains("node x"));
  // When the call returns the loop speaks for itself, and nobody is told twice.
  w.gate.shut = false;
  w.executor.Inspect("g", late.reply());
  REQUIRE(Within20s([&] { return late.answers == 1; }));
  REQUIRE(late.views.size() == 1);
  CHECK(late.views[0].problem().empty());
  CHECK(late.views[0].lane_size() == 1);
  CHECK(one.answers == 1);
  CHECK(all.answers == 1);
}

TEST_CASE("loop watch: a call that is slow is logged once by name, and its end too") {
  Worker w;
  w.GetStuck();
  w.LookTwice();
  CHECK(w.Log().empty());
  w.clock.Advance(LoopWatch::kSlow);
  for (int i = 0; i < 3; ++i) w.LookTwice();
  w.clock.Advance(kNanosPerSecond);
  w.LookTwice();
  REQUIRE(w.Log().size() == 1);
  CHECK_THAT(w.Log()[0], StartsWith("the worker's loop has been inside method `make` of node x, actor a0 of class test.Gated (execution 3 of graph g) for 5.0 s"));
  w.gate.shut = false;
  REQUIRE(Within20s([&] { return w.executor.progress() == 8; }));
  w.LookTwice();
  REQUIRE(w.Log().size() == 2);
  CHECK(w.Log()[1] == "the worker's loop goes on: the call has returned, after at most 6.0 s");
}

TEST_CASE("loop watch: between its turns a loop is in no call, however long") {
  FakeClock clock;
  const auto bell = Doorbell::InProcess();
  CpuDevice device(&clock, bell.get());
  GatedActor::Gate open;
  std::atomic<int64_t> admitted{9};
  std::vector<std::string> log;
  Executor::Options o;
  o.clock = &clock;
  o.doorbell = bell.get();
  o.device = &device;
  o.on_slow = [&](const std::string& text) { log.push_back(text); };
  Executor e(o);
  e.Add(MakeRun("g", &device, &clock, &open, &admitted));
  while (e.StepOnce()) {
  }
  CHECK(e.progress() == 10);
  for (int i = 0; i < 3; ++i) {
    clock.Advance(1000 * kNanosPerSecond);
    e.CheckLoop();
  }
  CHECK(log.empty());
}

TEST_CASE("loop watch: graphs come, go and are asked about while others look") {
  Worker w;
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop.load()) {
      w.clock.Advance(LoopWatch::kStuck);  // so that the questions are late
      w.executor.CheckLoop();
    }
  });
  for (int round = 0; round < 30; ++round) {
    const std::string name = absl::StrCat("guest", round);
    w.executor.Add(MakeRun(name, w.device, &w.clock, &w.open, &w.admitted));
    Asked a;
    w.executor.Inspect("", a.reply());
    w.Admit(50 * round);
    REQUIRE(Within20s([&] { return a.answers == 1; }));
    std::promise<void> removed;
    w.executor.Remove(name, [&] { removed.set_value(); });
    removed.get_future().get();
    CHECK(a.answers == 1);
  }
  stop = true;
  watcher.join();
}

TEST_CASE("loop watch: a call of CUDA that hangs is named by the op that is being issued or ended") {
  FakePlugin fakes;
  FakeKernels kernels(&fakes.cuda);
  const std::unique_ptr<CudaDevice> cuda = *CudaDevice::Create(fakes.plugin(&kernels), Clock::Real(), 0);
  for (const auto& [method, where] : {std::pair<std::string, std::string>{"EventRecord", "inside method `make` of node x"},
                                      {"EventQuery", "inside finding out whether COMPUTE x (execution 0 of graph "}}) {
    INFO(method);
    Worker w(cuda.get());
    fakes.cuda.HoldCalls(method, true);
    w.Admit(0);
    REQUIRE(Within20s([&] { return fakes.cuda.held_calls() == 1; }));
    Asked a;
    w.executor.Inspect("g", a.reply());
    REQUIRE(Within20s([&] {
      w.clock.Advance(10 * kMilli);
      w.executor.CheckLoop();
      return a.answers == 1;
    }));
    REQUIRE(a.views.size() == 1);
    CHECK_THAT(a.views[0].problem(), Contains(where));
    fakes.cuda.HoldCalls(method, false);
    CHECK(Within20s([&] { return w.executor.progress() == 2; }));
  }
}

TEST_CASE("loop watch: a loop that moves and does not come to answer is told to be late, not stuck") {
  FakeClock clock(kNanosPerSecond);
  LoopWatch watch(&clock);
  const int g = watch.Add("g");
  watch.SetNamer(g, [](LoopCall, int op) { return absl::StrCat("op ", op); });
  watch.place()->SetNow(clock.Now());
  Asked a;
  const LoopWatch::Reply loop = watch.Ask("g", a.reply());
  for (Nanos t = 0; t < LoopWatch::kLate; t += 100 * kMilli) {
    watch.place()->SetNow(clock.Now());
    watch.place()->Enter(LoopCall::kIssue, g, 7, t);
    CHECK(watch.Check());
    CHECK(a.answers == 0);
    clock.Advance(100 * kMilli);
  }
  watch.place()->Leave();
  CHECK_FALSE(watch.Check());
  REQUIRE(a.answers == 1);
  CHECK(a.views.at(0).problem() ==
        "the worker's loop has not answered for 0.8 s, though it is stuck in no call: this machine has no time for it, or one call follows another");
  loop({});
  CHECK(a.answers == 1);
  // Names go when their graph does.
  watch.Forget(g);
  watch.place()->Enter(LoopCall::kIssue, g, 7, 1);
  const LoopWatch::Reply again = watch.Ask("g", a.reply());
  watch.Check();
  clock.Advance(LoopWatch::kStuck);
  CHECK_FALSE(watch.Check());
  CHECK(a.answers == 2);
  watch.Remove(g);
  CHECK(watch.Add("h") != g);
}

}  // namespace
}  // namespace weft
