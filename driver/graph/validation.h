#pragma once

// The parts of Validate (validate.h) and the state they share. Internal to driver/graph. Each part adds every error it
// finds and leaves a mark where it failed, so that later parts report nothing that only follows from it.

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/classes/signature.h"
#include "driver/graph/error_list.h"
#include "driver/graph/graph.h"
#include "driver/graph/suggest.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct Validation {
  Validation(const v1::Graph& g, const ClassTable& c) : graph(g), classes(c) {}

  const v1::Graph& graph;
  const ClassTable& classes;
  ErrorList errors;
  Suggester suggester;
  // Elements stand at the same index as in `graph`.
  ResolvedGraph out;

  // Index of each name; of the first, where it is declared twice.
  using Names = std::unordered_map<std::string, int>;
  Names actors, nodes, inputs, outputs, collectives;
  // The same names, for suggestions.
  std::vector<const std::string*> actor_names, node_names, input_names, output_names, collective_names;

  std::vector<const ClassSignature*> actor_class;  // per actor; nullptr: unknown
  std::vector<char> actor_config_ok;               // per actor
  std::vector<const MethodSignature*> method;      // per node; nullptr: unknown
  // Per node: actor, method, config and references are right, so that its outputs follow from its arguments.
  std::vector<char> node_ok;
  std::vector<char> input_ok;
  std::vector<char> collective_ok;
  // Whether the specs are known; set by InferSpecs.
  std::vector<char> node_known, collective_known;

  template <typename... Parts>
  void Error(const Parts&... parts) {
    errors.Add(errors.full() ? std::string() : absl::StrCat(parts...));
  }

  // `node "x"`, or `node[3]` for one without a usable name.
  std::string Actor(int i) const;
  std::string Node(int i) const;
  std::string Input(int i) const;
  std::string Output(int i) const;
  std::string Collective(int i) const;

  // Index of `name`, or -1 after adding the error `WHERE: WHAT names a node "x" that ...` with the name that was
  // probably meant.
  int FindNode(const std::string& where, const std::string& what, const std::string& name);
  int FindInput(const std::string& where, const std::string& what, const std::string& name);
  int FindCollective(const std::string& where, const std::string& what, const std::string& name);
};

// Index of `name`, or -1. The first try of what is asked often: it composes no message.
inline int Lookup(const Validation::Names& names, const std::string& name) {
  const auto it = names.find(name);
  return it == names.end() ? -1 : it->second;
}

// "argument 2", as errors call args.
std::string ArgName(int i);

// Names, duplicates, classes, configs, methods, inputs' specs.
void CheckDeclarations(Validation* v);
// Args, control edges, graph outputs.
void ResolveReferences(Validation* v);
// Members, reduce, root, and who may take the results.
void ResolveCollectives(Validation* v);
// Ranges; fills in the defaults.
void CheckOptions(Validation* v);
// Names every cycle. Returns all nodes, and after them in number (node count + index) all collectives, so that each
// stands behind what it depends on; those that are in or behind a cycle come last.
std::vector<int> OrderDependencies(Validation* v);
// Specs of outputs and collectives, in that order; indices of outputs.
void InferSpecs(Validation* v, const std::vector<int>& order);
// Edge overrides.
void CheckEdges(Validation* v);

// Adds an error for latency or bandwidth that are no finite numbers in range. `where` names the field.
void CheckLink(Validation* v, const std::string& where, const v1::EmulatedLink& link);
// prefetch_depth within 0 to 64.
void CheckPrefetchDepth(Validation* v, const std::string& where, int32_t depth);

}  // namespace weft
