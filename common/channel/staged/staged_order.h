#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace weft {

// The order in which values leave by one link on which both ends must take them in the same order (gloo), though copies from the device end, and are noticed,
// in another: a line of those that were issued, of which only the first may be sent. One thread.
class StagedOrder {
 public:
  // `wake` is called when the entry has come to the front; it may be late, and is not called for one that is first from the start.
  void Add(const void* who, std::function<void()> wake) { line_.push_back({who, std::move(wake)}); }
  bool IsFirst(const void* who) const { return !line_.empty() && line_.front().who == who; }
  // Pre: IsFirst.
  void Pop() {
    line_.pop_front();
    if (!line_.empty()) line_.front().wake();
  }
  // One that will never be sent.
  void Drop(const void* who) {
    const bool first = IsFirst(who);
    for (size_t i = 0; i < line_.size(); ++i) {
      if (line_[i].who != who) continue;
      line_.erase(line_.begin() + static_cast<int64_t>(i));
      break;
    }
    if (first && !line_.empty()) line_.front().wake();
  }

 private:
  struct Entry {
    const void* who;
    std::function<void()> wake;
  };
  std::deque<Entry> line_;
};

}  // namespace weft
