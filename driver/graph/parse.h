#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Reads a graph from text: JSON when the first character that is not white space is '{', protobuf text format otherwise. Unknown
// fields, duplicates and syntax errors are InvalidArgument with "NAME:LINE:COLUMN: what"; all that the parser finds, not only the
// first. `name` is the file's name, for the message. Inputs above 1 GiB are refused.
absl::StatusOr<v1::Graph> ParseGraph(const std::string& name, const std::string& text);

// Reads the file and parses it. NotFound, PermissionDenied, InvalidArgument (a directory; not UTF-8).
absl::StatusOr<v1::Graph> ParseGraphFile(const std::string& path);

}  // namespace weft
