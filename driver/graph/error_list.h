#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// Gathers all that is wrong with an input. Keeps the first 100 and counts the rest, so that hostile input costs bounded
// memory.
class ErrorList {
 public:
  static constexpr size_t kKept = 100;

  void Add(std::string message);
  bool empty() const { return total_ == 0; }
  // Whether further messages are only counted: then they need not be composed with care.
  bool full() const { return total_ >= static_cast<int64_t>(kKept); }
  int64_t total() const { return total_; }
  // OK when empty; otherwise InvalidArgument with one error a line, and a last line that says how many more there are.
  absl::Status ToStatus() const;

 private:
  std::vector<std::string> kept_;
  int64_t total_ = 0;
};

// `text` on one line and safe for a terminal: control characters and bytes that are not UTF-8 become \xNN.
std::string Printable(const std::string& text);

// Printable, in double quotes, cut to 64 bytes.
std::string Quote(const std::string& text);

}  // namespace weft
