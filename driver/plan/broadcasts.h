#pragma once

// Between passes 2 and 3: values that go to several workers over a communicator may go by one broadcast instead of one send after the
// other.

#include <optional>

#include "driver/graph/graph.h"
#include "driver/plan/compiler.h"
#include "driver/plan/place.h"
#include "driver/plan/transport.h"

namespace weft {

// The graph with values lowered to broadcasts; nullopt when there is none. `edges` are its edges as they are without. Of each node's
// output those GLOO edges between CPU workers, or NCCL edges between GPU workers, go together whose value has a fixed size and whose
// override says neither `broadcast: false` nor anything of overlap or prefetch, if they lead to two workers or more; with `forced` only
// those that say `broadcast: true`. A broadcast is a collective "broadcast+NODE:OUTPUT" of the producer and, on each receiving worker, of
// a call that makes room for the value ("room+NODE:OUTPUT+CONSUMER", of weft.Bucket, takes no time). An error of the producer reaches
// exactly those that take the value. Every actor of the result names its worker, as `placement` has it.
std::optional<ResolvedGraph> LowerBroadcasts(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster,
                                             const Edges& edges, bool forced);

}  // namespace weft
