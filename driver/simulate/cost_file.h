#pragma once

// Cost files (weft.v1.Costs): read, checked, written, and turned into what the simulator asks.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "driver/plan/compiler.h"
#include "driver/simulate/cost_model.h"
#include "weft/v1/costs.pb.h"

namespace weft {

// From text, protobuf text format or JSON. InvalidArgument lists every problem, each with its place and field and what would do:
// "NAME:LINE:COLUMN: ..." or "NAME: node[3].time_s: ...".
absl::StatusOr<v1::Costs> ParseCosts(const std::string& name, const std::string& text);

// Of a file; also NotFound, PermissionDenied.
absl::StatusOr<v1::Costs> ReadCostFile(const std::string& path);

// What ParseCosts checks of a message that was not read from text. `name` begins each line.
absl::Status CheckCostValues(const std::string& name, const v1::Costs& costs);

// Text that ParseCosts reads back to the same message: one entry a line, after `comment`'s lines, each with a '#' before it.
std::string CostsToText(const v1::Costs& costs, const std::string& comment);

// Whether the costs are of this plan: its graph, only nodes, edges and collectives that it has, a time for each call. InvalidArgument lists
// every problem, each beginning with `name`, and what to write.
absl::Status CheckCosts(const std::string& name, const v1::Costs& costs, const Plan& plan);

// `costs` as the simulator asks for them, with the links of a cluster for edges that they do not name. A call without a cost takes no time
// here: CheckCosts is what refuses it. Pre: CheckCostValues is OK. The message and the links are copied.
CostModel MakeCostModel(const v1::Costs& costs, const std::vector<ClusterLink>& links);
// Without a cost file: the default, and the links where an edge has no emulated link.
CostModel MakeCostModel(const std::vector<ClusterLink>& links);

}  // namespace weft
