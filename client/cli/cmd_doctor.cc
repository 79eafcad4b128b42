#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/cluster_dir.h"
#include "client/cli/commands.h"
#include "client/cli/console.h"
#include "client/cli/interrupt.h"
#include "client/cli/process.h"
#include "client/doctor/gpu_checks.h"
#include "client/doctor/gpu_probe.h"
#include "client/doctor/host_checks.h"
#include "client/doctor/probe_server.h"
#include "common/device/cuda/library.h"

namespace weft {
namespace {

// The main of a process that tries a GPU.
Outcome RunProbe() {
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(kProbeFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    return Outcome(ExitCode::kUsage, "--probe is for the processes that `weft doctor` starts; leave it out");
  }
  // Two ranks need no multicast, and a host that shares its GPUs may not have it to give.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  ProbeServer server(LoadCudaPlugin(""), Clock::Real());
  ServeProbe(kProbeFd, [&server](const std::string& request) { return server.Answer(request); });
  // The command has ended or wants no more; the kernel frees what is held, and CUDA's own end may hang after an error.
  _exit(0);
}

void LookAtPrograms(HostFacts* host) {
  const auto find = [](const std::string& name, std::string* path, std::string* error) {
    const auto found = FindDaemon(name);
    if (found.ok()) {
      *path = *found;
    } else {
      *error = std::string(found.status().message());
    }
  };
  find("weft-driver", &host->driver_path, &host->driver_error);
  find("weft-worker", &host->worker_path, &host->worker_error);
  const bool was_there = RuntimeRoot(false).ok();
  const auto root = RuntimeRoot(true);
  if (!root.ok()) {
    host->runtime_error = std::string(root.status().message());
    return;
  }
  host->runtime_dir = *root;
  // Nothing stays that was not there; a cluster that started meanwhile keeps it.
  if (!was_there) rmdir(root->c_str());
}

nlohmann::ordered_json ToJson(const Findings& findings, const GpuFacts& gpus) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& f : findings) {
    list.push_back({{"name", f.name}, {"verdict", VerdictName(f.verdict)}, {"seen", f.seen}, {"remedy", f.remedy}});
  }
  nlohmann::ordered_json out = {{"verdict", VerdictName(Worst(findings))}, {"gpus", gpus.gpus.size()}};
  const auto crossover = IpcCrossover(gpus.times);
  if (crossover) out["ipc_crossover_bytes"] = *crossover;
  out["findings"] = list;
  if (!gpus.times.sizes.empty()) {
    out["transfers"] = {{"from", gpus.times.from},
                        {"to", gpus.times.to},
                        {"bytes", gpus.times.sizes},
                        {"ipc_s", gpus.times.ipc_s},
                        {"nccl_s", gpus.times.nccl_s}};
  }
  return out;
}

}  // namespace

Outcome RunDoctor(const CommonArgs& common, const DoctorArgs& args) {
  if (args.probe) return RunProbe();
  HostFacts host = ReadHostFacts();
  LookAtPrograms(&host);
  const GpuDecision decision = DecideGpu(host, args.device);
  Findings findings = CheckHost(host, decision.look);
  GpuFacts gpus;
  if (decision.look) {
    gpus = LookAtGpus([] { return StartProbeProcess({SelfPath(), "doctor", "--probe"}, [] { return Interrupt::Requested(); }); });
    const Findings more = CheckGpus(host, gpus);
    findings.insert(findings.end(), more.begin(), more.end());
    const Findings settings = CheckGpuEnvironment(host);
    findings.insert(findings.end(), settings.begin(), settings.end());
  } else {
    findings.push_back(decision.finding);
  }
  if (Interrupt::Requested()) return Outcome(ExitCode::kInterrupted, "interrupted");
  if (common.json) {
    PrintJson(ToJson(findings, gpus));
  } else {
    Print(ReportText(findings));
  }
  std::vector<std::string> failed;
  for (const Finding& f : findings) {
    if (f.verdict == Verdict::kFail) failed.push_back(f.name);
  }
  if (failed.empty()) return Outcome();
  return Outcome(ExitCode::kExecutionFailed,
                 absl::StrCat("weft does not work here as asked for; see ", absl::StrJoin(failed, ", "), " above"));
}

}  // namespace weft
