#pragma once

// `order: COST`: orders in which the nodes of each worker might run, by what they and the transfers behind them cost, and the search among
// them.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/plan/task_costs.h"

namespace weft {

// An order: all nodes, each behind everything that its values, `after`s and collectives need. Each worker's program is its part of it.
using NodeOrder = std::vector<int32_t>;

// Among those that may come next, the one with the longest way to the end of the graph first, whenever it can really run; ties in the
// order of the file. O(n log n).
NodeOrder LongestWayOrder(const TaskCosts& tasks);

// What a worker takes when it is free, of the nodes whose values are there.
enum class Prefer {
  kLongestWay,      // what has the longest way to go
  kFile,            // what stands first in the file
  kNewest,          // what became possible last: finishes what was begun
  kLongestWayBack,  // as kLongestWay, found from the end of the graph backwards
};
// As if each worker took, whenever it is free, the preferred node of those that can run at that time. O(n log n).
NodeOrder ListOrder(const TaskCosts& tasks, Prefer prefer);

// The order whose nodes stand by `key` (smallest first) wherever what they need allows it. O(n log n).
NodeOrder OrderByKey(const TaskCosts& tasks, const std::vector<int64_t>& key);

// What is compared: seconds per execution, then the end of the first.
using OrderScore = std::pair<double, Nanos>;
// What an order comes to; an error: it cannot be used (too many bytes).
using OrderJudge = std::function<absl::StatusOr<OrderScore>(const NodeOrder& order)>;

struct FoundOrder {
  NodeOrder order;
  OrderScore score;
  int64_t judged = 0;  // orders that were tried
};

// The best of the orders above and of what small changes of the best of them lead to, `most` orders in all (at least those above; with 1
// the first alone). Deterministic. The judge's last error when it refuses all.
absl::StatusOr<FoundOrder> SearchOrder(const TaskCosts& tasks, const OrderJudge& judge, int64_t most);

}  // namespace weft
