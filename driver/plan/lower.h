#pragma once

// Pass 4: tasks and transfers with their precedence, as the order pass needs them.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "driver/graph/graph.h"
#include "driver/plan/place.h"
#include "driver/plan/transport.h"

namespace weft {

// A node's call, or one member's part in a collective.
struct Task {
  int32_t worker = 0;
  int32_t local = 0;   // place in its worker's program: 0, 1, ... without gaps
  int32_t id = 0;      // breaks ties between workers: 2 * index of the node; for members see Lower
  int32_t group = -1;  // the collective of a member, otherwise -1
};

struct Transfer {
  int32_t src_task = -1;  // -1: the client
  int32_t dst_task = -1;
  bool rendezvous = false;
  int32_t depth = 0;  // its receive may be placed this many tasks ahead
};

// Every task is R (receives), C (the call), W (sends). C comes after all its R, W after C.
struct Program {
  int32_t workers = 0;
  int32_t groups = 0;
  std::vector<Task> tasks;          // numbered as in Placement
  std::vector<Transfer> transfers;  // one per edge, numbered alike
  // C of the first before R of the second: values and `after` within a worker.
  std::vector<std::pair<int32_t, int32_t>> local;
  // C of the first before C of the second: an actor's program order, or a worker's.
  std::vector<std::pair<int32_t, int32_t>> program;
  // For messages.
  std::function<std::string(int32_t task)> name;
};

// Worker programs are the nodes in the order of `rank` (a permutation: rank[i] is the i-th node; empty: the order of the file), with each
// member of a collective right after the later of its node and its `after`. All members of a collective have one id, just above that of the
// last node in the file after which one of them stands: as if the collective had been written there. With a rank all nodes of a worker keep its
// order, otherwise those of an actor. Linear.
Program Lower(const ResolvedGraph& graph, const Placement& placement, const Edges& edges, int32_t workers,
              const std::vector<int32_t>& rank);

}  // namespace weft
