#pragma once

// Between passes 2 and 3: small reductions become parts of larger ones.

#include <optional>

#include "driver/graph/graph.h"
#include "driver/plan/compiler.h"
#include "driver/plan/place.h"

namespace weft {

// The graph with ALL_REDUCEs fused as options.bucket_bytes says; nullopt when there is nothing to fuse. Fused are collectives with the same
// members (CPU workers over Gloo, or GPU workers over NCCL) in the same order, reduction and dtype, none of which depends on another (as
// many collectives stand before each on the longest way), in the order of the file as long as their values have at most so many bytes
// together. A bucket is a collective of its own between calls of weft.Bucket: on each member's worker one that packs the values, right
// behind the last of them, and one that gives them out, right before the first that takes one. Over Gloo elements are combined in the
// order of ranks wherever they lie, so results are the same bits; NCCL chooses its order by the size of the whole (of two ranks there is
// but one). A bucket is one operation: an error in any of its values is the error of all its results.
// Every actor of the result names its worker, as `placement` has it.
std::optional<ResolvedGraph> FuseCollectives(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster);

}  // namespace weft
