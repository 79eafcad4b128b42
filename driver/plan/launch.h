#pragma once

// Passes for options.launch GRAPH, which do nothing with STREAM: whole iterations of the GPU workers are captured (docs/launch.md), so
// their plan has to be one that can be replayed as it is.

#include "absl/status/status.h"
#include "common/plan/plan.h"
#include "driver/plan/memory.h"

namespace weft {

// After emit. Values of captured workers carry every error as a status word, so each node of the plan says what its error is as a number
// (PlanNode::device_error), and std.Fail on a GPU worker fails on the device. InvalidArgument lists what cannot be captured, with the
// remedy: shapes that are not fixed, transports other than SHM, IPC and NCCL, emulated links.
absl::Status PrepareLaunch(Plan* plan);

// After memory. One graph is captured for each slot number, so all edges and ops of captured workers get the same number of slots: the
// largest that any of them has, or fewer where a byte limit allows no more (edges of the client keep theirs). Mends peak
// bytes and the distances of BUFFER waits. ResourceExhausted names the tightest worker.
absl::Status EqualizeSlots(const MemoryLimits& limits, Plan* plan);

// After EqualizeSlots. What a captured iteration takes from hosts must be there before it is launched, and what it gives to hosts is there
// once all of it is done. InvalidArgument when an execution would need an iteration twice because of that: shows the circle and says what
// to do.
absl::Status CheckLaunch(const Plan& plan);

}  // namespace weft
