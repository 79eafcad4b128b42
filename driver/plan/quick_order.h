#pragma once

// A fast, coarse search for an order: one execution, one call at a time on each worker, transfers and collectives that hold nobody. What it
// finds is for the real judge (cost_order.h) to accept.

#include <cstdint>

#include "driver/plan/cost_order.h"

namespace weft {

// When the last vertex ends if each worker runs its nodes in this order. O(n). Pre: the order is one of the graph's.
Nanos QuickMakespan(const TaskCosts& tasks, const NodeOrder& order);

// The best order met on a walk of `steps` changes from `from`, each of them made where the longest way through the graph can be cut: a
// node of a stretch that a worker runs without a pause goes to the front or the end of that stretch. Worse orders are accepted by less and
// less. Deterministic. O(steps n log n).
NodeOrder QuickSearch(const TaskCosts& tasks, const NodeOrder& from, int64_t steps);

}  // namespace weft
