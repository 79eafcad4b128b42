#pragma once

#include <map>

#include "common/base/mutex.h"
#include "common/comm/kv_store.h"

namespace weft {

// A store within one process, for tests. Get waits for real.
class MemoryStore : public KeyValueStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys, Nanos timeout) override;

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> values_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
