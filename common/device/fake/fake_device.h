#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/device/device.h"

namespace weft {

// For tests: no threads, and the moment at which work is done is the test's choice, so that completions come in every order.
//
// kInline work runs within Launch, as on every device. kThread work runs when its event becomes ready, within some Ready() of its
// stream's events: whoever reads too early finds nothing there. Streams stay in order. Used by one thread. Streams and events may
// outlive the device.
class FakeDevice : public Device {
 public:
  struct Options {
    // How often Ready() says no for each unit of work, in the order of launches; taken round and round. Empty: random.
    std::vector<int> polls;
    // Largest random number of such polls.
    int max_polls = 3;
    // When > 0, work is done after a random time of `clock` up to this long instead of after polls.
    Nanos max_delay = 0;
    uint64_t seed = 1;
    int queue_depth = 1;
    // Whether it can wait for its own streams' events; a stream's waits then poll the event in its place in the queue.
    bool can_wait = false;
    // Launch number `fail_launch` (from 0) fails with Internal; -1: none.
    int64_t fail_launch = -1;
    // What kind() says.
    std::string kind = "cpu";
  };

  explicit FakeDevice(Clock* clock) : FakeDevice(clock, Options()) {}
  FakeDevice(Clock* clock, Options options);

  std::string kind() const override { return core_->options.kind; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(v1::LaneKind lane) override;
  absl::StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  int QueueDepth() const override { return core_->options.queue_depth; }
  bool CanWaitFor(const EventRef& event) const override;
  absl::Status Health() const override { return health_; }

  // What Health() says from now on.
  void SetHealth(absl::Status health) { health_ = std::move(health); }
  // Units launched so far, on all streams.
  int64_t launches() const { return core_->launches; }

 private:
  class FakeStream;
  struct Core {
    Clock* clock;
    Options options;
    std::mt19937_64 rng;
    int64_t launches = 0;
  };
  const std::shared_ptr<Core> core_;
  absl::Status health_;
};

}  // namespace weft
