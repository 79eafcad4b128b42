#pragma once

#include <optional>
#include <string>

#include "client/cli/exit_code.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Reads a graph file, with options.overlap overridden. kUsage: no such file; kInvalidGraph: what is in it, with line and column.
Outcome ReadGraph(const std::string& file, std::optional<bool> overlap, v1::Graph* graph);

}  // namespace weft
