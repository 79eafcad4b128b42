#include "client/cli/worker_list.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<std::vector<ListedWorker>> ParseWorkerList(const std::string& text) {
  std::vector<ListedWorker> workers;
  const size_t digit = !text.empty() && text[0] == '-' ? 1 : 0;
  if (digit < text.size() && absl::ascii_isdigit(text[digit]) && text.find_first_of(",@") == std::string::npos) {
    WEFT_ASSIGN_OR_RETURN(const int64_t n, ParseInt("--workers", text, 1, 100'000));
    for (int64_t i = 0; i < n; ++i) workers.push_back({absl::StrCat("w", i), ""});
    return workers;
  }
  std::set<std::string> seen;
  for (const std::string& entry : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const size_t at = entry.find('@');
    ListedWorker worker{entry.substr(0, at), at == std::string::npos ? "" : entry.substr(at + 1)};
    WEFT_RETURN_IF_ERROR(CheckName("--workers: worker", worker.name));
    if (at != std::string::npos) WEFT_RETURN_IF_ERROR(CheckName("--workers: host", worker.host));
    if (!seen.insert(worker.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("--workers: worker \"", worker.name, "\" is listed twice"));
    }
    workers.push_back(worker);
  }
  return workers;
}

}  // namespace weft
