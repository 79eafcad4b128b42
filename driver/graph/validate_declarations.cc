// Validate, first part: what each element says of itself.

#include <cstdint>

#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/classes/config.h"
#include "driver/graph/validation.h"

namespace weft {
namespace {

// Every node keeps its merged config, so a large config of an actor with many nodes multiplies.
constexpr uint64_t kMaxMergedConfigBytes = 256 << 20;

// Enters the names of one kind, and reports bad and repeated ones.
template <typename List>
void EnterNames(Validation* v, const char* kind, const List& list, Validation::Names* names,
                std::vector<const std::string*>* shown) {
  names->reserve(list.size());
  shown->reserve(list.size());
  for (int i = 0; i < list.size(); ++i) {
    const std::string& name = list[i].name();
    if (const absl::Status s = CheckName(kind, name); !s.ok()) {
      v->Error(kind, "[", i, "]: ", std::string(s.message()));
      if (name.empty()) continue;
    }
    const auto [it, fresh] = names->emplace(name, i);
    if (fresh) {
      shown->push_back(&name);
    } else {
      v->Error(kind, " ", Quote(name), " is declared twice, as ", kind, "[", it->second, "] and ", kind, "[", i,
               "]; rename one of them");
    }
  }
}

// A name that may mean either of two things where it is used.
void CheckDisjoint(Validation* v, const char* kind, const Validation::Names& names,
                   const std::vector<const std::string*>& shown, const char* why) {
  for (const std::string* name : shown) {
    if (names.count(*name) != 0)
      v->Error(kind, " ", Quote(*name), " has the name of a node; ", why, ", so rename one of them");
  }
}

// `where` composes the place.
template <typename Where>
void CheckConfig(Validation* v, Where where, const ClassSignature& cls, const MethodSignature* method, bool of_node,
                 const v1::Config& own, const v1::Config& merged, char* ok) {
  for (const std::string& problem : ConfigProblems(cls, method, of_node, own)) {
    v->Error(where(), ": ", problem);
    *ok = false;
  }
  if (!*ok || cls.check_config == nullptr) return;
  if (const absl::Status s = cls.check_config(merged); !s.ok()) {
    v->Error(where(), " (", cls.name, "): ", std::string(s.message()));
    *ok = false;
  }
}

void CheckActors(Validation* v) {
  const int n = v->graph.actor_size();
  v->actor_class.assign(n, nullptr);
  v->actor_config_ok.assign(n, true);
  v->out.actors.reserve(n);
  for (int i = 0; i < n; ++i) {
    const v1::Actor& actor = v->graph.actor(i);
    v->out.actors.push_back({actor.name(), actor.class_(), actor.worker(), actor.config()});
    if (!actor.worker().empty()) {
      if (const absl::Status s = CheckName("worker", actor.worker()); !s.ok()) {
        v->Error(v->Actor(i), ": ", std::string(s.message()));
      }
    }
    const ClassSignature* cls = v->classes.Find(actor.class_());
    v->actor_class[i] = cls;
    if (cls != nullptr) {
      CheckConfig(
          v, [&] { return v->Actor(i); }, *cls, nullptr, false, actor.config(), actor.config(), &v->actor_config_ok[i]);
    } else if (v->errors.full()) {
      v->Error();
    } else if (actor.class_().empty()) {
      v->Error(v->Actor(i), ": class is missing; one of ", absl::StrJoin(v->classes.Names(), ", "));
    } else {
      v->Error(v->Actor(i), ": there is no class ", Quote(actor.class_()),
               v->suggester.For(actor.class_(), v->classes.Names()), "; there are ",
               absl::StrJoin(v->classes.Names(), ", "));
    }
  }
}

std::string MethodNames(const ClassSignature& cls) {
  return absl::StrJoin(cls.methods, ", ", [](std::string* out, const MethodSignature& m) { out->append(m.name); });
}

// Method and number of arguments of one node whose actor's class is known.
void CheckMethod(Validation* v, int i, const ClassSignature& cls) {
  const v1::Node& node = v->graph.node(i);
  const MethodSignature* method = cls.Find(node.method());
  v->method[i] = method;
  if (method == nullptr) {
    v->node_ok[i] = false;
    if (v->errors.full()) {
      v->Error();
    } else if (node.method().empty()) {
      v->Error(v->Node(i), ": method is missing, and ", cls.name, " has several: ", MethodNames(cls));
    } else {
      std::vector<std::string> names;
      for (const MethodSignature& m : cls.methods) names.push_back(m.name);
      v->Error(v->Node(i), ": ", cls.name, " has no method ", Quote(node.method()),
               v->suggester.For(node.method(), names), "; it has ", MethodNames(cls));
    }
    return;
  }
  v->out.nodes[i].method = method->name;
  const int args = node.arg_size();
  if (args >= method->min_args && (method->max_args < 0 || args <= method->max_args)) return;
  v->node_ok[i] = false;
  std::string takes;
  if (method->max_args < 0) {
    takes = absl::StrCat(method->min_args, " or more");
  } else if (method->min_args == method->max_args) {
    takes = absl::StrCat(method->min_args);
  } else {
    takes = absl::StrCat(method->min_args, " to ", method->max_args);
  }
  v->Error(v->Node(i), ": ", cls.name, ".", method->name, " takes ", takes, takes == "1" ? " argument" : " arguments",
           ", and is given ", args);
}

void CheckNodes(Validation* v) {
  const int n = v->graph.node_size();
  if (n == 0) v->Error("the graph has no node; add at least one");
  v->method.assign(n, nullptr);
  v->node_ok.assign(n, true);
  v->out.nodes.resize(n);
  std::vector<uint64_t> actor_bytes;
  for (const v1::Actor& a : v->graph.actor()) actor_bytes.push_back(a.config().ByteSizeLong());
  uint64_t merged_bytes = 0;
  bool too_large = false;
  for (int i = 0; i < n; ++i) {
    const v1::Node& node = v->graph.node(i);
    ResolvedNode& out = v->out.nodes[i];
    out.name = node.name();
    out.overlap = node.overlap();
    if (!v1::Overlap_IsValid(node.overlap())) {
      v->Error(v->Node(i), ": overlap ", static_cast<int>(node.overlap()), " is not one of OFF, ON, AUTO");
    }
    const auto actor = v->actors.find(node.actor());
    if (actor == v->actors.end()) {
      v->node_ok[i] = false;
      if (v->errors.full()) {
        v->Error();
      } else if (node.actor().empty()) {
        v->Error(v->Node(i), ": actor is missing; name the actor whose method it calls");
      } else {
        v->Error(v->Node(i), ": actor ", Quote(node.actor()), " is not declared",
                 v->suggester.For(node.actor(), v->actor_names));
      }
      continue;
    }
    out.actor = actor->second;
    const ClassSignature* cls = v->actor_class[out.actor];
    if (cls == nullptr || !v->actor_config_ok[out.actor]) v->node_ok[i] = false;
    if (cls == nullptr) continue;
    CheckMethod(v, i, *cls);

    merged_bytes += actor_bytes[out.actor] + node.config().ByteSizeLong();
    if (merged_bytes > kMaxMergedConfigBytes) {
      if (!too_large) {
        v->Error(v->Node(i), ": with this node the configs of all nodes, each with its actor's, have more than ",
                 kMaxMergedConfigBytes >> 20, " MiB; pass large data as graph inputs");
      }
      too_large = true;
      v->node_ok[i] = false;
      continue;
    }
    const v1::Config& actor_config = v->graph.actor(out.actor).config();
    if (!node.has_config()) {
      out.config = actor_config;
      continue;
    }
    out.config = MergeConfig(actor_config, node.config());
    char ok = v->actor_config_ok[out.actor];
    CheckConfig(
        v, [&] { return v->Node(i); }, *cls, v->method[i], true, node.config(), out.config, &ok);
    if (!ok) v->node_ok[i] = false;
  }
}

void CheckInputs(Validation* v) {
  const int n = v->graph.input_size();
  v->input_ok.assign(n, true);
  v->out.inputs.reserve(n);
  for (int i = 0; i < n; ++i) {
    const v1::Input& input = v->graph.input(i);
    v1::TensorSpec proto;
    proto.set_dtype(input.dtype());
    proto.set_shape(input.shape());
    const absl::StatusOr<Spec> spec = SpecFromProto(proto);
    v->out.inputs.push_back({input.name(), spec.ok() ? *spec : Spec{}});
    if (spec.ok()) continue;
    v->Error(v->Input(i), ": ", std::string(spec.status().message()));
    v->input_ok[i] = false;
  }
}

}  // namespace

void CheckDeclarations(Validation* v) {
  const v1::Graph& g = v->graph;
  if (const absl::Status s = CheckName("graph", g.name()); !s.ok()) v->Error(std::string(s.message()));
  v->out.name = g.name();
  EnterNames(v, "actor", g.actor(), &v->actors, &v->actor_names);
  EnterNames(v, "node", g.node(), &v->nodes, &v->node_names);
  EnterNames(v, "input", g.input(), &v->inputs, &v->input_names);
  EnterNames(v, "output", g.output(), &v->outputs, &v->output_names);
  EnterNames(v, "collective", g.collective(), &v->collectives, &v->collective_names);
  CheckDisjoint(v, "input", v->nodes, v->input_names, "an edge's `from` could mean either");
  CheckDisjoint(v, "collective", v->nodes, v->collective_names, "an error could come from either");
  CheckActors(v);
  CheckNodes(v);
  CheckInputs(v);
}

}  // namespace weft
