#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Finds the name that was probably meant. Comparisons are budgeted over the object's life, so that many unknown names
// in a graph of many names stay linear.
class Suggester {
 public:
  // ` (did you mean "NAME"?)` for the closest of `names` within a third of its length in edits, else "".
  std::string For(const std::string& unknown, const std::vector<const std::string*>& names);
  std::string For(const std::string& unknown, const std::vector<std::string>& names);

 private:
  int64_t budget_ = 1'000'000;
};

// Least number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; `limit` + 1 when
// above `limit`.
int EditDistance(const std::string& a, const std::string& b, int limit);

}  // namespace weft
