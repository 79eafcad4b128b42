#pragma once

#include "absl/status/status.h"
#include "common/plan/plan.h"

namespace weft {

// Pass 8, on every whole plan, also one edited by hand. Proves, or names what breaks (FailedPrecondition, all findings, one a line,
// each starting with its rule and naming workers and ops):
//   V1 for each (communicator, source, destination) the send sequence equals the recv sequence;
//   V2 each collective is in the same order on all its ranks;
//   V3 one launch order per device over all communicators of the graph;
//   V4 liveness for any number of executions: with ops as nodes (both ends of a rendezvous transfer, all members of a collective merged)
//      and lane order, waits and credits as edges with their execution distance, the zero-distance edges are acyclic, and on every
//      lane all ops of execution k stand before those of k + 1;
//   V5 no buffer is written before its readers released it;
//   V6 peak bytes within the limit;
//   V7 each op once, each value defined before use, dtype and size agree on both ends of every edge.
// Linear in ops and waits.
absl::Status Verify(const Plan& plan);

}  // namespace weft
