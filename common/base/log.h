#pragma once

// spdlog set up once per process. Lines read: time level process message; messages name graph, execution, worker, op where they
// apply. Logging is thread-safe.

#include <string>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace weft {

// `process` names the process in each line ("driver", "w0"). `level` is one of trace, debug, info, warn, error, off;
// InvalidArgument otherwise. Logs go to stderr.
absl::Status SetUpLogging(const std::string& process, const std::string& level);

}  // namespace weft
