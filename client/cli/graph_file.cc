#include "client/cli/graph_file.h"

#include <filesystem>
#include <system_error>

#include "driver/graph/parse.h"

namespace weft {

Outcome ReadGraph(const std::string& file, std::optional<bool> overlap, v1::Graph* graph) {
  auto parsed = ParseGraphFile(file);
  if (!parsed.ok()) {
    // No file to read, a directory included, is a matter of the argument; what a file holds is a matter of the graph.
    std::error_code ec;
    const bool absent = absl::IsNotFound(parsed.status()) || absl::IsPermissionDenied(parsed.status()) ||
                        std::filesystem::is_directory(file, ec);
    return Outcome(absent ? ExitCode::kUsage : ExitCode::kInvalidGraph, std::string(parsed.status().message()));
  }
  *graph = *std::move(parsed);
  if (overlap) graph->mutable_options()->set_overlap(*overlap ? v1::ON : v1::OFF);
  return Outcome();
}

}  // namespace weft
