#include "client/doctor/host_checks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/doctor/nccl_interface.h"
#include "common/base/parse.h"

namespace weft {
namespace {

// NCCL keeps some MiB of each connection there; containers start with 64 MiB, which a few ranks fill.
constexpr uint64_t kEnoughShm = uint64_t{1} << 30;
// A worker holds some descriptors for each peer, and a driver for each worker and client.
constexpr uint64_t kFewFiles = 1024;
constexpr uint64_t kTooFewFiles = 256;

std::string Size(uint64_t bytes) { return bytes == HostFacts::kUnlimited ? "unlimited" : FormatBytes(bytes); }
std::string Number(uint64_t n) { return n == HostFacts::kUnlimited ? "unlimited" : absl::StrCat(n); }

std::string Env(const HostFacts& f, const std::string& name) {
  const auto it = f.env.find(name);
  return it == f.env.end() ? "" : it->second;
}

Finding SystemCalls(const HostFacts& f) {
  const std::string name = "system calls";
  const std::string kernel = absl::StrCat("Linux ", f.kernel);
  if (!f.pidfd_error.empty()) {
    return Fail(
        name, absl::StrCat(kernel, ": pidfd_open: ", f.pidfd_error),
        "use Linux 5.3 or newer, and in a container a seccomp profile that allows pidfd_open: weft notices by it that a process died");
  }
  if (!f.memfd_error.empty()) {
    return Fail(name, absl::StrCat(kernel, ": memfd_create: ", f.memfd_error),
                "allow memfd_create and fcntl seals in the container's seccomp profile: shared memory between workers is made by them");
  }
  return Ok(name, absl::StrCat(kernel, ", pidfd and memfd work"));
}

Finding Machine(const HostFacts& f) {
  const std::string seen =
      absl::StrCat(f.cpus, f.cpus == 1 ? " core" : " cores", ", ", FormatBytes(f.memory_available), " of memory available");
  if (f.cpus < 2) {
    return Warn("cores and memory", seen,
                "give it at least one core for each worker, and one for the driver: on one core a transfer and a "
                "computation of CPU workers take turns");
  }
  return Ok("cores and memory", seen);
}

Finding SharedMemory(const HostFacts& f, bool gpu) {
  const std::string name = "/dev/shm";
  const std::string remedy = "mount a tmpfs there; for a container: --shm-size=8g, or --ipc=host";
  if (!f.shm_error.empty()) {
    // weft's own shared memory needs no file system.
    return gpu ? Fail(name, f.shm_error, absl::StrCat(remedy, ": NCCL needs it"))
               : Skipped(name, absl::StrCat(f.shm_error, "; only NCCL needs it"));
  }
  const std::string seen = absl::StrCat(FormatBytes(f.shm_bytes), ", ", FormatBytes(f.shm_free), " free");
  if (gpu && f.shm_free < kEnoughShm) {
    return Warn(name, seen, absl::StrCat(remedy, " (1 GiB free or more): NCCL keeps its connections there and fails when it is full"));
  }
  return Ok(name, seen);
}

Finding LockedMemory(const HostFacts& f, bool gpu) {
  const std::string name = "locked memory";
  const std::string seen = absl::StrCat("limit ", Size(f.memlock), ", hard limit ", Size(f.memlock_hard));
  if (gpu && f.memlock != HostFacts::kUnlimited) {
    const std::string remedy =
        "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or --ulimit memlock=-1 for a container: what the network "
        "card or the GPU reads is page-locked";
    // Only pages registered with a network card are counted against it by the kernel.
    return f.infiniband.empty() ? Skipped(name, absl::StrCat(seen, "; counts only with an InfiniBand or RoCE card"))
                                : Warn(name, seen, remedy);
  }
  return Ok(name, seen);
}

Finding OpenFiles(const HostFacts& f) {
  const std::string name = "open files";
  const std::string seen = absl::StrCat("limit ", Number(f.open_files), ", hard limit ", Number(f.open_files_hard));
  const std::string remedy =
      "ulimit -n 65536, or LimitNOFILE=65536 in the unit: shared memory and connections to every peer take descriptors";
  if (f.open_files < kTooFewFiles) return Fail(name, seen, remedy);
  if (f.open_files < kFewFiles) return Warn(name, seen, remedy);
  return Ok(name, seen);
}

Finding Network(const HostFacts& f, bool gpu) {
  const std::string name = "network interface";
  const bool loopback = std::any_of(f.interfaces.begin(), f.interfaces.end(),
                                    [](const NetInterface& i) { return i.loopback && i.up && !i.addresses.empty(); });
  if (!loopback) return Fail(name, "loopback is down or has no address", "ip link set lo up: daemons of one host speak over it");
  const std::string route = f.default_route.empty() ? "no default route" : absl::StrCat("default route by ", f.default_route);
  if (!gpu) return Ok(name, absl::StrCat("Gloo uses the one of --data-address (default: loopback, this host only); ", route));
  const InterfaceChoice choice = NcclInterface(f.interfaces, Env(f, "NCCL_SOCKET_IFNAME"));
  std::string list;
  for (const NetInterface& i : f.interfaces) absl::StrAppend(&list, list.empty() ? "" : ", ", i.name, i.up ? "" : " (down)");
  if (choice.names.empty()) {
    return Fail(name, absl::StrCat("NCCL finds none (", choice.why, "); there are: ", list),
                "set NCCL_SOCKET_IFNAME to one of them that is up, or unset it; NCCL needs one even within a host");
  }
  const std::string seen =
      absl::StrCat("NCCL uses ", absl::StrJoin(choice.names, ", "), " (", choice.why, "), Gloo the one of --data-address; ", route,
                   f.infiniband.empty() ? "" : absl::StrCat("; InfiniBand: ", absl::StrJoin(f.infiniband, ", ")));
  const bool is_route = std::find(choice.names.begin(), choice.names.end(), f.default_route) != choice.names.end();
  if (Env(f, "NCCL_SOCKET_IFNAME").empty() && !f.default_route.empty() && !is_route && f.infiniband.empty()) {
    return Warn(name, seen,
                absl::StrCat("set NCCL_SOCKET_IFNAME=", f.default_route, " if other hosts are reached by it, or NCCL_SOCKET_IFNAME=",
                             choice.names.front(), " to say that this is meant"));
  }
  return Ok(name, seen);
}

Finding Program(const std::string& name, const std::string& path, const std::string& error) {
  if (!error.empty())
    return Fail(name, error, absl::StrCat("set WEFT_BIN_DIR to the directory that has ", name, ", or put it beside weft"));
  return Ok(name, path);
}

Finding RuntimeDirectory(const HostFacts& f) {
  const std::string name = "runtime directory";
  if (!f.runtime_error.empty()) return Fail(name, f.runtime_error, "set XDG_RUNTIME_DIR to a directory that only you can write to");
  return Ok(name, f.runtime_dir);
}

bool IsOn(const std::string& value) { return !value.empty() && value != "0"; }

// One setting that deserves a word when `matters` of its value holds.
struct Rule {
  const char* name;
  bool (*matters)(const std::string& value);
  Verdict verdict;
  const char* remedy;
};

const Rule kRules[] = {
    {"CUDA_LAUNCH_BLOCKING", IsOn, Verdict::kFail,
     "unset it: every launch would wait for its end, so nothing overlaps and a worker cannot abort"},
    {"NCCL_COMM_BLOCKING", IsOn, Verdict::kFail, "unset it: a call of NCCL that waits for a dead peer could not be ended"},
    {"CUDA_DEVICE_MAX_CONNECTIONS",
     [](const std::string& v) {
       int64_t n = 0;
       const auto parsed = ParseInt("", v, 0, 1 << 20);
       if (parsed.ok()) n = *parsed;
       return n < 8;
     },
     Verdict::kWarn, "unset it, or set 32: with few connections lanes share a hardware queue, and transfers wait behind computations"},
    {"NCCL_P2P_DISABLE", IsOn, Verdict::kWarn, "unset it: transfers between GPUs of a host would go through host memory"},
    {"NCCL_P2P_LEVEL", [](const std::string& v) { return v == "LOC" || v == "0"; }, Verdict::kWarn,
     "unset it: it keeps NCCL from moving data directly between GPUs"},
    {"NCCL_SHM_DISABLE", IsOn, Verdict::kWarn, "unset it: where there is no peer access, transfers of a host would go over the network"},
    {"NCCL_MAX_NCHANNELS", IsOn, Verdict::kWarn,
     "unset it: weft gives each communicator its own limit (maxCTAs), and this one comes before it"},
    {"NCCL_MIN_NCHANNELS", IsOn, Verdict::kWarn, "unset it: communicators would take more multiprocessors than weft's budget counts"},
    {"NCCL_MIN_CTAS", IsOn, Verdict::kWarn, "unset it: communicators would take more multiprocessors than weft's budget counts"},
    {"NCCL_MAX_CTAS", IsOn, Verdict::kWarn, "unset it: weft gives each communicator its own limit, and this one comes before it"},
    {"NCCL_HOSTID", IsOn, Verdict::kWarn,
     "unset it: weft sets it where two workers share a GPU; the same for all hosts makes NCCL take them for one, and transfers fail"},
    {"NCCL_PROTO", [](const std::string& v) { return !v.empty(); }, Verdict::kWarn,
     "unset it, unless it is meant for a measurement: it rules out what is fastest for other sizes"},
    {"NCCL_ALGO", [](const std::string& v) { return !v.empty(); }, Verdict::kWarn,
     "unset it, unless it is meant for a measurement: it rules out what is fastest for other sizes"},
    {"NCCL_DEBUG", [](const std::string& v) { return v == "TRACE" || v == "INFO"; }, Verdict::kWarn,
     "set WARN for production: more slows every communicator's start and fills the logs"},
    {"NCCL_IB_DISABLE", IsOn, Verdict::kWarn, "unset it if hosts are joined by InfiniBand or RoCE: transfers would go over TCP"},
};

}  // namespace

Findings CheckHost(const HostFacts& f, bool gpu) {
  return {SystemCalls(f),
          Machine(f),
          SharedMemory(f, gpu),
          LockedMemory(f, gpu),
          OpenFiles(f),
          Network(f, gpu),
          RuntimeDirectory(f),
          Program("weft-driver", f.driver_path, f.driver_error),
          Program("weft-worker", f.worker_path, f.worker_error)};
}

Findings CheckGpuEnvironment(const HostFacts& f) {
  Findings out;
  for (const Rule& rule : kRules) {
    const auto it = f.env.find(rule.name);
    if (it == f.env.end() || !rule.matters(it->second)) continue;
    // Without a card it turns off nothing.
    if (rule.name == std::string("NCCL_IB_DISABLE") && f.infiniband.empty()) continue;
    out.push_back({"environment", rule.verdict, absl::StrCat(rule.name, "=", it->second), rule.remedy});
  }
  if (!out.empty()) return out;
  std::vector<std::string> set;
  for (const auto& [name, value] : f.env) {
    if (absl::StartsWith(name, "NCCL_") || absl::StartsWith(name, "CUDA_")) set.push_back(absl::StrCat(name, "=", value));
  }
  out.push_back(Ok("environment", set.empty() ? "no setting of CUDA or NCCL" : absl::StrJoin(set, " ")));
  return out;
}

}  // namespace weft
