#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "client/cli/args.h"
#include "client/cli/exit_code.h"
#include "client/cli/inputs.h"
#include "client/cli/telling_wait.h"
#include "client/cpp/client.h"

namespace weft {

// Connects to the driver that --address, the environment or the local cluster name. Not reaching it in any way is kUnreachable.
Outcome ConnectTo(const CommonArgs& common, std::unique_ptr<Client>* client);

// Executes a compiled graph for each of `inputs`, keeping several in flight, and reports each result as it comes: to stdout as text, or,
// with --json, into `report` ("executions", "failed", "seconds_per_execution"). kExecutionFailed or kDeadline when an execution failed; the rest
// is executed all the same. Says on stderr, by what `ask` gets of the driver, what holds up an execution that takes long (TellingWait).
Outcome ExecuteAll(ClientSession* session, const AskDriver& ask, const std::string& graph, const ExecuteArgs& args, InputSet* inputs,
                   bool json, nlohmann::ordered_json* report);

// Options for the session of ExecuteAll.
SessionOptions SessionFor(const std::string& graph, const ExecuteArgs& args);

// DIR/NAME/000012.npy; InvalidArgument for an output whose name is no file name.
absl::StatusOr<std::string> OutputPath(const std::string& dir, const std::string& output, int64_t i);

// (end of the last - end of the first) / (n - 1) in seconds, of times in ns; 0 for fewer than two.
double SecondsPerExecution(const std::vector<int64_t>& ends_ns);

}  // namespace weft
