#include "worker/run/graph_run.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "common/channel/fake/fake_link.h"
#include "common/device/fake/fake_device.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

// "sum": adds arguments and the execution's number. "fail": fails on odd executions. "wide": makes 3 elements whatever is declared.
// "late": as sum, on the device's thread. "throw": throws. "product": as sum, and may load device code.
class TestActor : public Actor {
 public:
  absl::StatusOr<int> Method(const std::string& name) const override {
    const std::map<std::string, int> m = {{"sum", 0}, {"fail", 1}, {"wide", 2}, {"late", 3}, {"throw", 4}, {"grow", 5}, {"product", 6}};
    const auto it = m.find(name);
    if (it == m.end()) return absl::NotFoundError("no method " + name);
    return it->second;
  }
  bool RunsInline(int method, const std::vector<Tensor>&) const override { return method != 3; }
  bool LoadsByShape(int method) const override { return method == 6; }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) override {
    if (method == 1 && ctx.execution() % 2 == 1) return absl::AbortedError("odd");
    if (method == 4) throw std::runtime_error("thrown on purpose");
    const int64_t n = method == 2 ? 3 : method == 5 ? ctx.execution() + 1 : 2;
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {n});
    if (!out.ok()) return out.status();
    for (int64_t i = 0; i < n; ++i) {
      float v = static_cast<float>(ctx.execution());
      for (const Tensor& a : args) v += a.as<float>()[i];
      out->as<float>()[i] = v;
    }
    (*outs)[0] = *out;
    return absl::OkStatus();
  }
};

// One worker with both kinds of neighbours: an input edge from w1 and an output edge to w1, driven by hand.
struct Rig {
  explicit Rig(TestPlan t, FakeDevice::Options device_options = {}, FakeLink::Options link_options = {}, std::function<bool()> owes = {})
      : device(&clock, device_options) {
    LoadedGraph l;
    link_options.clock = &clock;
    link_options.plan_hash = HashAsNumber(t.plan.hash);
    for (const PlanActor& a : t.plan.actors) l.actors[a.id] = std::make_unique<TestActor>();
    for (const PlanEdge& e : t.plan.edges) {
      ShmEdgeSpec s;
      s.edge = e.id;
      s.slots = e.slots;
      s.bytes = e.bytes;
      s.spec = e.spec;
      s.name = EdgeName(t.plan, e);
      s.src_worker = WorkerName(t.plan, e.src_worker);
      s.dst_worker = WorkerName(t.plan, e.dst_worker);
      s.rendezvous = e.rendezvous;
      links.push_back(std::make_unique<FakeLink>(s, link_options));
      if (e.dst_worker == t.plan.part_of) {
        l.receivers[e.id] = links.back()->TakeRecvPort();
        to_worker[e.id] = links.back()->TakeSendPort();
      } else {
        l.senders[e.id] = links.back()->TakeSendPort();
        from_worker[e.id] = links.back()->TakeRecvPort();
      }
    }
    l.plan = t.plan;
    l.owes = std::move(owes);
    l.admitted = [this] { return admitted; };
    l.close_links = [this](const absl::Status& s) { closed_with = s; };
    GraphRun::Options o;
    o.clock = &clock;
    o.device = &device;
    o.trace_capacity = 100;
    auto r = GraphRun::Create(std::move(l), o);
    created = r.status();
    if (r.ok()) run = *std::move(r);
  }

  void Drive(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) run->Step();
  }
  void Give(int edge, int64_t k, float v) {
    Value value;
    value.tensor = *Tensor::OnHost(v1::F32, {2});
    value.tensor.as<float>()[0] = value.tensor.as<float>()[1] = v;
    REQUIRE(to_worker[edge]->Poll(k) == PortState::kReady);
    REQUIRE(to_worker[edge]->Send(k, value, nullptr).ok());
  }
  // The message of execution k, released at once.
  Value Take(int edge, int64_t k, bool release = true) {
    Value out;
    if (from_worker[edge]->Poll(k) != PortState::kReady) {
      out.error = std::make_shared<TaskError>(TaskError{"", "", k, absl::StatusCode::kNotFound, "nothing came"});
      return out;
    }
    EventRef e = *from_worker[edge]->Recv(k, Tensor(), &out, nullptr);
    REQUIRE(IsReady(e));
    if (out.error == nullptr) {
      Tensor copy = *Tensor::OnHost(out.tensor.dtype(), out.tensor.dims());
      std::copy_n(out.tensor.as<char>(), out.tensor.bytes(), copy.as<char>());
      out.tensor = copy;
    }
    if (release) from_worker[edge]->Release(k);
    return out;
  }
  std::string LaneText(LaneKind kind) const {
    const v1::WorkerView view = run->Inspect();
    for (const v1::LaneView& l : view.lane()) {
      if (l.lane() == kind) return l.state() + " " + l.op() + ": " + l.waits_for();
    }
    return "";
  }

  FakeClock clock;
  FakeDevice device;
  std::vector<std::unique_ptr<FakeLink>> links;
  std::map<int, std::unique_ptr<SendPort>> to_worker;
  std::map<int, std::unique_ptr<RecvPort>> from_worker;
  int64_t admitted = -1;
  absl::Status closed_with;
  absl::Status created;
  std::unique_ptr<GraphRun> run;
};

// READ in -> first -> second(first, in) -> WRITE out, with the waits that the compiler makes.
TestPlan Chain(const std::string& first, const std::string& second, int slots = 2) {
  TestPlan t({"w0", "w1"});
  const int actor = t.Actor("test");
  const int in = t.Edge(1, 0, false, slots);
  const int out = t.Edge(0, 1, false, slots);
  const int read = t.Receive(in);
  const int a = t.Compute("first", actor, first, {{read, 0}}, slots);
  const int b = t.Compute("second", actor, second, {{a, 0}, {read, 0}}, slots);
  const int write = t.Send(out, {b, 0});
  t.Wait(a, b, slots, v1::PlanWait::BUFFER);
  t.Wait(b, write, slots, v1::PlanWait::BUFFER);
  return t;
}

TEST_CASE("graph run: values flow, executions in order, slots come back") {
  Rig r(Chain("sum", "sum"));
  REQUIRE(r.created.ok());
  r.admitted = 9;
  for (int k = 0; k < 10; ++k) {
    r.Give(0, k, 10.0f * k);
    r.Drive();
    const Value v = r.Take(1, k);
    REQUIRE(v.error == nullptr);
    CHECK(v.tensor.as<float>()[1] == 2 * (10.0f * k) + 2 * k);
    r.Drive();
    CHECK(r.run->completed() == k + 1);
  }
  CHECK(r.run->progress() == 40);
  CHECK_FALSE(r.run->InFlight());
}

TEST_CASE("graph run: nothing is issued before it is admitted, and inspect says so") {
  Rig r(Chain("sum", "sum"));
  r.Give(0, 0, 1);
  r.Drive();
  CHECK(r.run->progress() == 0);
  CHECK(r.LaneText(v1::LANE_RECV).find("execution 0 to be admitted") != std::string::npos);
  r.admitted = 0;
  r.Drive();
  CHECK(r.run->completed() == 1);
}

TEST_CASE("graph run: while it pauses, an execution that has begun ends and the next does not begin") {
  TestPlan t({"w0", "w1"});
  const int actor = t.Actor("test");
  const int left = t.Edge(1, 0, false, 2), right = t.Edge(1, 0, false, 2), out = t.Edge(0, 1, false, 2);
  const int read_left = t.Receive(left), read_right = t.Receive(right);
  const int sum = t.Compute("sum", actor, "sum", {{read_left, 0}, {read_right, 0}}, 2);
  t.Wait(sum, t.Send(out, {sum, 0}), 2, v1::PlanWait::BUFFER);
  Rig r(std::move(t));
  REQUIRE(r.created.ok());
  r.admitted = 9;
  r.Give(0, 0, 1);
  r.Drive();
  r.run->Pause(true);
  CHECK(r.run->InFlight());  // half of it is here
  r.Give(0, 1, 2);
  r.Give(1, 0, 3);
  for (int i = 0; i < 10; ++i) {
    r.run->Pause(true);  // each turn anew
    r.Drive();
  }
  CHECK(r.run->completed() == 1);
  CHECK_FALSE(r.run->InFlight());  // it rests, though more is admitted and there
  const int64_t progress = r.run->progress();
  r.Give(1, 1, 4);
  r.Drive();
  CHECK(r.run->progress() == progress);
  const v1::WorkerView view = r.run->Inspect();
  REQUIRE(view.lane_size() == 3);
  for (const v1::LaneView& l : view.lane()) {
    CHECK(l.state() == "idle");
    CHECK(l.waits_for() == "execution 1 to be begun, when this worker pauses no more");
  }
  CHECK(view.admitted() == 10);
  // What is admitted by now may begin; what is admitted later may not.
  r.run->Pause(true, /*admitted=*/true);
  CHECK(r.run->InFlight());
  r.Drive();
  CHECK(r.run->completed() == 2);
  r.admitted = 19;
  for (int k = 0; k < 2; ++k) r.Take(out, k);
  for (int k = 2; k < 12; ++k) {
    r.Give(left, k, 1);
    r.Give(right, k, 1);
    r.run->Pause(true);
    r.Drive();
    CHECK(r.run->completed() == std::min(k + 1, 10));
    if (k < 10) r.Take(out, k);
  }
  CHECK_FALSE(r.run->InFlight());
  r.run->Pause(false);
  CHECK(r.run->InFlight());
  r.Drive();
  CHECK(r.run->completed() == 12);
}

TEST_CASE("graph run: a worker that has an actor and nothing to do has done what is admitted, and rests") {
  TestPlan t({"w0", "w1"});
  t.Actor("test");
  Rig r(std::move(t));
  REQUIRE(r.created.ok());
  CHECK_FALSE(r.run->InFlight());
  r.admitted = 2;
  r.Drive();
  CHECK(r.run->completed() == 3);
  CHECK_FALSE(r.run->InFlight());
}

TEST_CASE("graph run: a call that may load device code waits until nothing is owed to peers, where only its execution tells its shapes") {
  for (const bool fixed : {true, false}) {
    const Spec spec = TestPlan::F32Spec(fixed ? "[2]" : "[?<=2]");
    TestPlan t({"w0", "w1"});
    const int actor = t.Actor("test");
    const int in = t.Edge(1, 0, false, 2, spec), out = t.Edge(0, 1, false, 2, spec);
    const int read = t.Receive(in);
    const int product = t.Compute("c", actor, "product", {{read, 0}}, 2, {spec});
    t.Wait(product, t.Send(out, {product, 0}), 2, v1::PlanWait::BUFFER);
    bool owes = true;
    Rig r(std::move(t), {}, {}, [&owes] { return owes; });
    INFO(r.created.ToString());
    REQUIRE(r.created.ok());
    r.admitted = 0;
    r.Give(0, 0, 1);
    r.Drive();
    CHECK(r.run->completed() == (fixed ? 1 : 0));
    if (fixed) continue;
    CHECK(r.LaneText(v1::LANE_COMPUTE) ==
          "waiting COMPUTE c: transfers that peers have been told of to be launched, and bootstraps of other graphs to end: loading device code for the call's shapes "
          "would hold them up");
    owes = false;
    r.Drive();
    CHECK(r.run->completed() == 1);
  }
}

TEST_CASE("graph run: what it waits for has a name") {
  Rig r(Chain("sum", "sum"));
  r.admitted = 9;
  r.Drive();
  CHECK(r.LaneText(v1::LANE_RECV).find("w1 to write execution 0") != std::string::npos);
  CHECK(r.LaneText(v1::LANE_COMPUTE).find("READ p0:0 -> c0:0") != std::string::npos);
  CHECK(r.LaneText(v1::LANE_SEND).find("COMPUTE second") != std::string::npos);
  // The peer takes nothing: two slots on the edge, two buffers behind it, then everything stands and says why.
  for (int k = 0; k < 4; ++k) {
    r.Give(0, k, 1);
    r.Drive();
  }
  CHECK(r.LaneText(v1::LANE_SEND).find("w1 to release execution 0 (2 of 2 slots taken)") != std::string::npos);
}

TEST_CASE("graph run: an error poisons its consumers only, and the next execution is well") {
  Rig r(Chain("fail", "sum"));
  r.admitted = 3;
  for (int k = 0; k < 4; ++k) {
    r.Give(0, k, 1);
    r.Drive();
    const Value v = r.Take(1, k);
    if (k % 2 == 0) {
      CHECK(v.error == nullptr);
      continue;
    }
    REQUIRE(v.error != nullptr);
    CHECK(v.error->worker == "w0");
    CHECK(v.error->node == "first");
    CHECK(v.error->execution == k);
    CHECK(v.error->message == "odd");
    CHECK(v.error->code == absl::StatusCode::kAborted);
  }
  CHECK(r.run->failure().ok());
}

TEST_CASE("graph run: an error that comes in is passed on with its origin") {
  Rig r(Chain("sum", "sum"));
  r.admitted = 0;
  Value poisoned;
  poisoned.error = std::make_shared<TaskError>(TaskError{"w7", "far", 0, absl::StatusCode::kInternal, "broke far away"});
  REQUIRE(r.to_worker[0]->Send(0, poisoned, nullptr).ok());
  r.Drive();
  const Value v = r.Take(1, 0);
  REQUIRE(v.error != nullptr);
  CHECK(v.error->worker == "w7");
  CHECK(v.error->message == "broke far away");
}

TEST_CASE("graph run: outputs that break their declaration, and exceptions, are errors of the task") {
  for (const char* method : {"wide", "throw"}) {
    Rig r(Chain("sum", method));
    r.admitted = 0;
    r.Give(0, 0, 1);
    r.Drive();
    const Value v = r.Take(1, 0);
    REQUIRE(v.error != nullptr);
    CHECK(v.error->node == "second");
    CHECK(v.error->message.find(method[0] == 'w' ? "declared is F32[2]" : "thrown on purpose") != std::string::npos);
    CHECK(r.run->failure().ok());
  }
}

TEST_CASE("graph run: a value beyond an edge's bound is an error that names the edge, in the value's place") {
  TestPlan t({"w0", "w1"});
  const int actor = t.Actor("test");
  const Spec narrow = TestPlan::F32Spec("[?<=2]");
  const int out = t.Edge(0, 1, false, 2, narrow);
  const int a = t.Compute("grows", actor, "grow", {}, 2, {TestPlan::F32Spec("[?<=9]")});
  const int write = t.Send(out, {a, 0});
  t.Wait(a, write, 2, v1::PlanWait::BUFFER);
  Rig r(t);
  REQUIRE(r.created.ok());
  r.admitted = 3;
  for (int k = 0; k < 4; ++k) {
    r.Drive();
    const Value v = r.Take(out, k);
    CHECK((v.error == nullptr) == (k < 2));
    if (k >= 2) CHECK(v.error->message.find("p0:0 -> c0:0") != std::string::npos);
  }
  CHECK(r.run->failure().ok());
}

TEST_CASE("graph run: a peer that goes ends the graph with an op, a worker and a cause") {
  Rig r(Chain("sum", "sum"));
  r.admitted = 5;
  r.Give(0, 0, 1);
  r.Drive();
  r.links[0]->Close(absl::UnavailableError("w1 is gone"));
  r.Drive();
  REQUIRE_FALSE(r.run->failure().ok());
  const std::string m(r.run->failure().message());
  CHECK(m.find("READ p0:0 -> c0:0 on w0, execution 1") != std::string::npos);
  CHECK(m.find("w1 is gone") != std::string::npos);
  CHECK(r.closed_with == r.run->failure());
  r.run->Fail(absl::InternalError("a consequence"));
  CHECK(std::string(r.run->failure().message()) == m);  // the first cause stays
}

TEST_CASE("graph run: after Fail it is quiescent only when no call runs") {
  FakeDevice::Options slow;
  slow.polls = {5};
  Rig r(Chain("late", "sum"), slow);
  r.admitted = 0;
  r.Give(0, 0, 1);
  r.run->Step();
  r.run->Fail(absl::CancelledError("stop"));
  CHECK_FALSE(r.run->Quiescent());
  for (int i = 0; i < 10 && !r.run->Quiescent(); ++i) r.Drive(1);
  CHECK(r.run->Quiescent());
}

TEST_CASE("graph run: a device that queues takes ops ahead of their inputs' completion") {
  FakeDevice::Options q;
  q.queue_depth = 16;
  q.can_wait = true;
  q.polls = {3};
  Rig r(Chain("sum", "sum"), q);
  r.admitted = 3;
  for (int k = 0; k < 4; ++k) {
    r.Give(0, k, 1.0f + k);
    r.Drive();
    const Value v = r.Take(1, k);
    REQUIRE(v.error == nullptr);
    CHECK(v.tensor.as<float>()[0] == 2 * (1.0f + k) + 2 * k);
  }
}

TEST_CASE("graph run: released buffers are overwritten when asked") {
  TestPlan t = Chain("sum", "sum");
  t.plan.options.set_poison_released(true);
  Rig r(t);
  r.admitted = 1;
  for (int k = 0; k < 2; ++k) {
    r.Give(0, k, 3);
    r.Drive();
    CHECK(r.Take(1, k).tensor.as<float>()[0] == 6 + 2 * k);  // readers saw what they should
  }
}

TEST_CASE("graph run: a missing port is found at load, by name") {
  TestPlan t = Chain("sum", "nothing-of-the-kind");
  Rig r(t);
  CHECK(std::string(r.created.message()).find("nothing-of-the-kind") != std::string::npos);
}

TEST_CASE("trace recorder keeps the last records, oldest first") {
  TraceRecorder t(3);
  for (int i = 0; i < 5; ++i) t.Add({i, false, i, i, i + 1});
  const auto all = t.Since(0);
  REQUIRE(all.size() == 3);
  CHECK(all[0].op == 2);
  CHECK(all[2].op == 4);
  CHECK(t.Since(4).size() == 1);
  CHECK(TraceRecorder(0).Since(0).empty());
}

}  // namespace
}  // namespace weft
