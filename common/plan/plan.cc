#include "common/plan/plan.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Direct where the id is the index (whole plans, most parts), otherwise by halving: ids ascend in parts too.
template <typename T>
const T* FindById(const std::vector<T>& list, int32_t id) {
  if (id < 0) return nullptr;
  if (static_cast<size_t>(id) < list.size() && list[id].id == id) return &list[id];
  const auto it = std::lower_bound(list.begin(), list.end(), id, [](const T& item, int32_t want) { return item.id < want; });
  return it != list.end() && it->id == id ? &*it : nullptr;
}

std::string KindName(OpKind kind) {
  const std::string name = v1::OpKind_Name(kind);
  return name.empty() ? absl::StrCat("OP(", static_cast<int>(kind), ")") : name;
}

std::string EdgeEnds(const PlanEdge& edge) {
  if (edge.control) return absl::StrCat(edge.src, " -> ", edge.dst, " (after)");
  std::string out = edge.src;
  if (edge.src_worker != kClient) absl::StrAppend(&out, ":", edge.src_output);
  absl::StrAppend(&out, " -> ", edge.dst);
  if (edge.dst_worker != kClient) absl::StrAppend(&out, ":", edge.dst_arg);
  return out;
}

}  // namespace

const PlanOp* FindOp(const Plan& plan, int32_t id) { return FindById(plan.ops, id); }
const PlanEdge* FindEdge(const Plan& plan, int32_t id) { return FindById(plan.edges, id); }
const PlanGroup* FindGroup(const Plan& plan, int32_t id) { return FindById(plan.groups, id); }
const PlanNode* FindNode(const Plan& plan, int32_t id) { return FindById(plan.nodes, id); }
const PlanActor* FindActor(const Plan& plan, int32_t id) { return FindById(plan.actors, id); }

int NumOutputs(const Plan& plan, const PlanOp& op) {
  switch (op.kind) {
    case v1::READ:
    case v1::RECV:
    case v1::COLLECTIVE:
      return 1;
    case v1::COMPUTE: {
      const PlanNode* node = FindNode(plan, op.node);
      return node == nullptr ? 0 : static_cast<int>(node->outputs.size());
    }
    default:
      return 0;
  }
}

Plan PartOf(const Plan& plan, int32_t w) {
  Plan part;
  part.graph = plan.graph;
  part.hash = plan.hash;
  part.workers = plan.workers;
  part.options = plan.options;
  part.part_of = w;
  part.peak_bytes = plan.peak_bytes;
  part.reports_completion = std::none_of(plan.edges.begin(), plan.edges.end(), [](const PlanEdge& e) { return e.dst_worker == kClient; });
  // Nodes whose errors come as numbers are named on every worker that may read one.
  std::vector<char> named(plan.actors.size(), 0);
  for (const PlanNode& node : plan.nodes) {
    if (!node.device_error.empty() && FindActor(plan, node.actor) != nullptr) named[node.actor] = 1;
  }
  for (const PlanActor& actor : plan.actors) {
    if (actor.worker == w || named[actor.id]) part.actors.push_back(actor);
  }
  for (const PlanNode& node : plan.nodes) {
    const PlanActor* actor = FindActor(plan, node.actor);
    if (actor != nullptr && (actor->worker == w || !node.device_error.empty())) part.nodes.push_back(node);
  }
  for (const PlanEdge& edge : plan.edges) {
    if (edge.src_worker == w || edge.dst_worker == w) part.edges.push_back(edge);
  }
  for (const PlanGroup& group : plan.groups) {
    if (std::find(group.members.begin(), group.members.end(), w) != group.members.end()) part.groups.push_back(group);
  }
  for (const PlanOp& op : plan.ops) {
    if (op.worker == w) part.ops.push_back(op);
  }
  return part;
}

std::string OpName(const Plan& plan, const PlanOp& op) {
  switch (op.kind) {
    case v1::COMPUTE: {
      const PlanNode* node = FindNode(plan, op.node);
      return absl::StrCat("COMPUTE ", node == nullptr ? absl::StrCat("node(", op.node, ")") : node->name);
    }
    case v1::COLLECTIVE: {
      const PlanGroup* group = FindGroup(plan, op.group);
      if (group == nullptr) return absl::StrCat("COLLECTIVE group(", op.group, ")");
      return absl::StrCat(v1::CollectiveOp_Name(group->op), " ", group->name);
    }
    default: {
      const PlanEdge* edge = FindEdge(plan, op.edge);
      return absl::StrCat(KindName(op.kind), " ", edge == nullptr ? absl::StrCat("edge(", op.edge, ")") : EdgeEnds(*edge));
    }
  }
}

std::string EdgeName(const Plan& plan, const PlanEdge& edge) {
  return absl::StrCat("edge ", EdgeEnds(edge), " (", WorkerName(plan, edge.src_worker), " -> ", WorkerName(plan, edge.dst_worker),
                      ")");
}

std::string WorkerName(const Plan& plan, int32_t worker) {
  if (worker == kClient) return "client";
  if (worker < 0 || static_cast<size_t>(worker) >= plan.workers.size()) return absl::StrCat("worker(", worker, ")");
  return plan.workers[worker].name;
}

std::string LaneName(LaneKind kind, int32_t index) {
  // "LANE_SEND" -> "send". The one compute lane goes without a number.
  std::string name = v1::LaneKind_Name(kind);
  if (name.rfind("LANE_", 0) != 0 || kind == v1::LANE_KIND_UNSPECIFIED) name = absl::StrCat("LANE_lane", static_cast<int>(kind), "-");
  name = absl::AsciiStrToLower(name.substr(5));
  if (kind != v1::LANE_COMPUTE || index != 0) absl::StrAppend(&name, index);
  return name;
}

bool UsesStatusWords(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return !n.device_error.empty(); });
}

bool IsCaptured(const Plan& plan, int32_t worker) {
  return plan.options.launch() == v1::GRAPH && worker >= 0 && worker < static_cast<int32_t>(plan.workers.size()) &&
         plan.workers[worker].device == "cuda";
}

bool ReadCopies(const Plan& plan, const PlanEdge& edge) {
  return edge.dst_worker >= 0 && edge.dst_worker < static_cast<int32_t>(plan.workers.size()) &&
         plan.workers[edge.dst_worker].device == "cuda";
}

uint64_t BufferBytes(const Plan& plan, const PlanOp& op) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const PlanEdge* const edge = op.edge >= 0 ? FindEdge(plan, op.edge) : nullptr;
  switch (op.kind) {
    case v1::COMPUTE: {
      uint64_t bytes = 0;
      for (const Spec& spec : FindNode(plan, op.node)->outputs) bytes = std::min(kHuge, bytes + std::min(kHuge, spec.MaxBytes()));
      return bytes;
    }
    case v1::COLLECTIVE:
      return FindGroup(plan, op.group)->output.MaxBytes();
    case v1::RECV:
      return edge->bytes;
    case v1::READ:
      return edge->transport == v1::REMOTE || ReadCopies(plan, *edge) ? edge->bytes : 0;
    case v1::WRITE: {
      // IPC lends the producer's own buffer; a GPU's shared memory is the host's, not the device's.
      const bool gpu = plan.workers[op.worker].device == "cuda";
      return edge->transport == v1::REMOTE || edge->transport == v1::IPC || gpu ? 0 : edge->bytes;
    }
    default:
      return 0;
  }
}

}  // namespace weft
