#include "driver/draw/graph_view.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"

namespace weft {
namespace {

class Viewer {
 public:
  explicit Viewer(const Plan& plan) : plan_(plan), vertex_(plan.ops.size(), -1), source_(plan.edges.size(), -1) {}

  GraphView Run() {
    view_.name = plan_.graph;
    for (const PlanWorker& w : plan_.workers) view_.workers.push_back(absl::StrCat(w.name, " (host ", w.host_id, ", ", w.device, ")"));
    group_.assign(plan_.groups.size(), -1);
    for (const PlanOp& op : plan_.ops) Add(op);
    for (const PlanEdge& e : plan_.edges) {
      if (!e.control) continue;
      const auto from = nodes_.find(e.src), to = nodes_.find(e.dst);
      if (from != nodes_.end() && to != nodes_.end()) Arc({from->second, to->second, e.transport, "", true});
    }
    // What a client takes stands behind all that it could be behind.
    for (const GraphArc& a : view_.arcs) view_.vertices[a.to].depth = std::max(view_.vertices[a.to].depth, view_.vertices[a.from].depth + 1);
    return std::move(view_);
  }

 private:
  int32_t NewVertex(GraphVertex v) {
    view_.vertices.push_back(std::move(v));
    return static_cast<int32_t>(view_.vertices.size()) - 1;
  }

  void Arc(GraphArc arc) {
    if (arc.from < 0 || arc.to < 0) return;
    GraphVertex& to = view_.vertices[arc.to];
    to.depth = std::max(to.depth, view_.vertices[arc.from].depth + 1);
    view_.arcs.push_back(std::move(arc));
  }

  std::string EdgeText(const PlanEdge& e) const {
    return absl::StrCat(e.spec.ToString(), ", ", FormatBytes(e.bytes), ", ", e.slots, e.slots == 1 ? " slot" : " slots");
  }

  // From what makes the value, over the edge that brings it.
  void ArcOf(const PlanValue& value, int32_t to) {
    const PlanOp& op = plan_.ops[value.op];
    GraphArc arc;
    arc.from = vertex_[value.op];
    arc.to = to;
    if (op.edge >= 0) {
      const PlanEdge& e = plan_.edges[op.edge];
      arc.transport = e.transport;
      arc.what = EdgeText(e);
    } else if (op.kind == v1::COMPUTE && value.output < static_cast<int32_t>(plan_.nodes[op.node].outputs.size())) {
      arc.what = plan_.nodes[op.node].outputs[value.output].ToString();
    } else if (op.kind == v1::COLLECTIVE) {
      arc.what = plan_.groups[op.group].output.ToString();
    }
    Arc(std::move(arc));
  }

  void Add(const PlanOp& op) {
    switch (op.kind) {
      case v1::COMPUTE: {
        const PlanNode& n = plan_.nodes[op.node];
        const int32_t v = NewVertex({GraphVertex::kNode, n.name, absl::StrCat(plan_.actors[n.actor].cls, " ", n.method), op.worker});
        vertex_[op.id] = v;
        nodes_.emplace(n.name, v);
        for (const PlanValue& a : op.args) ArcOf(a, v);
        for (const PlanWait& w : op.waits) {
          if (w.reason == v1::PlanWait::CONTROL && w.distance == 0 && plan_.ops[w.op].kind == v1::COMPUTE) Arc({vertex_[w.op], v, v1::LOCAL, "", true});
        }
        break;
      }
      case v1::COLLECTIVE: {
        const PlanGroup& g = plan_.groups[op.group];
        int32_t& v = group_[op.group];
        if (v < 0) {
          const bool reduces = g.op == v1::ALL_REDUCE || g.op == v1::REDUCE_SCATTER;
          v = NewVertex({GraphVertex::kCollective, g.name,
                         absl::StrCat(v1::CollectiveOp_Name(g.op), reduces ? absl::StrCat(" ", v1::ReduceOp_Name(g.reduce)) : ""), op.worker});
        }
        vertex_[op.id] = v;
        for (const PlanValue& a : op.args) ArcOf(a, v);
        break;
      }
      case v1::SEND:
      case v1::WRITE: {
        const PlanEdge& e = plan_.edges[op.edge];
        source_[op.edge] = op.args.empty() ? -1 : vertex_[op.args[0].op];
        if (e.dst_worker != kClient) break;
        const int32_t v = NewVertex({GraphVertex::kOutput, e.dst, e.spec.ToString(), kClient});
        Arc({source_[op.edge], v, e.transport, EdgeText(e), false});
        break;
      }
      case v1::READ:
      case v1::RECV: {
        const PlanEdge& e = plan_.edges[op.edge];
        if (e.src_worker == kClient) {
          const auto [it, fresh] = inputs_.emplace(e.src, static_cast<int32_t>(view_.vertices.size()));
          if (fresh) NewVertex({GraphVertex::kInput, e.src, e.spec.ToString(), kClient});
          vertex_[op.id] = it->second;
        } else {
          vertex_[op.id] = source_[op.edge];
        }
        break;
      }
      default:
        break;
    }
  }

  const Plan& plan_;
  std::vector<int32_t> vertex_;  // by op: whose value it has
  std::vector<int32_t> source_;  // by edge
  std::vector<int32_t> group_;
  std::unordered_map<std::string, int32_t> nodes_, inputs_;
  GraphView view_;
};

}  // namespace

GraphView ViewOf(const Plan& plan) { return Viewer(plan).Run(); }

}  // namespace weft
