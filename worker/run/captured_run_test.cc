// What CapturedRun rests on, and what it refuses; whole clusters are in tests/integration/captured_run_test.cc.

#include "worker/run/captured_run.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "common/device/fake/fake_device.h"
#include "worker/run/graph_run.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

// "make": a tensor of the execution's number, known to the device; "asks": likewise, but asks for the number on the host; "throws".
class GpuActor : public Actor {
 public:
  explicit GpuActor(CudaDevice* device) : device_(device) {}
  absl::StatusOr<int> Method(const std::string& name) const override {
    return name == "make" ? 0 : name == "asks" ? 1 : name == "throws" ? 2 : 3;
  }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int method, CallContext& ctx, const std::vector<Tensor>&, std::vector<Tensor>* outs) override {
    if (method == 1 && ctx.execution() < 0) return absl::InternalError("never");
    if (method == 2) throw std::runtime_error("thrown on purpose");
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {2});
    if (!out.ok()) return out.status();
    outs->at(0) = *out;
    return device_->Check(device_->kernels()->Fill(DeviceFill::kExecution, 0, 0, ctx.execution_number(), v1::F32, out->data(), 2,
                                                   ctx.stream()->native()),
                          "launching fill");
  }

 private:
  CudaDevice* const device_;
};

struct Gpu {
  FakePlugin fakes;
  FakeKernels kernels{&fakes.cuda};
  std::unique_ptr<CudaDevice> device = *CudaDevice::Create(fakes.plugin(&kernels), Clock::Real(), 0);
};

TestPlan Captured(const std::string& method, int slots = 2) {
  TestPlan t({"w0"});
  t.plan.workers[0].device = "cuda";
  t.plan.options.set_launch(v1::GRAPH);
  t.Compute("task", t.Actor("test"), method, {}, slots);
  t.plan.nodes[0].device_error = "failed";
  return t;
}

absl::StatusOr<std::unique_ptr<GraphRun>> Load(const Plan& plan, CudaDevice* cuda, Device* device, int64_t* admitted,
                                               std::vector<std::shared_ptr<void>>* kept = nullptr) {
  LoadedGraph l;
  if (kept != nullptr) l.keep = [kept](std::shared_ptr<void> what) { kept->push_back(std::move(what)); };
  l.plan = plan;
  for (const PlanActor& a : plan.actors) l.actors[a.id] = std::make_unique<GpuActor>(cuda);
  l.admitted = [admitted] { return *admitted; };
  GraphRun::Options o;
  o.clock = Clock::Real();
  o.device = device;
  return GraphRun::Create(std::move(l), o);
}

TEST_CASE("captured run: one graph for each slot number, launched in turn, as far as executions are admitted") {
  Gpu gpu;
  int64_t admitted = -1;
  auto run = Load(Captured("make", 3).plan, gpu.device.get(), gpu.device.get(), &admitted);
  INFO(run.status().ToString());
  REQUIRE(run.ok());
  CHECK(gpu.fakes.cuda.books().graph_execs == 3);
  const int64_t fills = gpu.fakes.cuda.calls("Enqueue");
  CHECK_FALSE((*run)->Step());
  admitted = 9;
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while ((*run)->completed() < 10 && Clock::Real()->Now() < limit) (*run)->Step();
  CHECK((*run)->completed() == 10);
  CHECK((*run)->progress() == 10);
  CHECK_FALSE((*run)->InFlight());
  CHECK(gpu.fakes.cuda.calls("GraphLaunch") == 10);
  CHECK(gpu.fakes.cuda.calls("Enqueue") == fills);  // no actor is called again
  (*run)->Fail(absl::CancelledError("enough"));
  admitted = 20;
  CHECK_FALSE((*run)->Step());
  CHECK((*run)->Quiescent());
}

TEST_CASE("captured run: while it pauses, what is launched ends and nothing is launched") {
  Gpu gpu;
  int64_t admitted = 1;
  auto run = Load(Captured("make", 3).plan, gpu.device.get(), gpu.device.get(), &admitted);
  REQUIRE(run.ok());
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (gpu.fakes.cuda.calls("GraphLaunch") < 2 && Clock::Real()->Now() < limit) (*run)->Step();
  admitted = 5;
  (*run)->Pause(true);
  while ((*run)->InFlight() && Clock::Real()->Now() < limit) (*run)->Step();
  CHECK((*run)->completed() == 2);
  CHECK_FALSE((*run)->Step());
  CHECK(gpu.fakes.cuda.calls("GraphLaunch") == 2);
  (*run)->Pause(false);
  CHECK((*run)->InFlight());
  while ((*run)->completed() < 6 && Clock::Real()->Now() < limit) (*run)->Step();
  CHECK((*run)->completed() == 6);
}

TEST_CASE("captured run: what is launched ends though the graph has failed, and then nothing is under way") {
  Gpu gpu;
  int64_t admitted = 1;
  auto run = Load(Captured("make", 3).plan, gpu.device.get(), gpu.device.get(), &admitted);
  REQUIRE(run.ok());
  CHECK((*run)->Step());
  REQUIRE(gpu.fakes.cuda.calls("GraphLaunch") > 0);
  (*run)->Fail(absl::CancelledError("enough"));
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while ((*run)->InFlight() && Clock::Real()->Now() < limit) (*run)->Step();
  CHECK_FALSE((*run)->InFlight());
  CHECK_FALSE((*run)->MustPoll());
  CHECK((*run)->Quiescent());
}

TEST_CASE("captured run: a method that asks for the execution's number on the host is refused, since one answer would hold for all") {
  Gpu gpu;
  int64_t admitted = -1;
  const absl::Status s = Load(Captured("asks").plan, gpu.device.get(), gpu.device.get(), &admitted).status();
  CHECK(absl::IsFailedPrecondition(s));
  CHECK(
      std::string(s.message()).find("COMPUTE task on w0: it cannot be captured: its method asked for the execution's number on the host") !=
      std::string::npos);
  CHECK(gpu.fakes.cuda.books().graph_execs == 0);
  CHECK(gpu.fakes.cuda.books().graphs == 0);
}

TEST_CASE("captured run: a call that throws fails the load by name") {
  Gpu gpu;
  int64_t admitted = -1;
  const absl::Status s = Load(Captured("throws").plan, gpu.device.get(), gpu.device.get(), &admitted).status();
  CHECK(std::string(s.message()).find("COMPUTE task on w0: it cannot be captured: the actor threw: thrown on purpose") !=
        std::string::npos);
}

TEST_CASE("captured run: a call that throws while status words are combined beside it ends the capture whole; its lanes are kept for who may still use them") {
  Gpu gpu;
  int64_t admitted = -1;
  const int streams = gpu.fakes.cuda.books().streams;
  TestPlan t = Captured("make");
  t.Compute("then", 0, "throws", {{0, 0}});
  std::vector<std::shared_ptr<void>> kept;
  const absl::Status s = Load(t.plan, gpu.device.get(), gpu.device.get(), &admitted, &kept).status();
  CHECK(std::string(s.message()).find("COMPUTE then on w0: it cannot be captured: the actor threw: thrown on purpose") != std::string::npos);
  CHECK(gpu.fakes.cuda.books().graphs == 0);
  CHECK(gpu.fakes.cuda.books().graph_execs == 0);
  CHECK(kept.size() == 1);
  CHECK(gpu.fakes.cuda.books().streams == streams + 1);
  kept.clear();
  CHECK(gpu.fakes.cuda.books().streams == streams);
  // The device is as before.
  t = Captured("make");
  t.Compute("then", 0, "make", {{0, 0}});
  CHECK(Load(t.plan, gpu.device.get(), gpu.device.get(), &admitted).ok());
}

TEST_CASE("captured run: plans that were edited by hand are refused, by op") {
  Gpu gpu;
  int64_t admitted = -1;
  const auto refused = [&](const TestPlan& t) {
    return std::string(Load(t.plan, gpu.device.get(), gpu.device.get(), &admitted).status().message());
  };
  TestPlan t = Captured("make");
  t.Compute("other", 0, "make", {}, 3);
  CHECK(refused(t).find("COMPUTE other on w0: it has 3 slots, and others have 2") != std::string::npos);
  t = Captured("make");
  t.plan.nodes[0].outputs = {TestPlan::F32Spec("[?<=2]")};
  CHECK(refused(t).find("COMPUTE task on w0: its value is F32[?<=2]") != std::string::npos);
}

TEST_CASE("captured run: a worker without a GPU refuses the part of one") {
  Gpu gpu;
  FakeClock clock;
  FakeDevice device(&clock);
  int64_t admitted = -1;
  const absl::Status s = Load(Captured("make").plan, gpu.device.get(), &device, &admitted).status();
  CHECK(std::string(s.message()).find("this one runs on cpu") != std::string::npos);
}

TEST_CASE("device errors: words and back, and who is no node") {
  TestPlan t({"w0", "w1"});
  t.Compute("a", t.Actor("test"), "m", {});
  t.Compute("b", 0, "m", {});
  t.plan.nodes[1].device_error = "broke";
  t.plan.actors[0].worker = 1;
  const DeviceErrors errors(t.plan);
  TaskError e{"w1", "b", (int64_t{1} << 32) + 7, absl::StatusCode::kDataLoss, "text"};
  const TaskErrorRef back = errors.ErrorOf(errors.WordOf(e));
  REQUIRE(back != nullptr);
  CHECK(back->worker == "w1");
  CHECK(back->node == "b");
  CHECK(back->execution == 7);  // the low half
  CHECK(back->code == absl::StatusCode::kDataLoss);
  CHECK(back->message == "broke");
  t.plan.nodes[1].config.set_message("as told");
  CHECK(DeviceErrors(t.plan).ErrorOf(errors.WordOf(e))->message == "as told");

  e.node = "an input";
  e.code = absl::StatusCode::kOk;  // never: an error has a code, and its word is not 0
  CHECK(errors.WordOf(e) != 0);
  CHECK(errors.ErrorOf(errors.WordOf(e))->message.find("no node of the graph") != std::string::npos);
  CHECK(errors.ErrorOf(uint64_t{13} << 56 | uint64_t{55} << 32) == nullptr);
}

TEST_CASE("arena layout: where GraphRun's buffers lie") {
  TestPlan t({"w0", "w1"});
  t.plan.workers[0].device = "cuda";
  const int in = t.Edge(1, 0, false, 2, TestPlan::F32Spec("[100]"));  // 400 bytes
  const int read = t.Receive(in);
  const int a =
      t.Compute("a", t.Actor("test"), "m", {{read, 0}}, 3, {TestPlan::F32Spec("[2]"), TestPlan::F32Spec("[?]"), TestPlan::F32Spec("[65]")});
  const auto offset = [&](int op, int output, int slot) { return ArenaLayout(t.plan).OffsetOf({op, output}, slot); };
  CHECK(*offset(read, 0, 1) == 512);
  CHECK(*offset(a, 0, 0) == 1024);
  CHECK(*offset(a, 2, 0) == 1024 + 256);
  CHECK(*offset(a, 0, 2) == 1024 + 2 * (256 + 512));
  CHECK(ArenaLayout(t.plan).bytes() == 1024 + 3 * (256 + 512));
  CHECK(Arena::BytesFor(t.plan) == ArenaLayout(t.plan).bytes());
  CHECK_FALSE(offset(a, 1, 0).ok());
  CHECK_FALSE(offset(a, 0, 3).ok());
  CHECK_FALSE(offset(a, 0, -1).ok());
  CHECK_FALSE(offset(a, 3, 0).ok());
  CHECK_FALSE(offset(77, 0, 0).ok());
  // With status words: 400 and 16 bytes still fit, 260 and 16 too, and 8 and 16.
  t.plan.nodes[0].device_error = "failed";
  CHECK(ArenaLayout(t.plan).bytes() == 1024 + 3 * (256 + 512));
}

}  // namespace
}  // namespace weft
