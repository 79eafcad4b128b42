#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

// What is wrong with a plan, one line each: "V7 w0: COMPUTE a: ...". Keeps the first kMax lines and counts the rest, so that a plan
// damaged everywhere costs neither memory nor patience. `more()` lets callers skip the making of text nobody will see.
class Findings {
 public:
  static constexpr size_t kMax = 100;

  template <typename... Parts>
  void Add(const char* rule, const Parts&... parts) {
    if (lines_.size() < kMax) {
      lines_.push_back(absl::StrCat(rule, " ", parts...));
    } else {
      ++dropped_;
    }
  }

  bool empty() const { return lines_.empty(); }
  bool more() const { return lines_.size() < kMax; }
  // Counts a finding whose text was not made.
  void Drop() { ++dropped_; }

  // OK when there is none.
  absl::Status ToStatus(absl::StatusCode code, const std::string& graph) const {
    if (lines_.empty()) return absl::OkStatus();
    std::string text = absl::StrCat("plan of graph \"", graph, "\" is refused:\n", absl::StrJoin(lines_, "\n"));
    if (dropped_ > 0) absl::StrAppend(&text, "\nand ", dropped_, " more");
    return absl::Status(code, text);
  }

 private:
  std::vector<std::string> lines_;
  size_t dropped_ = 0;
};

}  // namespace weft
