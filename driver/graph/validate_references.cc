// Validate, second part: what args, control edges and graph outputs name.

#include <algorithm>
#include <unordered_map>

#include "driver/graph/validation.h"

namespace weft {
namespace {

// One arg of node `i`. False when it names nothing usable.
bool ResolveArg(Validation* v, int i, int a, ResolvedArg* out) {
  const v1::Arg& arg = v->graph.node(i).arg(a);
  const int given = !arg.node().empty() + !arg.input().empty() + !arg.collective().empty();
  if (given != 1) {
    v->Error(v->Node(i), ": ", ArgName(a), " names ", given == 0 ? "nothing" : "more than one thing",
             "; give exactly one of node, input, collective");
    return false;
  }
  if (!arg.node().empty()) {
    out->kind = ResolvedArg::kNode;
    out->output = arg.output();
    out->index = Lookup(v->nodes, arg.node());
    if (out->index < 0) v->FindNode(v->Node(i), ArgName(a), arg.node());
    if (out->index >= 0 && arg.output() < 0) {
      v->Error(v->Node(i), ": ", ArgName(a), " takes output ", arg.output(), "; outputs count from 0");
      return false;
    }
    return out->index >= 0;
  }
  if (!arg.input().empty()) {
    out->kind = ResolvedArg::kInput;
    out->index = v->FindInput(v->Node(i), ArgName(a), arg.input());
  } else {
    out->kind = ResolvedArg::kCollective;
    out->index = v->FindCollective(v->Node(i), ArgName(a), arg.collective());
  }
  if (arg.output() != 0) {
    v->Error(v->Node(i), ": ", ArgName(a), " has output ", arg.output(),
             ", but only nodes have several outputs; remove it");
    return false;
  }
  return out->index >= 0;
}

void ResolveNode(Validation* v, int i) {
  const v1::Node& node = v->graph.node(i);
  ResolvedNode& out = v->out.nodes[i];
  out.args.resize(node.arg_size());
  for (int a = 0; a < node.arg_size(); ++a) {
    if (!ResolveArg(v, i, a, &out.args[a])) v->node_ok[i] = false;
    if (out.args[a].kind == ResolvedArg::kNode && out.args[a].index == i) {
      v->Error(v->Node(i), ": ", ArgName(a), " is its own output, a cycle; take the value of another node");
      v->node_ok[i] = false;
    }
  }
  for (const std::string& name : node.after()) {
    const int before = Lookup(v->nodes, name);
    if (before < 0) {
      v->FindNode(v->Node(i), "after", name);
    } else if (before == i) {
      v->Error(v->Node(i), ": it is to run after itself, a cycle; remove the entry from after");
    } else {
      out.after.push_back(before);
    }
  }
  // Said twice means no more than said once.
  std::sort(out.after.begin(), out.after.end());
  out.after.erase(std::unique(out.after.begin(), out.after.end()), out.after.end());
}

// Ranks of collectives' members by node name, made for those that outputs ask about.
using Ranks = std::unordered_map<int, Validation::Names>;

const Validation::Names& RanksOf(const v1::Collective& c, int index, Ranks* ranks) {
  const auto [it, fresh] = ranks->try_emplace(index);
  if (fresh) {
    for (int m = 0; m < c.member_size(); ++m) it->second.emplace(c.member(m).node(), m);
  }
  return it->second;
}

void ResolveOutput(Validation* v, int i, Ranks* ranks) {
  const v1::Output& output = v->graph.output(i);
  ResolvedOutput& out = v->out.outputs[i];
  out.name = output.name();
  out.output = output.output();
  const int given = !output.node().empty() + !output.collective().empty();
  if (given != 1) {
    v->Error(v->Output(i), ": names ", given == 0 ? "nothing" : "both a node and a collective",
             "; give exactly one of node, collective");
    return;
  }
  if (!output.node().empty()) {
    out.index = v->FindNode(v->Output(i), "node", output.node());
    if (output.output() < 0) v->Error(v->Output(i), ": output ", output.output(), "; outputs of nodes count from 0");
    if (!output.member().empty()) {
      v->Error(v->Output(i), ": member is for collectives; remove it, or give collective instead of node");
    }
    return;
  }
  out.is_collective = true;
  out.index = v->FindCollective(v->Output(i), "collective", output.collective());
  if (output.output() != 0) {
    v->Error(v->Output(i), ": output ", output.output(), ", but a collective gives one value; remove it");
  }
  if (out.index < 0 || output.member().empty()) return;
  const v1::Collective& c = v->graph.collective(out.index);
  const Validation::Names& rank_of = RanksOf(c, out.index, ranks);
  if (const auto rank = rank_of.find(output.member()); rank != rank_of.end()) {
    out.member = rank->second;
    return;
  }
  if (v->errors.full()) return v->Error();
  std::vector<const std::string*> members;
  for (const v1::Collective::Member& m : c.member()) members.push_back(&m.node());
  v->Error(v->Output(i), ": node ", Quote(output.member()), " is not a member of ", v->Collective(out.index),
           v->suggester.For(output.member(), members));
}

}  // namespace

void ResolveReferences(Validation* v) {
  for (int i = 0; i < v->graph.node_size(); ++i) ResolveNode(v, i);
  v->out.outputs.resize(v->graph.output_size());
  Ranks ranks;
  for (int i = 0; i < v->graph.output_size(); ++i) ResolveOutput(v, i, &ranks);
}

}  // namespace weft
