#pragma once

// How far each worker's monotonic clock stands from the driver's.

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "driver/cluster/registry.h"

namespace weft {

// Sends a burst of pings when a worker arrives and one every few seconds from then on (which also gives the connection data to
// acknowledge, so that the death of another host is noticed). Of the last kKept samples, that with the shortest round trip counts.
// Thread-safe.
class ClockSync {
 public:
  static constexpr int kKept = 8;
  static constexpr Nanos kInterval = 5 * kNanosPerSecond;

  struct Offset {
    // Add to the worker's times to get the driver's.
    Nanos offset = 0;
    // Half of the round trip: the offset is right to within this.
    Nanos error = 0;
    bool known = false;
  };

  ClockSync(const Clock* clock, WorkerRegistry* registry) : clock_(clock), registry_(registry) {}

  void Joined(const std::string& worker, const std::string& incarnation);
  void Lost(const std::string& worker);
  // `now`: when the reply was read from the stream.
  void Reply(const std::string& worker, int64_t request, Nanos worker_ns, Nanos now);
  Offset OffsetOf(const std::string& worker) const;
  // Pings whoever is due.
  void Tick();

 private:
  struct Sample {
    Nanos offset = 0;
    Nanos round_trip = 0;
  };
  struct Peer {
    std::string incarnation;
    std::deque<Sample> samples;
    int64_t request = 0;  // the one under way; 0: none
    Nanos sent = 0;
    Nanos next = 0;
  };
  void Ping(const std::string& worker, Peer* peer) WEFT_REQUIRES(mu_);

  const Clock* const clock_;
  WorkerRegistry* const registry_;
  mutable Mutex mu_;
  std::map<std::string, Peer> peers_ WEFT_GUARDED_BY(mu_);
  int64_t next_request_ WEFT_GUARDED_BY(mu_) = 1;
};

}  // namespace weft
