#pragma once

#include <string>

#include "weft/v1/graph.pb.h"

namespace weft {

struct OverlapKind {
  const char* key;  // "off", "on", "on_inflight"
  bool overlap;
  int in_flight;
};

// Three std.Source on w0 to w2 that take no time, three std.Delay of `delay_s` on w3; each takes one source's value over a link of latency
// `transfer_s` and gives an output. Two receive buffers an edge.
v1::Graph OverlapGraph(const std::string& name, double delay_s, double transfer_s, bool overlap, int in_flight);

// Seconds per execution that no schedule can beat: the receiver's one receive lane and its one compute lane each have three ops.
double OverlapBound(double delay_s, double transfer_s);

}  // namespace weft
