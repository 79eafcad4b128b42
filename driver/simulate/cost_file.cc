#include "driver/simulate/cost_file.h"

#include <google/protobuf/text_format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "driver/graph/error_list.h"
#include "driver/graph/parse.h"
#include "driver/graph/suggest.h"
#include "driver/simulate/cluster_file.h"
#include "driver/simulate/cost_checks.h"

namespace weft {
namespace {

// Names have no blank in them: a key of several is never that of others.
std::string Key(const std::string& a, const std::string& b = "", const std::string& c = "") { return absl::StrCat(a, " ", b, " ", c); }
std::string KeyOf(const v1::NodeCost& n) { return n.node().empty() ? Key(n.actor(), n.class_(), n.method()) : n.node(); }
std::string KeyOf(const v1::EdgeCost& e) { return Key(e.from(), e.to(), e.has_output() ? absl::StrCat(e.output()) : ""); }

std::string NameOf(const v1::NodeCost& n) {
  if (!n.node().empty()) return "node " + Quote(n.node());
  std::vector<std::string> parts;
  for (const auto& [what, name] : {std::pair("actor", &n.actor()), {"class", &n.class_()}, {"method", &n.method()}}) {
    if (!name->empty()) parts.push_back(absl::StrCat(what, " ", Quote(*name)));
  }
  return absl::StrJoin(parts, ", ");
}

void CheckNode(const std::string& at, const v1::NodeCost& n, ErrorList* problems) {
  const bool others = !n.actor().empty() || !n.class_().empty() || !n.method().empty();
  if (n.node().empty() && !others) problems->Add(absl::StrCat(at, ": names nothing: set node, or some of actor, class, method"));
  if (!n.node().empty() && others) problems->Add(absl::StrCat(at, ": node ", Quote(n.node()), " says it all: leave actor, class and method out"));
  if (!n.actor().empty() && !n.class_().empty()) problems->Add(absl::StrCat(at, ".class: the actor has one already: leave it out"));
  if (!n.has_time_s()) problems->Add(absl::StrCat(at, ".time_s: is missing for ", NameOf(n), "; 0 is the smallest that works"));
  CheckSeconds(at + ".time_s", n.time_s(), problems);
  CheckSeconds(at + ".first_s", n.first_s(), problems);
}

void CheckEdge(const std::string& at, const v1::EdgeCost& e, ErrorList* problems) {
  if (e.from().empty()) problems->Add(absl::StrCat(at, ".from: is missing: name a node or graph input"));
  if (e.to().empty()) problems->Add(absl::StrCat(at, ".to: is missing: name a node or graph output"));
  if (e.output() < 0) problems->Add(absl::StrCat(at, ".output: ", e.output(), " is negative; 0 is the smallest that works"));
  if (e.has_time_s() && e.has_bandwidth()) problems->Add(absl::StrCat(at, ": time_s and bandwidth say the same twice: keep one"));
  if (!e.has_time_s() && !e.has_bandwidth() && !e.has_latency_s() && !e.has_read_s() && !e.has_bytes() && e.first_s() == 0) {
    problems->Add(absl::StrCat(at, ".time_s: is missing for ", Quote(e.from()), " -> ", Quote(e.to()),
                               "; 0 is the smallest that works (or set bandwidth, latency_s, read_s or bytes)"));
  }
  CheckSeconds(at + ".time_s", e.time_s(), problems);
  if (e.has_bandwidth()) CheckBandwidth(at + ".bandwidth", e.bandwidth(), "leave it out for unlimited", problems);
  CheckSeconds(at + ".latency_s", e.latency_s(), problems);
  CheckSeconds(at + ".read_s", e.read_s(), problems);
  CheckSeconds(at + ".first_s", e.first_s(), problems);
}

void CheckContention(const std::string& at, const v1::Contention& c, ErrorList* problems) {
  const auto lane = [&](const char* field, v1::LaneKind kind, v1::Transport transport) {
    if (kind == v1::LANE_KIND_UNSPECIFIED || !v1::LaneKind_IsValid(kind)) {
      problems->Add(absl::StrCat(at, ".", field, ": is missing: LANE_COMPUTE, LANE_SEND, LANE_RECV, LANE_COPY or LANE_COLLECTIVE"));
    }
    if (kind == v1::LANE_COMPUTE && transport != v1::TRANSPORT_UNSPECIFIED) {
      problems->Add(absl::StrCat(at, ".", field, "_transport: computations have no transport: leave it out"));
    }
  };
  lane("slowed", c.slowed(), c.slowed_transport());
  lane("beside", c.beside(), c.beside_transport());
  if (!c.node().empty() && c.slowed() != v1::LANE_COMPUTE) problems->Add(absl::StrCat(at, ".node: only with slowed: LANE_COMPUTE"));
  if (!c.has_factor()) {
    problems->Add(absl::StrCat(at, ".factor: is missing; 1 is the smallest that works"));
  } else {
    CheckFactor(at + ".factor", c.factor(), problems);
  }
}

// Edge's or node's name and whether it is in the plan, for CheckCosts.
class PlanNames {
 public:
  explicit PlanNames(const Plan& plan) {
    for (const PlanNode& n : plan.nodes) {
      nodes.insert(n.name);
      methods.insert(n.method);
    }
    for (const PlanActor& a : plan.actors) {
      actors.insert(a.name);
      classes.insert(a.cls);
    }
    for (const PlanGroup& g : plan.groups) groups.insert(g.name);
    ends = nodes;
    for (const PlanEdge& e : plan.edges) {
      ends.insert(e.src);
      ends.insert(e.dst);
    }
  }

  using Set = std::unordered_set<std::string>;
  Set nodes, actors, classes, methods, groups, ends;
};

// The costs with everything looked up by name.
class Lookup {
 public:
  Lookup(const v1::Costs& costs, const std::vector<ClusterLink>& links) : costs_(costs), links_(links), default_(CostModel::Default()) {
    for (const v1::NodeCost& n : costs_.node()) nodes_[KeyOf(n)] = &n;
    for (const v1::EdgeCost& e : costs_.edge()) edges_[KeyOf(e)] = &e;
    for (const v1::CollectiveCost& c : costs_.collective()) groups_[c.collective()] = &c;
  }

  const v1::NodeCost* Find(const Plan& plan, const PlanNode& n) const {
    const PlanActor* actor = FindActor(plan, n.actor);
    const std::string& cls = actor != nullptr ? actor->cls : empty_;
    const std::string& name = actor != nullptr ? actor->name : empty_;
    for (const std::string& key : {n.name, Key(name, "", n.method), Key(name), Key("", cls, n.method), Key("", cls), Key("", "", n.method)}) {
      const auto it = nodes_.find(key);
      if (it != nodes_.end()) return it->second;
    }
    return nullptr;
  }

  std::optional<Nanos> Call(const Plan& plan, const PlanNode& n) const {
    if (const v1::NodeCost* c = Find(plan, n)) return FromSeconds(c->time_s());
    const PlanActor* actor = FindActor(plan, n.actor);
    if (actor != nullptr && actor->cls == "std.Delay" && n.config.has_duration_s()) return default_.compute(plan, n);
    if (actor != nullptr && actor->cls == "weft.Bucket") return 0;  // the compiler's own calls
    if (costs_.has_default_node_s()) return FromSeconds(costs_.default_node_s());
    return std::nullopt;
  }

  const v1::EdgeCost* Find(const PlanEdge& e) const {
    if (edges_.empty()) return nullptr;
    auto it = edges_.find(Key(e.src, e.dst, absl::StrCat(e.src_output)));
    if (it == edges_.end()) it = edges_.find(Key(e.src, e.dst));
    return it == edges_.end() ? nullptr : it->second;
  }

  static Nanos Move(uint64_t bytes, double bandwidth) {
    return bandwidth > 0 ? FromSeconds(std::min(static_cast<double>(bytes) / bandwidth, kMaxCostSeconds)) : 0;
  }

  // Time that lanes are held, without latency; and latency.
  std::pair<Nanos, Nanos> Times(const Plan& plan, const PlanEdge& e) const {
    const v1::EdgeCost* own = Find(e);
    const uint64_t bytes = own != nullptr && own->has_bytes() ? own->bytes() : e.bytes;
    Nanos move = costs_.has_default_edge_s() ? FromSeconds(costs_.default_edge_s()) : 0, latency = 0;
    const ClusterLink* link = e.emulated ? nullptr : FindLink(links_, plan, e);
    if (e.emulated) {
      move = Move(bytes, e.emulate_bandwidth), latency = FromSeconds(e.emulate_latency_s);
    } else if (link != nullptr) {
      move = Move(bytes, link->bandwidth), latency = FromSeconds(link->latency_s);
    }
    // A stated time is that of the whole transfer.
    if (own != nullptr && own->has_time_s()) move = FromSeconds(own->time_s()), latency = 0;
    if (own != nullptr && own->has_bandwidth()) move = Move(bytes, own->bandwidth());
    if (own != nullptr && own->has_latency_s()) latency = FromSeconds(own->latency_s());
    return {move, latency};
  }

  Nanos Transfer(const Plan& plan, const PlanEdge& e) const {
    const auto [move, latency] = Times(plan, e);
    return e.rendezvous ? move + latency : move;
  }
  Nanos Latency(const Plan& plan, const PlanEdge& e) const { return e.rendezvous ? 0 : Times(plan, e).second; }

  Nanos FirstContact(const Plan& plan, const PlanEdge& e) const {
    const ClusterLink* link = e.emulated ? nullptr : FindLink(links_, plan, e);
    return link != nullptr ? FromSeconds(link->first_s) : 0;
  }

  const v1::CollectiveCost* Find(const PlanGroup& g) const {
    const auto it = groups_.find(g.name);
    return it == groups_.end() ? nullptr : it->second;
  }

  const v1::Costs& costs() const { return costs_; }

 private:
  const v1::Costs costs_;
  const std::vector<ClusterLink> links_;
  const CostModel default_;
  const std::string empty_;
  std::unordered_map<std::string, const v1::NodeCost*> nodes_;
  std::unordered_map<std::string, const v1::EdgeCost*> edges_;
  std::unordered_map<std::string, const v1::CollectiveCost*> groups_;
};

}  // namespace

absl::StatusOr<v1::Costs> ParseCosts(const std::string& name, const std::string& text) {
  v1::Costs costs;
  WEFT_RETURN_IF_ERROR(ParseMessage(name, text, "cost", &costs));
  WEFT_RETURN_IF_ERROR(CheckCostValues(name, costs));
  return costs;
}

absl::StatusOr<v1::Costs> ReadCostFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, "cost"));
  return ParseCosts(path, text);
}

absl::Status CheckCostValues(const std::string& name, const v1::Costs& costs) {
  ErrorList problems;
  std::unordered_map<std::string, int> nodes, edges, groups;
  const auto once = [&](const std::string& at, const char* list, std::unordered_map<std::string, int>* seen, const std::string& key, int i) {
    const auto [it, fresh] = seen->emplace(key, i);
    if (!fresh) problems.Add(absl::StrCat(at, ": says what ", list, "[", it->second, "] says: keep one"));
  };
  for (int i = 0; i < costs.node_size(); ++i) {
    const std::string at = absl::StrCat(name, ": node[", i, "]");
    CheckNode(at, costs.node(i), &problems);
    once(at, "node", &nodes, KeyOf(costs.node(i)), i);
  }
  for (int i = 0; i < costs.edge_size(); ++i) {
    const std::string at = absl::StrCat(name, ": edge[", i, "]");
    CheckEdge(at, costs.edge(i), &problems);
    once(at, "edge", &edges, KeyOf(costs.edge(i)), i);
  }
  for (int i = 0; i < costs.collective_size(); ++i) {
    const v1::CollectiveCost& c = costs.collective(i);
    const std::string at = absl::StrCat(name, ": collective[", i, "]");
    if (c.collective().empty()) problems.Add(absl::StrCat(at, ".collective: is missing: name one"));
    if (!c.has_time_s()) problems.Add(absl::StrCat(at, ".time_s: is missing for ", Quote(c.collective()), "; 0 is the smallest that works"));
    CheckSeconds(at + ".time_s", c.time_s(), &problems);
    CheckSeconds(at + ".first_s", c.first_s(), &problems);
    once(at, "collective", &groups, c.collective(), i);
  }
  for (int i = 0; i < costs.contention_size(); ++i) CheckContention(absl::StrCat(name, ": contention[", i, "]"), costs.contention(i), &problems);
  CheckSeconds(name + ": default_node_s", costs.default_node_s(), &problems);
  CheckSeconds(name + ": default_edge_s", costs.default_edge_s(), &problems);
  CheckSeconds(name + ": default_collective_s", costs.default_collective_s(), &problems);
  return problems.ToStatus();
}

std::string CostsToText(const v1::Costs& costs, const std::string& comment) {
  std::string text;
  if (!comment.empty()) {
    for (const auto line : absl::StrSplit(comment, '\n')) absl::StrAppend(&text, "# ", line, "\n");
  }
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  v1::Costs rest = costs;
  const auto take = [&](auto* list, const char* field) {
    for (const auto& entry : *list) {
      std::string line;
      printer.PrintToString(entry, &line);
      absl::StrAppend(&text, field, " { ", line, "}\n");
    }
    list->Clear();
  };
  if (!rest.graph().empty()) {
    v1::Costs head;
    head.set_graph(rest.graph());
    std::string line;
    printer.PrintToString(head, &line);
    absl::StrAppend(&text, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
    rest.clear_graph();
  }
  take(rest.mutable_node(), "node");
  take(rest.mutable_edge(), "edge");
  take(rest.mutable_collective(), "collective");
  take(rest.mutable_contention(), "contention");
  std::string defaults;
  google::protobuf::TextFormat::PrintToString(rest, &defaults);
  return text + defaults;
}

absl::Status CheckCosts(const std::string& name, const v1::Costs& costs, const Plan& plan) {
  ErrorList problems;
  if (!costs.graph().empty() && costs.graph() != plan.graph) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": graph: these are costs of graph ", Quote(costs.graph()), ", not of ", Quote(plan.graph),
                                                   "; drop the field if they hold for both"));
  }
  const PlanNames names(plan);
  Suggester suggester;
  const auto known = [&](const std::string& at, const char* what, const std::string& text, const PlanNames::Set& all) {
    if (text.empty() || all.count(text) != 0) return;
    if (problems.full()) return problems.Add("");
    problems.Add(absl::StrCat(name, ": ", at, ": graph ", Quote(plan.graph), " has no ", what, " ", Quote(text),
                              suggester.For(text, std::vector<std::string>(all.begin(), all.end()))));
  };
  for (int i = 0; i < costs.node_size(); ++i) {
    const v1::NodeCost& n = costs.node(i);
    known(absl::StrCat("node[", i, "].node"), "node", n.node(), names.nodes);
    known(absl::StrCat("node[", i, "].actor"), "actor", n.actor(), names.actors);
    known(absl::StrCat("node[", i, "].class"), "actor of class", n.class_(), names.classes);
    known(absl::StrCat("node[", i, "].method"), "call of a method", n.method(), names.methods);
  }
  for (int i = 0; i < costs.edge_size(); ++i) {
    known(absl::StrCat("edge[", i, "].from"), "node or input", costs.edge(i).from(), names.ends);
    known(absl::StrCat("edge[", i, "].to"), "node or output", costs.edge(i).to(), names.ends);
  }
  for (int i = 0; i < costs.collective_size(); ++i) {
    known(absl::StrCat("collective[", i, "].collective"), "collective", costs.collective(i).collective(), names.groups);
  }
  for (int i = 0; i < costs.contention_size(); ++i) known(absl::StrCat("contention[", i, "].node"), "node", costs.contention(i).node(), names.nodes);
  const Lookup lookup(costs, {});
  for (const PlanNode& n : plan.nodes) {
    if (lookup.Call(plan, n).has_value()) continue;
    const PlanActor* actor = FindActor(plan, n.actor);
    problems.Add(absl::StrCat(name, ": no cost for node ", Quote(n.name), " (", actor != nullptr ? actor->cls : "?", " ", n.method,
                              "): add node { node: \"", n.name, "\" time_s: 0 }, or default_node_s: 0 for all that have none; 0 is the smallest that works"));
  }
  return problems.ToStatus();
}

CostModel MakeCostModel(const v1::Costs& costs, const std::vector<ClusterLink>& links) {
  const auto lookup = std::make_shared<const Lookup>(costs, links);
  CostModel model;
  model.compute = [lookup](const Plan& plan, const PlanNode& n) { return lookup->Call(plan, n).value_or(0); };
  model.transfer = [lookup](const Plan& plan, const PlanEdge& e) { return lookup->Transfer(plan, e); };
  model.latency = [lookup](const Plan& plan, const PlanEdge& e) { return lookup->Latency(plan, e); };
  model.read = [lookup](const Plan&, const PlanEdge& e) -> Nanos {
    const v1::EdgeCost* c = lookup->Find(e);
    return c != nullptr ? FromSeconds(c->read_s()) : 0;
  };
  model.collective = [lookup](const Plan&, const PlanGroup& g) -> Nanos {
    const v1::CollectiveCost* c = lookup->Find(g);
    return FromSeconds(c != nullptr ? c->time_s() : lookup->costs().default_collective_s());
  };
  model.first_call = [lookup](const Plan& plan, const PlanNode& n) -> Nanos {
    const v1::NodeCost* c = lookup->Find(plan, n);
    return c != nullptr ? FromSeconds(c->first_s()) : 0;
  };
  model.first_transfer = [lookup](const Plan&, const PlanEdge& e) -> Nanos {
    const v1::EdgeCost* c = lookup->Find(e);
    return c != nullptr ? FromSeconds(c->first_s()) : 0;
  };
  model.first_collective = [lookup](const Plan&, const PlanGroup& g) -> Nanos {
    const v1::CollectiveCost* c = lookup->Find(g);
    return c != nullptr ? FromSeconds(c->first_s()) : 0;
  };
  model.first_contact = [lookup](const Plan& plan, const PlanEdge& e) { return lookup->FirstContact(plan, e); };
  for (const v1::Contention& c : costs.contention()) {
    model.contention.push_back({c.slowed(), c.node(), c.slowed_transport(), c.beside(), c.beside_transport(),
                                static_cast<int64_t>(std::llround(c.factor() * 1e6))});
  }
  return model;
}

CostModel MakeCostModel(const std::vector<ClusterLink>& links) { return MakeCostModel(v1::Costs(), links); }

}  // namespace weft
