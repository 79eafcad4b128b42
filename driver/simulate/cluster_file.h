#pragma once

// Cluster files (weft.v1.ClusterFile): the machines for which a plan is made offline.

#include <string>

#include "absl/status/statusor.h"
#include "driver/plan/compiler.h"
#include "weft/v1/costs.pb.h"

namespace weft {

// From text, protobuf text format or JSON. InvalidArgument lists every problem, each with its place and field: "NAME:LINE:COLUMN: ..." or
// "NAME: link[2].bandwidth: ...".
absl::StatusOr<Cluster> ParseCluster(const std::string& name, const std::string& text);

// Of a file; also NotFound, PermissionDenied.
absl::StatusOr<Cluster> ReadClusterFile(const std::string& path);

// The first link that fits the edge; nullptr: none.
const ClusterLink* FindLink(const std::vector<ClusterLink>& links, const Plan& plan, const PlanEdge& edge);

// Whether a plan made elsewhere fits the cluster: its workers are there, on the same hosts (by which of them share one) and kinds of
// device, and their planned bytes have room. FailedPrecondition lists every problem, naming workers.
absl::Status CheckCluster(const Cluster& cluster, const Plan& plan);

}  // namespace weft
