#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Reads a graph from text: JSON when the first character that is not white space is '{', protobuf text format otherwise. Unknown
// fields, duplicates and syntax errors are InvalidArgument with "NAME:LINE:COLUMN: what"; all that the parser finds, not only the
// first. `name` is the file's name, for the message. Inputs above 1 GiB are refused.
absl::StatusOr<v1::Graph> ParseGraph(const std::string& name, const std::string& text);

// Reads the file and parses it. NotFound, PermissionDenied, InvalidArgument (a directory; not UTF-8).
absl::StatusOr<v1::Graph> ParseGraphFile(const std::string& path);

// The same for any message; `what` says in messages what the file should be, such as "cost file".
absl::Status ParseMessage(const std::string& name, const std::string& text, const std::string& what, google::protobuf::Message* message);

// The file's bytes, whatever they are. Errors as ParseGraphFile.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path, const std::string& what);

}  // namespace weft
