#pragma once

// Pass 3: every value that leaves its worker gets an edge, and the edge a channel.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"
#include "driver/graph/graph.h"
#include "driver/plan/compiler.h"
#include "driver/plan/place.h"

namespace weft {

// What later passes must know of an edge and the plan does not keep.
struct EdgeInfo {
  int32_t src_task = -1;  // numbered as in Placement; -1: the client
  int32_t dst_task = -1;
  int32_t depth = 0;      // receive buffers beyond the first; 0 without overlap
  bool overlap = true;
};

struct Edges {
  std::vector<PlanEdge> edges;  // all but slots filled in; one per arg, `after` or output whose ends are at different places
  std::vector<EdgeInfo> info;   // by edge
  // For arg i of node n: the edge that brings it, -1 when it stays on its worker, at arg_edge[arg_begin[n] + i]. Likewise for `after`;
  // kNoEdgeNeeded there when a value of the same node already brings the order.
  std::vector<int32_t> arg_begin, arg_edge;
  std::vector<int32_t> after_begin, after_edge;
  static constexpr int32_t kNoEdgeNeeded = -2;
};

// `auto_as` is what overlap AUTO means here: v1::ON or v1::OFF.
// InvalidArgument lists every override that is impossible, naming both ends, both workers, and why.
absl::StatusOr<Edges> ChooseTransports(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster,
                                       v1::Overlap auto_as);

}  // namespace weft
