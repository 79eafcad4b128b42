#pragma once

// The hand-made schedules, one file each. p workers, m microbatches, both at least 1. None depends on costs.
// InvalidArgument: m is one that the schedule cannot do; says the smallest that works.

#include "absl/status/statusor.h"
#include "driver/schedules/schedule.h"

namespace weft {

// All forwards in order; nothing else.
PipelineSchedule ForwardOnly(int32_t p, int32_t m);

// All forwards, then all backwards, both ascending. Holds m microbatches everywhere.
PipelineSchedule GPipe(int32_t p, int32_t m);

// Worker r: p-1-r forwards, then a forward and a backward in turn. Holds p-r.
PipelineSchedule OneForwardOneBackward(int32_t p, int32_t m);

// As 1F1B with twice the forwards in front: hops of values are hidden. Holds 2(p-1-r)+1.
PipelineSchedule EagerOneForwardOneBackward(int32_t p, int32_t m);

// v stages a worker; needs m to be a multiple of p.
absl::StatusOr<PipelineSchedule> Interleaved(int32_t p, int32_t m, int32_t v);

// v stages a worker, all microbatches through one stage after the other. Holds m.
PipelineSchedule LoopedBreadthFirst(int32_t p, int32_t m, int32_t v);

// 1F1B whose backward is two passes; worker r does W r microbatches later than I, so that every worker holds p.
PipelineSchedule ZeroBubbleH1(int32_t p, int32_t m);

// Twice the forwards in front and W 2r later: every worker holds 2p-1. Without bubbles from m = 2p-1 on.
PipelineSchedule ZeroBubbleH2(int32_t p, int32_t m);

// Two stages a worker in a V. Holds p.
PipelineSchedule ZeroBubbleV(int32_t p, int32_t m);

// Two stages a worker in a V, forwards and backwards of the two at once. Needs m >= 2p. Holds p + 1/2.
absl::StatusOr<PipelineSchedule> DualPipeV(int32_t p, int32_t m);

}  // namespace weft
