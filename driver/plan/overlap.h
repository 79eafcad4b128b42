#pragma once

// Pass 6: waits, not moves.

#include <vector>

#include "common/plan/plan.h"
#include "driver/plan/transport.h"

namespace weft {

// Where an edge does not overlap, its RECV or READ waits for the nearest COMPUTE before it in its worker's list, and a COMPUTE for the
// nearest SEND or WRITE of such an edge before it; at the list's start for the last ones of the execution before. With `collectives_overlap`
// false, collectives are held to both. A wait that the lane's own order implies is left out. Linear.
void AddOverlapWaits(const std::vector<EdgeInfo>& info, bool collectives_overlap, Plan* plan);

}  // namespace weft
