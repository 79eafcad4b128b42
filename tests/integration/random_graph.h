#pragma once

#include <cstdint>
#include <vector>

#include "weft/v1/graph.pb.h"

namespace weft {

struct RandomGraphOptions {
  int min_workers = 2, max_workers = 6;
  int min_nodes = 1, max_nodes = 40;
  bool collectives = true;
  bool gloo_edges = true;      // overrides some edges to GLOO
  bool emulated_links = true;  // lays links of a few microseconds over some edges
  bool failures = true;        // some std.Fail tasks
  bool inputs = true;
  std::vector<int64_t> sizes = {12, 12, 12, 1, 3000};  // elements of sources, each as likely
};

// A valid graph made from a seed, the same for the same seed: several actors a worker, tasks with several outputs, fan-out, values read
// several times by one task, control edges, mixed transports. Workers are named w0, w1, ... Every node's first output that nobody reads
// is a graph output, so that nothing computed goes unchecked.
v1::Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options);

}  // namespace weft
