#pragma once

// Recorded and predicted op times put on one time axis: clock offsets applied, events grouped by lane. What the renderers draw.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "weft/v1/client_service.pb.h"

namespace weft {

struct TimelineBar {
  int32_t op = -1;
  std::string name;
  v1::OpKind kind = v1::OP_KIND_UNSPECIFIED;
  int64_t execution = 0;
  Nanos start = 0;
  Nanos end = 0;
  bool error = false;
};

struct TimelineLane {
  std::string worker;
  v1::LaneKind kind = v1::LANE_KIND_UNSPECIFIED;
  int32_t index = 0;
  std::vector<TimelineBar> bars;  // by start, then op
};

// One set of lanes on one clock, which starts at 0 with its first op.
struct TimelinePanel {
  // Workers in natural order of their names, lanes of a worker: recv, compute, send, copy, collective.
  std::vector<TimelineLane> lanes;
  // Largest uncertainty between two workers' clocks that is left in `lanes`.
  Nanos clock_error = 0;
  // What a reader must know, such as clocks that contradict each other by more than their stated error.
  std::vector<std::string> notes;

  bool empty() const { return lanes.empty(); }
  // (end of the last - end of the first) / (n - 1) in seconds over the executions it holds; 0 with fewer than two.
  double SecondsPerExecution() const;
};

struct Timeline {
  TimelinePanel predicted;
  TimelinePanel measured;
};

// Tracks may come in any order and any number for one worker. Events that end before they start, or whose numbers cannot be put on one
// axis, are left out and counted in a note, and so are the pauses of a client (pauses.h). Where the workers' clocks would show a receive ending before its send starts, they are moved
// against each other within their stated errors; what remains is said in a note.
Timeline BuildTimeline(const std::vector<v1::TraceTrack>& tracks);

// The panel with only the executions [first, first + count), its clock starting at 0 again.
TimelinePanel SelectExecutions(const TimelinePanel& panel, int64_t first, int64_t count);

// Lowest execution number of a panel, and how many different ones it holds. 0, 0 for an empty one.
void ExecutionRange(const TimelinePanel& panel, int64_t* first, int64_t* count);

}  // namespace weft
