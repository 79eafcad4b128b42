#include "client/doctor/gpu_checks.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

GpuFacts TwoGpus() {
  GpuFacts f;
  f.driver = f.runtime = 13000;
  f.nccl = 22809;
  for (int i = 0; i < 2; ++i) {
    GpuInfo g;
    g.ordinal = i;
    g.name = "NVIDIA H200";
    g.pci = "0000:0" + std::to_string(i) + ":00.0";
    g.sm_count = 132;
    g.major = 9;
    g.total_bytes = uint64_t{139} << 30;
    g.free_bytes = uint64_t{138} << 30;
    g.stream_memory_s = 2e-6;
    g.to_device = g.from_device = 55e9;
    f.gpus.push_back(g);
  }
  f.peers = {{0, 1}, {1, 0}};
  f.ipc = {{0, 1, ""}, {1, 0, ""}};
  f.times.from = 0;
  f.times.to = 1;
  f.times.sizes = {4096, 65536, 1 << 20, 64 << 20};
  f.times.nccl_s = {8e-6, 7e-6, 12e-6, 199e-6};
  f.times.ipc_s = {15e-6, 15e-6, 12.3e-6, 189e-6};
  return f;
}

Finding Named(const Findings& findings, const std::string& name) {
  for (const Finding& f : findings) {
    if (f.name == name) return f;
  }
  FAIL("no finding \"" << name << "\"");
  return {};
}

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("gpu checks: nothing is wrong with a good machine, and it says what there is") {
  HostFacts host;
  host.nvidia_driver = "580.159.04";
  const Findings found = CheckGpus(host, TwoGpus());
  for (const Finding& f : found) {
    INFO(f.name << ": " << f.seen);
    CHECK((f.verdict == Verdict::kOk || (f.name == "CUDA MPS" && f.verdict == Verdict::kSkipped)));
  }
  CHECK(Says(Named(found, "CUDA").seen, "580.159.04"));
  CHECK(Says(Named(found, "CUDA").seen, "13.0"));
  CHECK(Named(found, "NCCL").seen == "2.28.9");
  CHECK(Says(Named(found, "GPU 1").seen, "132 SMs"));
  CHECK(Says(Named(found, "stream memory operations").seen, "GPU 1"));
  CHECK(Says(Named(found, "ipc or nccl").seen, "ipc_crossover_bytes: 1048576"));
}

TEST_CASE("gpu checks: each problem is in its own finding, with its text and a remedy") {
  struct Case {
    const char* name;
    Verdict verdict;
    void (*spoil)(GpuFacts*);
    const char* says;
  };
  const Case cases[] = {
      {"CUDA", Verdict::kFail, [](GpuFacts* f) { f->problem = "looking for GPUs: no CUDA-capable device"; }, "no CUDA-capable device"},
      {"CUDA", Verdict::kFail, [](GpuFacts* f) { f->driver = 12020; }, "driver is older"},
      {"CUDA", Verdict::kWarn, [](GpuFacts* f) { f->runtime = 13010; }, "13.1"},
      {"NCCL", Verdict::kWarn, [](GpuFacts* f) { f->nccl_problem = "libnccl.so.2: cannot open"; }, "libnccl.so.2"},
      {"NCCL", Verdict::kFail, [](GpuFacts* f) { f->nccl = 21400; }, "2.14.0"},
      {"GPU 1", Verdict::kFail, [](GpuFacts* f) { f->gpus[1].problem = "all CUDA-capable devices are busy"; }, "busy"},
      {"GPU 0", Verdict::kFail, [](GpuFacts* f) { f->gpus[0].kernels_problem = "libcublas.so.13: cannot open"; }, "libcublas"},
      {"GPU 0", Verdict::kWarn, [](GpuFacts* f) { f->gpus[0].free_bytes = 100 << 20; }, "100"},
      {"peer access", Verdict::kWarn,
       [](GpuFacts* f) {
         f->peers = {{0, 1}, {0, 0}};
       },
       "1 to 0"},
      {"IPC memory", Verdict::kFail, [](GpuFacts* f) { f->ipc[1].problem = "invalid device context"; },
       "GPU 1 to GPU 0: invalid device context"},
      {"stream memory operations", Verdict::kFail, [](GpuFacts* f) { f->gpus[1].stream_memory_problem = "not supported"; },
       "GPU 1: not supported"},
      {"copies from registered memory", Verdict::kFail, [](GpuFacts* f) { f->gpus[0].host_copy_problem = "registering: out of memory"; },
       "out of memory"},
      {"copies from registered memory", Verdict::kWarn, [](GpuFacts* f) { f->gpus[0].to_device = 3e9; }, "3.0 GB/s"},
      {"ipc or nccl", Verdict::kWarn, [](GpuFacts* f) { f->times.ipc_s[3] = 1; }, "nccl is faster"},
  };
  for (const Case& c : cases) {
    GpuFacts f = TwoGpus();
    c.spoil(&f);
    const Finding found = Named(CheckGpus(HostFacts(), f), c.name);
    INFO(found.name << ": " << found.seen);
    CHECK(found.verdict == c.verdict);
    CHECK(Says(found.seen, c.says));
    CHECK_FALSE(found.remedy.empty());
  }
}

TEST_CASE("gpu checks: after a failure of CUDA itself nothing else is said") {
  GpuFacts f;
  f.problem = "weft's CUDA library is not there";
  CHECK(CheckGpus(HostFacts(), f).size() == 1);
}

TEST_CASE("gpu checks: with one GPU peers and crossover are skipped, with the reason") {
  GpuFacts f = TwoGpus();
  f.gpus.resize(1);
  f.peers = {{0}};
  f.ipc = {{0, 0, ""}};
  f.times = {};
  f.times.problem = "it takes two GPUs";
  const Findings found = CheckGpus(HostFacts(), f);
  CHECK(Worst(found) == Verdict::kOk);
  CHECK(Named(found, "peer access").verdict == Verdict::kSkipped);
  CHECK(Named(found, "ipc or nccl").verdict == Verdict::kSkipped);
  CHECK(Says(Named(found, "ipc or nccl").seen, "it takes two GPUs"));
  CHECK(Says(Named(found, "ipc or nccl").seen, "the default stays"));
}

TEST_CASE("crossover: the smallest size from which on ipc is not slower; one slow size in between moves it up") {
  TransferTimes t = TwoGpus().times;
  CHECK(IpcCrossover(t) == uint64_t{1} << 20);
  t.ipc_s = t.nccl_s;
  CHECK(IpcCrossover(t) == 4096);
  t.ipc_s[2] = t.nccl_s[2] * 1.06;
  CHECK(IpcCrossover(t) == uint64_t{64} << 20);
  t.ipc_s[3] = t.nccl_s[3] * 1.06;
  CHECK(IpcCrossover(t) == std::nullopt);
  CHECK(IpcCrossover({}) == std::nullopt);
}

TEST_CASE("decision: GPUs are looked at where there are some, or where there must be") {
  HostFacts without;
  CHECK_FALSE(DecideGpu(without, "auto").look);
  CHECK(DecideGpu(without, "auto").finding.verdict == Verdict::kSkipped);
  CHECK(DecideGpu(without, "cuda").look);  // CUDA says what is missing
  HostFacts with;
  with.nvidia_device = true;
  CHECK(DecideGpu(with, "auto").look);
  CHECK_FALSE(DecideGpu(with, "cpu").look);
  with.nvidia_access = "Permission denied";
  CHECK_FALSE(DecideGpu(with, "auto").look);
  CHECK(DecideGpu(with, "auto").finding.verdict == Verdict::kFail);
  CHECK(Says(DecideGpu(with, "cuda").finding.seen, "Permission denied"));
}

}  // namespace
}  // namespace weft
