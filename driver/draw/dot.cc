// Graphviz forms of a graph and of a plan.

#include "absl/strings/str_cat.h"
#include "driver/draw/graph_view.h"
#include "driver/draw/plan_picture.h"

namespace weft {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out + "\"";
}

const char* ShapeOf(GraphVertex::Kind kind) {
  switch (kind) {
    case GraphVertex::kInput:
      return "invhouse";
    case GraphVertex::kOutput:
      return "house";
    case GraphVertex::kCollective:
      return "hexagon";
    default:
      return "box";
  }
}

}  // namespace

std::string GraphToDot(const GraphView& view) {
  std::string out = absl::StrCat("digraph ", Quoted(view.name), " {\n  rankdir=LR;\n  node [fontname=\"sans-serif\" fontsize=11];\n"
                                 "  edge [fontname=\"sans-serif\" fontsize=9];\n");
  const auto vertex = [&](size_t v, const char* indent) {
    const GraphVertex& x = view.vertices[v];
    absl::StrAppend(&out, indent, "v", v, " [shape=", ShapeOf(x.kind), " label=", Quoted(absl::StrCat(x.name, "\n", x.what)), "];\n");
  };
  std::vector<std::vector<size_t>> of_worker(view.workers.size());
  for (size_t v = 0; v < view.vertices.size(); ++v) {
    const GraphVertex& x = view.vertices[v];
    if (x.worker == kClient || x.kind == GraphVertex::kCollective) {
      vertex(v, "  ");
    } else {
      of_worker[x.worker].push_back(v);
    }
  }
  for (size_t w = 0; w < view.workers.size(); ++w) {
    absl::StrAppend(&out, "  subgraph cluster_", w, " {\n    label=", Quoted(view.workers[w]), ";\n");
    for (const size_t v : of_worker[w]) vertex(v, "    ");
    out += "  }\n";
  }
  for (const GraphArc& a : view.arcs) {
    std::string label = a.what;
    if (a.transport != v1::LOCAL) label = absl::StrCat(v1::Transport_Name(a.transport), label.empty() ? "" : "\n", label);
    absl::StrAppend(&out, "  v", a.from, " -> v", a.to, " [label=", Quoted(label), a.control ? " style=dashed" : "", "];\n");
  }
  return out + "}\n";
}

std::string PlanToDot(const Plan& plan) {
  std::string out = absl::StrCat("digraph ", Quoted(plan.graph), " {\n  rankdir=LR;\n  newrank=true;\n"
                                 "  node [shape=box fontname=\"sans-serif\" fontsize=10];\n  edge [fontname=\"sans-serif\" fontsize=8];\n");
  // Lanes in the order in which they first have an op, and each op's predecessor there.
  struct Lane {
    int32_t worker;
    std::string name;
    std::vector<int32_t> ops;
  };
  std::vector<Lane> lanes;
  for (const PlanOp& op : plan.ops) {
    const std::string name = LaneName(op.lane, op.lane_index);
    size_t l = 0;
    while (l < lanes.size() && (lanes[l].worker != op.worker || lanes[l].name != name)) ++l;
    if (l == lanes.size()) lanes.push_back({op.worker, name, {}});
    lanes[l].ops.push_back(op.id);
  }
  for (size_t w = 0; w < plan.workers.size(); ++w) {
    absl::StrAppend(&out, "  subgraph cluster_", w, " {\n    label=", Quoted(plan.workers[w].name), ";\n");
    for (size_t l = 0; l < lanes.size(); ++l) {
      if (lanes[l].worker != static_cast<int32_t>(w)) continue;
      absl::StrAppend(&out, "    subgraph cluster_", w, "_", l, " {\n      label=", Quoted(lanes[l].name), ";\n");
      for (const int32_t op : lanes[l].ops) absl::StrAppend(&out, "      o", op, " [label=", Quoted(OpName(plan, plan.ops[op])), "];\n");
      for (size_t i = 1; i < lanes[l].ops.size(); ++i) {
        absl::StrAppend(&out, "      o", lanes[l].ops[i - 1], " -> o", lanes[l].ops[i], " [color=gray weight=10];\n");
      }
      out += "    }\n";
    }
    out += "  }\n";
  }
  std::vector<int32_t> source(plan.edges.size(), -1);
  for (const PlanOp& op : plan.ops) {
    if (op.kind == v1::SEND || op.kind == v1::WRITE) source[op.edge] = op.id;
  }
  for (const PlanOp& op : plan.ops) {
    if ((op.kind == v1::RECV || op.kind == v1::READ) && source[op.edge] >= 0) {
      const PlanEdge& e = plan.edges[op.edge];
      absl::StrAppend(&out, "  o", source[op.edge], " -> o", op.id, " [color=blue penwidth=1.5 label=",
                      Quoted(absl::StrCat(v1::Transport_Name(e.transport), " ", e.slots)), e.rendezvous ? "" : " style=bold", "];\n");
    }
    for (const PlanWait& w : op.waits) {
      absl::StrAppend(&out, "  o", w.op, " -> o", op.id, " [style=dashed constraint=false label=",
                      Quoted(absl::StrCat(v1::PlanWait::Reason_Name(w.reason), w.distance > 0 ? absl::StrCat("@", w.distance) : "")), "];\n");
    }
  }
  return out + "}\n";
}

}  // namespace weft
