#pragma once

#include <cstdint>

#include "client/doctor/gpu_facts.h"
#include "client/doctor/probe.h"

namespace weft {

// How much is moved when trying: enough that speeds mean something on a real machine.
struct TrialSizes {
  uint64_t copy_bytes = 64 << 20;  // between host and device
  uint64_t smallest = 4 << 10;     // transfers between GPUs: every power of two from here
  uint64_t largest = 64 << 20;     // to here
  int rounds = 20;                 // of each
};

// Looks at the GPUs and tries them, by probes: one for each GPU (two where there is one, so that a process can open another's memory). What
// one of them cannot do, or hangs or crashes in, becomes a problem in what is returned; the rest is tried all the same. Takes seconds.
GpuFacts LookAtGpus(const StartProbe& start, const TrialSizes& sizes = TrialSizes());

}  // namespace weft
