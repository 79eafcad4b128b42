#pragma once

#include "absl/status/statusor.h"
#include "common/classes/signature.h"
#include "driver/graph/graph.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Pass 1. Checks everything that can be known without a cluster and resolves names. InvalidArgument lists all errors, one a line
// (after 100, how many more), each naming the node, edge or field and saying how to mend it. Linear in the graph's size.
absl::StatusOr<ResolvedGraph> Validate(const v1::Graph& graph, const ClassTable& classes);

}  // namespace weft
