#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace weft {

// What scripts can rely on.
enum class ExitCode {
  kDone = 0,
  kExecutionFailed = 1,  // an execution or the graph failed; also whatever has no code of its own
  kUsage = 2,            // arguments, or a file that they name
  kInvalidGraph = 3,     // the graph or its plan
  kUnreachable = 4,      // no driver, or it went away
  kDeadline = 5,
  kInterrupted = 130,
};

// How a command ended. The message of an outcome that is not kDone goes to stderr.
class Outcome {
 public:
  Outcome() = default;
  Outcome(ExitCode code, std::string message) : code_(code), message_(std::move(message)) {}

  // Of an error in talking to the driver or in running a graph.
  static Outcome Of(const absl::Status& status);
  // Of an error in reading a file or value that an argument names.
  static Outcome OfArgument(const absl::Status& status);

  ExitCode code() const { return code_; }
  const std::string& message() const { return message_; }
  bool ok() const { return code_ == ExitCode::kDone; }

 private:
  ExitCode code_ = ExitCode::kDone;
  std::string message_;
};

// Of an error of a call that sent a cost file along: what the driver says of "costs" is said of that file, and is kUsage.
Outcome OfCosts(const absl::Status& status, const std::string& costs_file);

// An execution's error; `code` is the TaskError's.
ExitCode ExitCodeOfTaskError(int code);

}  // namespace weft
