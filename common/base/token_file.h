#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// The join token in the first line of a file: 1 to 4096 printable ASCII characters, since it travels as call metadata. InvalidArgument
// names `what` (the option that names the file) and the path, never the token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& what, const std::string& path);

// InvalidArgument unless `token` may travel as call metadata. An empty token means none and is fine.
absl::Status CheckTokenText(const std::string& what, const std::string& token);

}  // namespace weft
