#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace weft {

// A directory of its own for one test.
class TestDir {
 public:
  TestDir() {
    const char* tmp = getenv("TEST_TMPDIR");
    std::string pattern = std::string(tmp == nullptr ? "/tmp" : tmp) + "/weftXXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TestDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace weft
