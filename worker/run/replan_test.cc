#include <catch2/catch.hpp>
#include <future>

#include "common/device/fake/fake_device.h"
#include "worker/run/executor.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

// What its calls were, in their order, over its whole life.
class Memory : public Actor {
 public:
  explicit Memory(std::vector<std::string>* calls) : calls_(calls) {}
  absl::StatusOr<int> Method(const std::string& name) const override { return name == "x" ? 0 : 1; }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>&, std::vector<Tensor>* outs) override {
    calls_->push_back((method == 0 ? "x" : "y") + std::to_string(ctx.execution()));
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {2});
    if (!out.ok()) return out.status();
    memory_.push_back(out->data());
    (*outs)[0] = *out;
    return absl::OkStatus();
  }
  std::vector<void*> memory_;

 private:
  std::vector<std::string>* const calls_;
};

// Two calls of one actor that need nothing of each other, in one order or the other.
Plan Order(bool x_first, const std::string& hash, int slots = 2) {
  TestPlan t({"w0"});
  const int actor = t.Actor("memory");
  const int a = t.Compute("x", actor, "x", {}, slots), b = t.Compute("y", actor, "y", {}, slots);
  if (!x_first) {
    std::swap(t.plan.ops[a].node, t.plan.ops[b].node);
  }
  t.plan.hash = hash;
  return t.plan;
}

struct Rig {
  explicit Rig(Plan plan = Order(true, "one")) : device(&clock) {
    LoadedGraph l;
    l.plan = std::move(plan);
    auto memory = std::make_unique<Memory>(&calls);
    actor = memory.get();
    l.actors[0] = std::move(memory);
    l.admitted = [this] { return admitted; };
    GraphRun::Options o;
    o.clock = &clock;
    o.device = &device;
    o.trace_capacity = 100;
    run = *GraphRun::Create(std::move(l), o);
  }
  void Drive(int64_t to) {
    admitted = to;
    for (int i = 0; i < 50; ++i) run->Step();
  }
  FakeClock clock;
  FakeDevice device;
  std::vector<std::string> calls;
  Memory* actor = nullptr;
  int64_t admitted = -1;
  std::unique_ptr<GraphRun> run;
};

TEST_CASE("replan: the order changes between two executions, actors and buffers stay") {
  Rig r;
  r.Drive(1);
  REQUIRE(r.run->Replan(Order(false, "two"), 2).ok());
  CHECK(r.run->plan().hash == "two");
  CHECK(r.run->completed() == 2);
  CHECK_FALSE(r.run->InFlight());
  r.Drive(2);
  REQUIRE(r.run->Replan(Order(true, "one"), 3).ok());
  r.Drive(3);
  CHECK(r.calls == std::vector<std::string>{"x0", "y0", "x1", "y1", "y2", "x2", "x3", "y3"});
  CHECK(r.run->completed() == 4);
  // The same two buffers a call, in the same turn: x0 x2, x1 x3, y0 y2, y1 y3.
  const auto& m = r.actor->memory_;
  REQUIRE(m.size() == 8);
  CHECK(m[0] == m[5]);
  CHECK(m[2] == m[6]);
  CHECK(m[1] == m[4]);
  CHECK(m[3] == m[7]);
  // What was recorded by another order is gone.
  CHECK(r.run->trace().Since(0).size() == 2);
}

TEST_CASE("replan: only what differs in nothing but its order, only between executions, and otherwise all is as before") {
  Rig r;
  r.Drive(1);
  const auto refused = [&](Plan plan, int64_t from) {
    const absl::Status s = r.run->Replan(std::move(plan), from);
    REQUIRE_FALSE(s.ok());
    return std::string(s.message());
  };
  Plan other = Order(false, "two");
  other.nodes[1].name = "z";
  CHECK(refused(other, 2) == "the new plan changes node y: only the order of a running graph can change");
  CHECK(refused(Order(false, "two", 3), 2) ==
        "the new plan gives COMPUTE y on w0 3 buffers, and it has 2: tear the graph down and compile it again");
  other = Order(false, "two");
  other.graph = "another";
  CHECK(refused(other, 2) == "the new plan is not that of graph g on w0");
  other = Order(false, "two");
  other.ops.pop_back();
  CHECK(refused(other, 2) == "the new plan has 1 ops on w0, and 2 run");
  other = Order(false, "two");
  other.ops[1].node = other.ops[0].node;
  CHECK(refused(other, 2).find("which does not run") != std::string::npos);
  CHECK(refused(Order(false, "two"), 1).find("2 are done, 2 admitted") != std::string::npos);
  CHECK(refused(Order(false, "two"), 3).find("are not all done") != std::string::npos);
  r.Drive(2);
  CHECK(r.calls.back() == "y2");
  CHECK(r.run->plan().hash == "one");
  r.run->Fail(absl::UnavailableError("w7 is gone"));
  CHECK(refused(Order(false, "two"), 3) == "w7 is gone");
}

// The executor's thread and the test's are one.
struct Loop {
  Loop() : bell(Doorbell::InProcess()) {
    Executor::Options o;
    o.clock = &rig.clock;
    o.doorbell = bell.get();
    executor = std::make_unique<Executor>(o);
    executor->Add(std::move(rig.run));
    Steps();
  }
  void Steps() {
    for (int i = 0; i < 50; ++i) executor->StepOnce();
  }
  void Replan(const std::string& hash, int64_t from, absl::Status* to) {
    *to = absl::UnknownError("not yet");
    executor->Replan("g", std::make_shared<const Plan>(Order(hash == "one", hash)), from, [to](const absl::Status& s) { *to = s; });
    Steps();
  }
  Rig rig;
  std::unique_ptr<Doorbell> bell;
  std::unique_ptr<Executor> executor;
};

TEST_CASE("replan: a loop changes when the executions before are done, and tells once") {
  Loop l;
  absl::Status first, second;
  l.Replan("two", 2, &first);
  CHECK(absl::IsUnknown(first));  // nothing has run yet
  l.rig.admitted = 0;
  l.Steps();
  CHECK(absl::IsUnknown(first));
  l.rig.admitted = 1;
  l.Steps();
  CHECK(first.ok());
  l.rig.admitted = 2;
  l.Steps();
  CHECK(l.rig.calls.back() == "x2");
  // To the plan that it has: at once, whatever was done.
  l.Replan("two", 9, &second);
  CHECK(second.ok());
  // One that is given up for another.
  l.Replan("one", 4, &first);
  l.Replan("two", 4, &second);
  CHECK(absl::IsCancelled(first));
  CHECK(second.ok());
  absl::Status checked;
  std::string current;
  l.executor->CheckReplan("g", std::make_shared<const Plan>(Order(true, "one")), [&](const absl::Status& s, std::shared_ptr<const Plan> p) {
    checked = s;
    current = p->hash;
  });
  l.Steps();
  CHECK(checked.ok());
  CHECK(current == "two");
}

TEST_CASE("replan: a graph that fails, is removed or is not there ends what waits") {
  absl::Status status;
  {
    Loop l;
    l.Replan("two", 2, &status);
    l.executor->Abort("g", absl::UnavailableError("w7 is gone"));
    l.Steps();
    CHECK(status.message() == "w7 is gone");
  }
  {
    Loop l;
    l.Replan("two", 2, &status);
    l.executor->Remove("g", nullptr);
    l.Steps();
    CHECK(absl::IsCancelled(status));
    l.Replan("two", 2, &status);
    CHECK(absl::IsNotFound(status));
    l.executor->CheckReplan("g", nullptr, [&](const absl::Status& s, std::shared_ptr<const Plan> p) { CHECK(p == nullptr); });
    l.Steps();
  }
  {
    Loop l;
    l.Replan("two", 2, &status);
  }
  CHECK(absl::IsCancelled(status));  // the worker ends
}

}  // namespace
}  // namespace weft
