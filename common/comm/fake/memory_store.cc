#include "common/comm/fake/memory_store.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

absl::Status MemoryStore::Set(const std::string& key, const std::string& value) {
  MutexLock lock(&mu_);
  if (!values_.emplace(key, value).second) return absl::AlreadyExistsError(absl::StrCat("key ", key, " is set already"));
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryStore::Get(const std::vector<std::string>& keys, Nanos timeout) {
  const Nanos until = Clock::Real()->Now() + timeout;
  MutexLock lock(&mu_);
  for (;;) {
    std::vector<std::string> found, missing;
    for (const std::string& k : keys) {
      const auto it = values_.find(k);
      if (it == values_.end()) {
        missing.push_back(k);
      } else {
        found.push_back(it->second);
      }
    }
    if (missing.empty()) return found;
    const Nanos left = until - Clock::Real()->Now();
    if (left <= 0) return absl::DeadlineExceededError(absl::StrCat("nobody set ", absl::StrJoin(missing, ", ")));
    changed_.WaitFor(&mu_, std::chrono::nanoseconds(left));
  }
}

}  // namespace weft
