#pragma once

#include <cstdint>
#include <optional>

#include "client/doctor/finding.h"
#include "client/doctor/gpu_facts.h"
#include "client/doctor/host_facts.h"

namespace weft {

// Whether GPUs are to be looked at; if not, `finding` says why. `device` is "auto" (if there is one), "cpu" or "cuda" (there must be one).
struct GpuDecision {
  bool look = false;
  Finding finding;
};
GpuDecision DecideGpu(const HostFacts& host, const std::string& device);

// Of what was seen of the GPUs. `host` adds the kernel driver's version and CUDA MPS.
Findings CheckGpus(const HostFacts& host, const GpuFacts& facts);

// The smallest size from which on a transfer through IPC takes at most 5 % longer than NCCL's, at that and at every larger size; nullopt
// when it does not even at the largest. The 5 % are less than what NCCL's kernels take from the computation beside them.
std::optional<uint64_t> IpcCrossover(const TransferTimes& times);

}  // namespace weft
