#pragma once

#include <memory>

#include "common/device/device.h"

namespace weft {

// Runs everything on the caller's thread at once: a session's thread has nothing else to do than to copy.
class InlineStream : public Stream {
 public:
  explicit InlineStream(const Clock* clock) : clock_(clock) {}

  absl::StatusOr<EventRef> Launch(Work work) override {
    const absl::Status status = work.run ? work.run() : absl::OkStatus();
    if (work.status != nullptr) *work.status = status;
    if (work.hold != nullptr && *work.hold > 0) return std::make_shared<TimedEvent>(clock_, clock_->Now() + *work.hold);
    return EventRef();
  }
  void WaitFor(const EventRef&) override {}

 private:
  const Clock* const clock_;
};

}  // namespace weft
