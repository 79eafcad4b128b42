#pragma once

#include "driver/schedules/auto.h"

namespace weft {

// The least makespan, and the least span with it, over all orders in which every stage takes its microbatches in turn: tries them all. Pre:
// one stage a worker, 2 workers with up to 4 microbatches, or 3 with up to 3.
Score ExhaustiveOptimum(const AutoProblem& problem);

}  // namespace weft
