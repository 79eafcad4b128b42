#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "common/trace/timeline.h"

namespace weft {

// Writes tracks to FILE.svg or FILE.json. InvalidArgument names the file.
absl::Status WriteTimeline(const Timeline& timeline, const std::string& graph, const std::string& file);

// Fetches the trace of a graph's last `executions` executions (0: all that are kept) and writes it. FailedPrecondition: the graph has no
// recorded op; says why.
absl::StatusOr<Timeline> WriteTrace(Client* client, const std::string& graph, int executions, const std::string& file);

}  // namespace weft
