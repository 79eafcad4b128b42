#pragma once

#include "common/plan/plan.h"

namespace weft {

// Whether a running graph could change from one plan to the other: the same workers, actors, nodes, edges, collectives and buffers; only the order
// of ops, and which lane of a kind each is on, may differ.
bool OnlyOrderDiffers(const Plan& a, const Plan& b);

}  // namespace weft
