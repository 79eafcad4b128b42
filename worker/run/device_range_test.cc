// What a profiler of the device is shown.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "worker/run/graph_run.h"
#include "worker/run/test_plan.h"

namespace weft {
namespace {

// Remembers ranges, which the fake only counts.
class RangeCuda : public FakeCuda {
 public:
  void RangePush(const char* name) override {
    FakeCuda::RangePush(name);
    names.emplace_back(name);
    ++depth;
  }
  void RangePop() override {
    FakeCuda::RangePop();
    --depth;
  }
  std::vector<std::string> names;
  int depth = 0;
};

class DepthActor : public Actor {
 public:
  DepthActor(CudaDevice* device, const RangeCuda* cuda, std::vector<int>* depths) : device_(device), cuda_(cuda), depths_(depths) {}
  absl::StatusOr<int> Method(const std::string&) const override { return 0; }
  bool RunsInline(int, const std::vector<Tensor>&) const override { return true; }
  absl::Status Call(int, CallContext& ctx, const std::vector<Tensor>&, std::vector<Tensor>* outs) override {
    depths_->push_back(cuda_->depth);
    absl::StatusOr<Tensor> out = ctx.AllocateOutput(0, v1::F32, {2});
    if (!out.ok()) return out.status();
    outs->at(0) = *out;
    return device_->Check(device_->kernels()->Fill(DeviceFill::kNumber, 1, 0, ctx.execution_number(), v1::F32, out->data(), 2, ctx.stream()->native()),
                          "launching fill");
  }

 private:
  CudaDevice* const device_;
  const RangeCuda* const cuda_;
  std::vector<int>* const depths_;
};

struct Gpu {
  Gpu() {
    plugin.cuda = &cuda;
    plugin.kernels = &kernels;
    device = *CudaDevice::Create(plugin, Clock::Real(), 0);
  }

  // Two tasks in a row, three executions.
  void Run(bool captured, size_t trace) {
    TestPlan t({"w0"});
    t.plan.workers[0].device = "cuda";
    if (captured) t.plan.options.set_launch(v1::GRAPH);
    const int actor = t.Actor("test");
    const int a = t.Compute("a", actor, "m", {});
    const int b = t.Compute("b", actor, "m", {{a, 0}});
    t.Wait(a, b, 2, v1::PlanWait::BUFFER);
    LoadedGraph l;
    l.plan = t.plan;
    l.actors[actor] = std::make_unique<DepthActor>(device.get(), &cuda, &depths);
    l.admitted = [] { return int64_t{2}; };
    GraphRun::Options o;
    o.clock = Clock::Real();
    o.device = device.get();
    o.trace_capacity = trace;
    auto run = GraphRun::Create(std::move(l), o);
    INFO(run.status().ToString());
    REQUIRE(run.ok());
    const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
    while ((*run)->completed() < 3 && Clock::Real()->Now() < limit) (*run)->Step();
    CHECK((*run)->completed() == 3);
    (*run)->Fail(absl::CancelledError("enough"));
    CHECK((*run)->Quiescent());
  }

  RangeCuda cuda;
  FakeKernels kernels{&cuda};
  CudaPlugin plugin;
  std::unique_ptr<CudaDevice> device;
  std::vector<int> depths;  // of ranges, at each call of the actor
};

TEST_CASE("device ranges: with a trace each op's issue stands in a range of its graph's and its own name") {
  Gpu gpu;
  gpu.Run(false, 100);
  const std::vector<std::string> of_one = {"g: COMPUTE a", "g: COMPUTE b"};
  REQUIRE(gpu.cuda.names.size() == 6);
  CHECK(std::count(gpu.cuda.names.begin(), gpu.cuda.names.end(), of_one[0]) == 3);
  CHECK(std::count(gpu.cuda.names.begin(), gpu.cuda.names.end(), of_one[1]) == 3);
  CHECK(gpu.depths == std::vector<int>(6, 1));
  CHECK(gpu.cuda.depth == 0);
  CHECK(gpu.cuda.calls("RangePop") == 6);
}

TEST_CASE("device ranges: of a captured iteration the launch has one") {
  Gpu gpu;
  gpu.Run(true, 100);
  CHECK(gpu.cuda.names == std::vector<std::string>(3, "g: iteration"));
  CHECK(gpu.cuda.calls("RangePop") == 3);
}

TEST_CASE("device ranges: none without a trace") {
  for (const bool captured : {false, true}) {
    Gpu gpu;
    gpu.Run(captured, 0);
    CHECK(gpu.cuda.calls("RangePush") == 0);
    CHECK(gpu.cuda.calls("RangePop") == 0);
  }
}

}  // namespace
}  // namespace weft
