#pragma once

// From a graph to a verified plan: the passes of driver/plan in their order.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/classes/signature.h"
#include "common/plan/plan.h"
#include "driver/simulate/cost_model.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct ClusterWorker {
  std::string name;
  std::string host_id;
  std::string device = "cpu";  // "cpu" or "cuda"
  uint64_t memory_bytes = 0;   // planned bytes that it can hold; 0: no limit
};

// How fast values move between two places. What is empty fits everything; `from` and `to` may be "client".
struct ClusterLink {
  std::string from, to, from_host, to_host;
  v1::Transport transport = v1::TRANSPORT_UNSPECIFIED;
  bool one_way = false;
  double latency_s = 0;
  double bandwidth = 0;  // bytes/s, 0: unlimited
  double first_s = 0;    // what the first transfer between two workers takes longer
};

// What the compiler knows of the machines.
struct Cluster {
  std::vector<ClusterWorker> workers;
  std::string client_host_id;  // where client edges end: the driver's host
  uint64_t ipc_crossover_bytes = 1 << 20;
  // For the simulator (driver/simulate/cost_file.h); for an edge the first that fits. The compiler itself needs none.
  std::vector<ClusterLink> links;
};

// One host and CPU workers as named in the graph, in natural order of their names; "w0" if it names none.
Cluster ClusterFromGraph(const v1::Graph& graph);

// Seconds that each pass took, for `weft plan --timing` and benchmarks.
struct CompileTimes {
  std::vector<std::pair<std::string, double>> passes;
};

// `costs` is what `order: COST` and `overlap: AUTO` predict with.
// `running`: only plans to which that one could change while it runs (same_parts.h); FailedPrecondition when there is none.
// InvalidArgument: the graph is wrong, or does not fit the cluster (every problem, one a line). ResourceExhausted: the byte limit cannot
// be met (names the worker, the op and the bytes), or the plan would exceed kMaxOps. Internal: the verifier found a bug of a pass.
absl::StatusOr<Plan> Compile(const v1::Graph& graph, const ClassTable& classes, const Cluster& cluster,
                             CompileTimes* times = nullptr, const CostModel& costs = CostModel::Default(), const Plan* running = nullptr);

}  // namespace weft
