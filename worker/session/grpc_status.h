#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {

// The codes are the same numbers. `what` goes before the message, if there is any.
inline absl::Status FromGrpc(const grpc::Status& s, const std::string& what = "") {
  return absl::Status(static_cast<absl::StatusCode>(s.error_code()), absl::StrCat(what, what.empty() ? "" : ": ", s.error_message()));
}

}  // namespace weft
