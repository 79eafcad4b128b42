#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"

namespace weft {

struct TraceRecord {
  // As `op`: a whole captured iteration.
  static constexpr int32_t kIteration = -1;

  int32_t op = 0;  // PlanOp::id
  bool error = false;
  int64_t execution = 0;
  Nanos start = 0;
  Nanos end = 0;
};

// The last records of one graph on one worker; older ones are overwritten. Used by the loop's thread only.
class TraceRecorder {
 public:
  explicit TraceRecorder(size_t capacity) : capacity_(capacity) {}

  bool enabled() const { return capacity_ > 0; }
  void Add(const TraceRecord& r) {
    if (capacity_ == 0) return;
    if (ring_.size() < capacity_) {
      ring_.push_back(r);
    } else {
      ring_[next_] = r;
    }
    next_ = (next_ + 1) % capacity_;
  }

  void Clear() {
    ring_.clear();
    next_ = 0;
  }

  // Records of executions >= first, oldest first.
  std::vector<TraceRecord> Since(int64_t first) const {
    std::vector<TraceRecord> out;
    const size_t n = ring_.size();
    const size_t begin = n < capacity_ ? 0 : next_;
    for (size_t i = 0; i < n; ++i) {
      const TraceRecord& r = ring_[(begin + i) % n];
      if (r.execution >= first) out.push_back(r);
    }
    return out;
  }

 private:
  const size_t capacity_;
  size_t next_ = 0;
  std::vector<TraceRecord> ring_;
};

}  // namespace weft
