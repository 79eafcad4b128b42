#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

struct ListedWorker {
  std::string name;
  std::string host;  // empty: the client's
};

// "4" (w0 to w3 on one host), or "w0,w1@hostA,w2@hostB". InvalidArgument names the entry.
absl::StatusOr<std::vector<ListedWorker>> ParseWorkerList(const std::string& text);

}  // namespace weft
