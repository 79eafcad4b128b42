#pragma once

// A graph after validation: names resolved to indices, methods found, specs inferred. Plain data, made by Validate (validate.h) and
// read by the passes of driver/plan.

#include <string>
#include <vector>

#include "common/tensor/shape.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct ResolvedActor {
  std::string name;
  std::string cls;
  std::string worker;  // empty: automatic
  v1::Config config;
};

struct ResolvedArg {
  enum Kind { kNode, kInput, kCollective };
  Kind kind = kNode;
  int index = -1;  // into nodes, inputs or collectives
  int output = 0;  // kNode only
};

struct ResolvedNode {
  std::string name;
  int actor = -1;
  std::string method;   // never empty
  v1::Config config;    // merged
  std::vector<ResolvedArg> args;
  std::vector<int> after;  // nodes
  v1::Overlap overlap = v1::OVERLAP_UNSPECIFIED;
  std::vector<Spec> outputs;
  std::string device_error;  // not empty: what it says when a CUDA device alone finds that the call fails
};

struct ResolvedInput {
  std::string name;
  Spec spec;
};

struct ResolvedOutput {
  std::string name;
  bool is_collective = false;
  int index = -1;   // into nodes or collectives
  int output = 0;   // of a node
  int member = 0;   // of a collective: rank
};

struct ResolvedMember {
  int node = -1;
  int output = 0;
  int after = -1;  // node, or -1
};

struct ResolvedCollective {
  std::string name;
  v1::CollectiveOp op = v1::ALL_REDUCE;
  v1::ReduceOp reduce = v1::SUM;
  std::vector<ResolvedMember> members;
  int root_rank = 0;
  Spec input;
  Spec output;
};

// An `edge` of the graph, matched to the args (or graph outputs) that it speaks of.
struct EdgeOverride {
  // Producer: node index with output, or input index.
  ResolvedArg::Kind from_kind = ResolvedArg::kNode;
  int from = -1;
  int output = -1;     // -1: all
  bool to_output = false;  // `to` is a graph output (index into outputs) instead of a node
  int to = -1;
  v1::Edge edge;
};

struct ResolvedGraph {
  std::string name;
  std::vector<ResolvedActor> actors;
  std::vector<ResolvedNode> nodes;
  std::vector<ResolvedInput> inputs;
  std::vector<ResolvedOutput> outputs;
  std::vector<ResolvedCollective> collectives;
  std::vector<EdgeOverride> overrides;
  v1::Options options;  // every default filled in: overlap, prefetch_depth, max_in_flight, lanes, timeouts
};

}  // namespace weft
