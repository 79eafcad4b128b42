#pragma once

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/kv_store.h"

namespace weft {

// A store in a directory, which processes share: a key is a file, complete once it has its name.
class DirectoryStore : public KeyValueStore {
 public:
  explicit DirectoryStore(std::string dir) : dir_(std::move(dir)) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    std::ofstream(Path(key) + ".tmp", std::ios::binary) << value;
    std::filesystem::rename(Path(key) + ".tmp", Path(key));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys, Nanos timeout) override {
    const Nanos until = Clock::Real()->Now() + timeout;
    std::vector<std::string> values;
    for (const std::string& key : keys) {
      while (!std::filesystem::exists(Path(key))) {
        if (Clock::Real()->Now() > until) return absl::DeadlineExceededError("nobody set " + key);
        ::sched_yield();
      }
      std::ifstream f(Path(key), std::ios::binary);
      std::ostringstream s;
      s << f.rdbuf();
      values.push_back(s.str());
    }
    return values;
  }

 private:
  std::string Path(std::string key) const {
    for (char& c : key) c = c == '/' ? '_' : c;
    return dir_ + "/" + key;
  }
  const std::string dir_;
};

}  // namespace weft
