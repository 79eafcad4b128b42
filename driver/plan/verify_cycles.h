#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// One step of a circle: `op` needs `needs` first. The next step's op runs at one instant with this step's `needs` (is in its unit),
// and so does the first step's op with the last step's `needs`.
struct CycleStep {
  int32_t op = -1;
  int32_t needs = -1;
};
using Cycle = std::vector<CycleStep>;

// Which ops each op needs, flattened: those of op i are needs[at[i]] .. needs[at[i + 1]].
struct NeedsTable {
  std::vector<int32_t> at;
  std::vector<int32_t> needs;
};

// The strongly connected parts of the units' graph, one short circle from each, up to `max`; those that depend on no other circle come
// first. Empty: there is none, so the units have an order. `unit_of` maps ops to 0 .. num_units-1. Linear; uses no recursion.
std::vector<Cycle> FindCycles(const std::vector<int32_t>& unit_of, int32_t num_units, const NeedsTable& table, size_t max);

}  // namespace weft
