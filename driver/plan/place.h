#pragma once

// Pass 2: every actor gets a worker.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/graph/graph.h"
#include "driver/plan/compiler.h"

namespace weft {

struct Placement {
  std::vector<int32_t> actor_worker;  // by actor: index into Cluster::workers
  std::vector<int32_t> node_worker;   // by node
  // Tasks are numbered: node i is task i, member `rank` of collective g is task member_base[g] + rank.
  std::vector<int32_t> member_base;
  int32_t tasks = 0;
  // Members of all collectives as (collective, worker) with their task; sorted.
  std::vector<std::pair<std::pair<int32_t, int32_t>, int32_t>> members;

  // The task of the collective's member on a worker; -1 when it has none there.
  int32_t MemberTask(int32_t collective, int32_t worker) const;
};

// Actors that name a worker get it. The others, in the order of the file, get the worker with the fewest nodes so far (the first of
// several), within what collectives ask for: members on different workers, consumers and `after` nodes beside a member.
// InvalidArgument lists every problem, one a line. Deterministic.
absl::StatusOr<Placement> Place(const ResolvedGraph& graph, const Cluster& cluster);

}  // namespace weft
