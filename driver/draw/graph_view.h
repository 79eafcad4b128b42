#pragma once

// A graph as it is drawn: what there is, where it is placed, and what goes from where to where. Made from a plan, so that the pictures of a
// graph file and of a plan file are the same.

#include <cstdint>
#include <string>
#include <vector>

#include "common/plan/plan.h"

namespace weft {

struct GraphVertex {
  enum Kind { kNode, kInput, kOutput, kCollective };
  Kind kind = kNode;
  std::string name;
  std::string what;         // "std.Gemm square", "F32[4]", "ALL_REDUCE SUM"
  int32_t worker = kClient;  // of a collective: of its first member
  int32_t depth = 0;        // longest way to it from a vertex without predecessors, in arcs
};

struct GraphArc {
  int32_t from = 0, to = 0;  // vertices
  v1::Transport transport = v1::LOCAL;
  std::string what;          // "F32[4], 16 bytes, 2 slots"; empty: of a control arc
  bool control = false;
};

struct GraphView {
  std::string name;
  std::vector<std::string> workers;  // "w0 (host h, cpu)"
  std::vector<GraphVertex> vertices;
  std::vector<GraphArc> arcs;
};

// Pre: CheckPlan(plan) is OK; it need not be verified: what has no other end is left out.
GraphView ViewOf(const Plan& plan);

// For Graphviz: one cluster a worker; dashed arcs are control edges.
std::string GraphToDot(const GraphView& view);

// Self-contained picture: one band a worker, the client's above; time goes to the right. Shows the first 1500 vertices, and says so.
std::string GraphToSvg(const GraphView& view);

}  // namespace weft
