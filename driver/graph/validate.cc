#include "driver/graph/validate.h"

#include <utility>

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "driver/graph/validation.h"

namespace weft {
namespace {

// `name` where it can be shown as it is, else the place in the file.
std::string Label(const char* kind, const std::string& name, int index) {
  if (name.empty() || name.size() > 63) return absl::StrCat(kind, "[", index, "]");
  return absl::StrCat(kind, " ", Quote(name));
}

}  // namespace

std::string Validation::Actor(int i) const { return Label("actor", graph.actor(i).name(), i); }
std::string Validation::Node(int i) const { return Label("node", graph.node(i).name(), i); }
std::string Validation::Input(int i) const { return Label("input", graph.input(i).name(), i); }
std::string Validation::Output(int i) const { return Label("output", graph.output(i).name(), i); }
std::string Validation::Collective(int i) const { return Label("collective", graph.collective(i).name(), i); }

std::string ArgName(int i) { return absl::StrCat("argument ", i); }

int Validation::FindNode(const std::string& where, const std::string& what, const std::string& name) {
  const auto it = nodes.find(name);
  if (it != nodes.end()) return it->second;
  if (errors.full()) {
    Error();
  } else if (inputs.count(name) != 0) {
    Error(where, ": ", what, " names a node ", Quote(name),
          ", but that is an input; where a value is taken, write input: ", Quote(name));
  } else if (collectives.count(name) != 0) {
    Error(where, ": ", what, " names a node ", Quote(name),
          ", but that is a collective; where a value is taken, write collective: ", Quote(name));
  } else {
    Error(where, ": ", what, " names a node ", Quote(name), " that the graph does not have",
          suggester.For(name, node_names));
  }
  return -1;
}

int Validation::FindInput(const std::string& where, const std::string& what, const std::string& name) {
  const auto it = inputs.find(name);
  if (it != inputs.end()) return it->second;
  if (errors.full()) {
    Error();
  } else if (nodes.count(name) != 0) {
    Error(where, ": ", what, " names an input ", Quote(name), ", but that is a node; write node: ", Quote(name));
  } else {
    Error(where, ": ", what, " names an input ", Quote(name), " that the graph does not have",
          suggester.For(name, input_names));
  }
  return -1;
}

int Validation::FindCollective(const std::string& where, const std::string& what, const std::string& name) {
  const auto it = collectives.find(name);
  if (it != collectives.end()) return it->second;
  if (errors.full()) {
    Error();
  } else if (nodes.count(name) != 0) {
    Error(where, ": ", what, " names a collective ", Quote(name), ", but that is a node; write node: ", Quote(name));
  } else {
    Error(where, ": ", what, " names a collective ", Quote(name), " that the graph does not have",
          suggester.For(name, collective_names));
  }
  return -1;
}

absl::StatusOr<ResolvedGraph> Validate(const v1::Graph& graph, const ClassTable& classes) {
  Validation v(graph, classes);
  CheckDeclarations(&v);
  CheckOptions(&v);
  ResolveReferences(&v);
  ResolveCollectives(&v);
  const std::vector<int> order = OrderDependencies(&v);
  InferSpecs(&v, order);
  CheckEdges(&v);
  WEFT_RETURN_IF_ERROR(v.errors.ToStatus());
  return std::move(v.out);
}

}  // namespace weft
