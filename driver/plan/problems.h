#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

// Collects what is wrong, so that all of it is reported at once.
class Problems {
 public:
  void Add(std::string what) {
    if (++count_ <= kShown) list_.push_back(std::move(what));
  }
  bool empty() const { return count_ == 0; }
  // InvalidArgument, one problem a line; OK when there is none.
  absl::Status ToStatus() const {
    if (empty()) return absl::OkStatus();
    std::string text = absl::StrJoin(list_, "\n");
    if (count_ > kShown) absl::StrAppend(&text, "\nand ", count_ - kShown, " more");
    return absl::InvalidArgumentError(text);
  }

 private:
  static constexpr size_t kShown = 100;
  size_t count_ = 0;
  std::vector<std::string> list_;
};

}  // namespace weft
