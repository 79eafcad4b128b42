#include "client/cli/graph_file.h"

#include "driver/graph/parse.h"

namespace weft {

Outcome ReadGraph(const std::string& file, std::optional<bool> overlap, v1::Graph* graph) {
  auto parsed = ParseGraphFile(file);
  if (!parsed.ok()) {
    const bool absent = absl::IsNotFound(parsed.status()) || absl::IsPermissionDenied(parsed.status());
    return Outcome(absent ? ExitCode::kUsage : ExitCode::kInvalidGraph, std::string(parsed.status().message()));
  }
  *graph = *std::move(parsed);
  if (overlap) graph->mutable_options()->set_overlap(*overlap ? v1::ON : v1::OFF);
  return Outcome();
}

}  // namespace weft
