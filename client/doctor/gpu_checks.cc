#include "client/doctor/gpu_checks.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/parse.h"

namespace weft {
namespace {

// driver/plan uses it where the cluster file says nothing.
constexpr uint64_t kDefaultCrossover = uint64_t{1} << 20;
constexpr double kTolerance = 1.05;
// PCIe 3 with 16 lanes gives 12 GB/s; what is slower has a narrow link or crosses sockets.
constexpr double kSlowHostCopy = 8e9;
// The oldest that has all that weft calls of NCCL: non-blocking communicators with a configuration.
constexpr int kOldestNccl = 21800;
// What a worker's context, device code, NCCL and cuBLAS take before the first buffer.
constexpr uint64_t kLittleMemory = uint64_t{2} << 30;

std::string CudaVersion(int v) { return absl::StrCat(v / 1000, ".", v % 1000 / 10); }
std::string NcclVersion(int v) { return absl::StrCat(v / 10000, ".", v % 10000 / 100, ".", v % 100); }
std::string Speed(double bytes_per_second) { return absl::StrFormat("%.1f GB/s", bytes_per_second / 1e9); }

Finding Cuda(const HostFacts& host, const GpuFacts& f) {
  const std::string name = "CUDA";
  const std::string kernel = host.nvidia_driver.empty() ? "" : absl::StrCat("kernel driver ", host.nvidia_driver, ", ");
  const std::string versions = absl::StrCat(kernel, "driver library for CUDA ", f.driver == 0 ? "(none)" : CudaVersion(f.driver),
                                            ", runtime ", CudaVersion(f.runtime));
  if (f.driver != 0 && f.driver / 1000 < f.runtime / 1000) {
    return Fail(name, absl::StrCat(versions, ": ", f.problem.empty() ? "the driver is older than the runtime" : f.problem),
                absl::StrCat("install an NVIDIA driver for CUDA ", CudaVersion(f.runtime), " or newer"));
  }
  if (f.died) {
    return Fail(name, f.problem,
                "see what it printed above, nvidia-smi and dmesg: the driver hangs or crashes; a restart of the host may be needed");
  }
  if (!f.problem.empty() && f.runtime == 0) {
    return Fail(name, f.problem,
                "take a package that has the CUDA parts, or build them on a machine with a CUDA toolkit; without a GPU use --device cpu");
  }
  if (!f.problem.empty()) {
    return Fail(name, absl::StrCat(versions, ": ", f.problem),
                "see that nvidia-smi works for this user, else install NVIDIA's driver; in a container pass the GPUs through (--gpus all); "
                "check CUDA_VISIBLE_DEVICES");
  }
  if (f.driver < f.runtime) {
    return Warn(name, versions, absl::StrCat("works within one major version of CUDA, but update the driver when you can"));
  }
  return Ok(name, versions);
}

Finding Nccl(const GpuFacts& f) {
  const std::string name = "NCCL";
  if (!f.nccl_problem.empty()) {
    return Warn(name, f.nccl_problem,
                "install NCCL (libnccl2) where the loader finds it: without it GPUs of different hosts, and values below the "
                "crossover size, cannot be transferred, and there are no collectives");
  }
  if (f.nccl < kOldestNccl) {
    return Fail(name, NcclVersion(f.nccl), absl::StrCat("install NCCL ", NcclVersion(kOldestNccl), " or newer"));
  }
  return Ok(name, NcclVersion(f.nccl));
}

Finding Gpu(const GpuInfo& g) {
  const std::string name = absl::StrCat("GPU ", g.ordinal);
  const std::string what = absl::StrCat(g.name, " at ", g.pci, ", ", g.sm_count, " SMs, compute capability ", g.major, ".", g.minor, ", ");
  if (!g.problem.empty()) {
    return Fail(name, absl::StrCat(what, FormatBytes(g.total_bytes), ": ", g.problem),
                "see nvidia-smi: whether it is in exclusive mode and taken, or reports errors (then the host must be restarted)");
  }
  const std::string seen = absl::StrCat(what, FormatBytes(g.free_bytes), " of ", FormatBytes(g.total_bytes), " free");
  if (!g.kernels_problem.empty()) {
    return Fail(name, absl::StrCat(seen, "; ", g.kernels_problem),
                "install the CUDA libraries that are named, where the loader finds them (ldconfig, "
                "LD_LIBRARY_PATH)");
  }
  if (g.free_bytes < kLittleMemory) {
    return Warn(name, seen, "end what fills it (nvidia-smi lists it), or give workers another GPU with --device cuda:N");
  }
  return Ok(name, seen);
}

Finding Peers(const GpuFacts& f) {
  const std::string name = "peer access";
  const size_t n = f.gpus.size();
  if (n < 2) return Skipped(name, "one GPU");
  std::vector<std::string> without;
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      if (a != b && (a >= f.peers.size() || b >= f.peers[a].size() || f.peers[a][b] == 0)) without.push_back(absl::StrCat(a, " to ", b));
    }
  }
  if (without.empty()) return Ok(name, absl::StrCat("between all ", n, " GPUs"));
  return Warn(name, absl::StrCat("not from ", absl::StrJoin(without, ", ")),
              "see nvidia-smi topo -p2p r; in a virtual machine, or with the IOMMU on, the host must allow it. These pairs transfer by "
              "NCCL through "
              "host memory");
}

Finding Ipc(const GpuFacts& f) {
  const std::string name = "IPC memory";
  std::vector<std::string> bad;
  for (const IpcTrial& t : f.ipc) {
    if (!t.problem.empty()) bad.push_back(absl::StrCat("GPU ", t.from, " to GPU ", t.to, ": ", t.problem));
  }
  if (f.ipc.empty()) return Skipped(name, "no two processes could be tried");
  if (bad.empty()) {
    return Ok(name, absl::StrCat("another process opened and read memory of a GPU, ", f.ipc.size(), f.ipc.size() == 1 ? " pair" : " pairs",
                                 " tried"));
  }
  return Fail(name, absl::StrJoin(bad, "; "),
              "run all workers of a host in one container, or share its IPC and PID namespaces (--ipc=host --pid=host); until then set the "
              "transport of edges between GPUs to NCCL");
}

// One finding over all GPUs.
Finding Each(const std::string& name, const GpuFacts& f, const std::function<const std::string&(const GpuInfo&)>& problem,
             const std::function<std::string(const GpuInfo&)>& seen, const std::string& remedy) {
  std::vector<std::string> good, bad;
  for (const GpuInfo& g : f.gpus) {
    if (!g.problem.empty()) continue;
    const std::string gpu = f.gpus.size() == 1 ? "" : absl::StrCat("GPU ", g.ordinal, ": ");
    (problem(g).empty() ? good : bad).push_back(absl::StrCat(gpu, problem(g).empty() ? seen(g) : problem(g)));
  }
  if (!bad.empty()) return Fail(name, absl::StrJoin(bad, "; "), remedy);
  if (good.empty()) return Skipped(name, "no GPU can be used");
  return Ok(name, absl::StrJoin(good, "; "));
}

Finding StreamMemory(const GpuFacts& f) {
  return Each(
      "stream memory operations", f, [](const GpuInfo& g) -> const std::string& { return g.stream_memory_problem; },
      [](const GpuInfo& g) { return absl::StrCat("host to device and back ", FormatSeconds(g.stream_memory_s)); },
      "use a driver and a GPU that have 32-bit stream memory operations on registered host memory: transfers between processes are paced "
      "by them");
}

Finding HostCopies(const GpuFacts& f) {
  Finding out = Each(
      "copies from registered memory", f, [](const GpuInfo& g) -> const std::string& { return g.host_copy_problem; },
      [](const GpuInfo& g) { return absl::StrCat(Speed(g.to_device), " to the device, ", Speed(g.from_device), " back"); },
      "allow page-locked memory (ulimit -l unlimited, LimitMEMLOCK=infinity); see dmesg for what the driver says");
  const bool slow = std::any_of(f.gpus.begin(), f.gpus.end(), [](const GpuInfo& g) {
    return g.problem.empty() && g.host_copy_problem.empty() && std::min(g.to_device, g.from_device) < kSlowHostCopy;
  });
  if (out.verdict == Verdict::kOk && slow) {
    return Warn(out.name, out.seen,
                "bind each worker to the cores and memory of its GPU's socket (numactl, nvidia-smi topo -m); see nvidia-smi -q "
                "for the width of its link");
  }
  return out;
}

Finding CrossoverFinding(const GpuFacts& f) {
  const std::string name = "ipc or nccl";
  const std::string fallback = absl::StrCat("the default stays, ipc from ", FormatBytes(kDefaultCrossover), " on");
  if (!f.times.problem.empty()) return Skipped(name, absl::StrCat("not measured: ", f.times.problem, "; ", fallback));
  if (f.times.sizes.empty()) return Skipped(name, absl::StrCat("not measured; ", fallback));
  const size_t last = f.times.sizes.size() - 1;
  const std::string pair =
      absl::StrCat("GPU ", f.times.from, " to GPU ", f.times.to, ", ", FormatBytes(f.times.sizes[0]), ": ipc ",
                   FormatSeconds(f.times.ipc_s[0]), ", nccl ", FormatSeconds(f.times.nccl_s[0]), "; ", FormatBytes(f.times.sizes[last]),
                   ": ipc ", FormatSeconds(f.times.ipc_s[last]), ", nccl ", FormatSeconds(f.times.nccl_s[last]));
  const std::optional<uint64_t> crossover = IpcCrossover(f.times);
  if (!crossover) {
    return Warn(name, absl::StrCat(pair, ": nccl is faster at every size"),
                "see nvidia-smi topo -m for how the GPUs are joined; ipc leaves all multiprocessors to the computation, which may still be "
                "worth it");
  }
  return Ok(name, absl::StrCat(pair, "; for the cluster file: ipc_crossover_bytes: ", *crossover, " (", FormatBytes(*crossover), ")"));
}

}  // namespace

std::optional<uint64_t> IpcCrossover(const TransferTimes& t) {
  std::optional<uint64_t> from;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    if (t.ipc_s[i] > t.nccl_s[i] * kTolerance) break;
    from = t.sizes[i];
  }
  return from;
}

GpuDecision DecideGpu(const HostFacts& host, const std::string& device) {
  const std::string name = "GPU";
  if (device == "cpu") return {false, Skipped(name, "--device cpu")};
  if (!host.nvidia_access.empty()) {
    return {false, Fail(name, absl::StrCat("/dev/nvidiactl: ", host.nvidia_access),
                        "give this user access to /dev/nvidia* (often: the group video), or run with --device cpu")};
  }
  // Where it must be there, CUDA itself says what is missing.
  if (device == "auto" && !host.nvidia_device) return {false, Skipped(name, "no GPU: /dev/nvidiactl is not there")};
  return {true, {}};
}

Findings CheckGpus(const HostFacts& host, const GpuFacts& f) {
  Findings out = {Cuda(host, f)};
  if (!f.problem.empty() || out[0].verdict == Verdict::kFail) return out;
  out.push_back(Nccl(f));
  for (const GpuInfo& g : f.gpus) out.push_back(Gpu(g));
  out.push_back(Peers(f));
  out.push_back(Ipc(f));
  out.push_back(StreamMemory(f));
  out.push_back(HostCopies(f));
  out.push_back(CrossoverFinding(f));
  out.push_back(host.mps ? Ok("CUDA MPS", "its control daemon runs: workers that share a GPU compute side by side")
                         : Skipped("CUDA MPS",
                                   "not running; needed only where several workers share a GPU, which else take turns in slices of "
                                   "milliseconds"));
  return out;
}

}  // namespace weft
