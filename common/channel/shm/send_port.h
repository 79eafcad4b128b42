#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/channel/port.h"
#include "common/channel/shm/segment.h"

namespace weft {

// The writing end of one edge of a segment. Send copies the payload into the slot: up to kInlineCopyBytes within the call, above that
// as work of the stream's device (Work::kThread), with an event. The first execution may be below 0: bootstrap's self-test sends one
// message before execution 0, and an error value serves, since it fits every edge.
class ShmSendPort : public SendPort {
 public:
  static constexpr size_t kInlineCopyBytes = 256 << 10;

  // Pre: segment->is_writer(). NotFound when the segment has no such edge. `clock` outlives the port and its events, and must be
  // CLOCK_MONOTONIC (or shared by both ends, in a test): the ends of an emulated link compare their times.
  static absl::StatusOr<std::unique_ptr<ShmSendPort>> Create(std::shared_ptr<ShmSegment> segment, int32_t edge, const Clock* clock);

  PortState Poll(int64_t execution) override;
  // Also DataLoss when the other end's accounts make no sense; ResourceExhausted when a growing slot finds no memory.
  absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) override;
  std::string WaitsFor() const override;
  absl::Status closed() const override { return segment_->closed(); }
  // The slot itself, for edges of planned size.
  absl::StatusOr<void*> Reserve(int ahead, size_t bytes) override;
  PortState PollAhead(int64_t execution, int ahead) override;
  EventRef Released() override;

 private:
  ShmSendPort(std::shared_ptr<ShmSegment> segment, int index, const Clock* clock);
  const ShmEdgeSpec& spec() const { return segment_->edges()[index_]; }
  void SetStarved(bool starved);
  // The reader's count, or what it was when the new one is impossible; then the segment is closed.
  uint64_t ReleasedCount() const;
  // Where the payload of message `number` goes; nullptr for none.
  absl::StatusOr<std::shared_ptr<shm::Mapping>> PlaceFor(uint64_t number, uint64_t bytes, char** data);

  const std::shared_ptr<ShmSegment> segment_;
  const int index_;
  const Clock* const clock_;
  uint64_t sent_ = 0;
  bool starved_ = false;  // what the ring says
  mutable uint64_t released_ = 0;
  std::vector<int64_t> executions_;                      // of the message in each slot
  std::vector<std::shared_ptr<shm::Mapping>> grown_;     // of each slot; nullptr: none yet
};

}  // namespace weft
