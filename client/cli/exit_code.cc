#include "client/cli/exit_code.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {

Outcome Outcome::Of(const absl::Status& status) {
  std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Outcome();
    case absl::StatusCode::kNotFound:  // no such graph
      return Outcome(ExitCode::kInvalidGraph, message + "; `weft graphs` lists those that are compiled");
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:      // the graph's name is taken
    case absl::StatusCode::kResourceExhausted:  // a byte limit, or too large a plan
      return Outcome(ExitCode::kInvalidGraph, std::move(message));
    case absl::StatusCode::kUnavailable:
      return Outcome(ExitCode::kUnreachable, std::move(message));
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome(ExitCode::kDeadline, std::move(message));
    case absl::StatusCode::kCancelled:
      return Outcome(ExitCode::kInterrupted, std::move(message));
    default:
      return Outcome(ExitCode::kExecutionFailed, std::move(message));
  }
}

Outcome OfCosts(const absl::Status& status, const std::string& costs_file) {
  constexpr absl::string_view kWhere = "costs: ";
  if (costs_file.empty() || !absl::IsInvalidArgument(status) || !absl::StartsWith(status.message(), kWhere)) return Outcome::Of(status);
  std::string text;
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    const bool ours = absl::StartsWith(line, kWhere);
    absl::StrAppend(&text, text.empty() ? "" : "\n", ours ? absl::StrCat(costs_file, ": ") : "", ours ? line.substr(kWhere.size()) : line);
  }
  return Outcome(ExitCode::kUsage, std::move(text));
}

Outcome Outcome::OfArgument(const absl::Status& status) {
  return status.ok() ? Outcome() : Outcome(ExitCode::kUsage, std::string(status.message()));
}

ExitCode ExitCodeOfTaskError(int code) {
  return code == static_cast<int>(absl::StatusCode::kDeadlineExceeded) ? ExitCode::kDeadline : ExitCode::kExecutionFailed;
}

}  // namespace weft
