#pragma once

#include <string>

#include "common/base/clock.h"

namespace weft {

// One line on stderr that says how far long work is, where stderr is a terminal; nothing otherwise. Erased when it goes.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool enabled() const { return enabled_; }
  // At most ten times a second, whatever the caller's pace, and not in the first half second.
  void Update(const std::string& text);
  void Clear();

 private:
  const bool enabled_;
  const Nanos begin_;
  Nanos last_ = 0;
  bool shown_ = false;
};

}  // namespace weft
