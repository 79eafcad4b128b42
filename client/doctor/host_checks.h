#pragma once

#include "client/doctor/finding.h"
#include "client/doctor/host_facts.h"

namespace weft {

// What the host gives every worker: system calls, limits, memory, interfaces, weft's own programs. `gpu`: the GPU is to be used, so what
// only NCCL and CUDA need counts too.
Findings CheckHost(const HostFacts& facts, bool gpu);

// Settings of the environment that change what CUDA and NCCL do under weft, one finding for each that deserves a word, or one that says
// that there is none.
Findings CheckGpuEnvironment(const HostFacts& facts);

}  // namespace weft
