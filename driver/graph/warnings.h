#pragma once

#include <string>
#include <vector>

#include "weft/v1/graph.pb.h"

namespace weft {

// What is no error, but will not do what its author may expect. One sentence each, naming the place. For a graph that validates.
std::vector<std::string> GraphWarnings(const v1::Graph& graph);

}  // namespace weft
