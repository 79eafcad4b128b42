// Validate: dtypes and shapes of every value, along the dependencies.

#include <cstdint>

#include "common/classes/infer.h"
#include "driver/graph/validation.h"

namespace weft {
namespace {

// More than any plan can have ops; bounds what nodes of many outputs can make the compiler hold.
constexpr int64_t kMaxOutputs = 2'000'000;

std::string Outputs(size_t n) {
  if (n == 0) return "has no output";
  if (n == 1) return "has one output, 0";
  return absl::StrCat("has outputs 0 to ", n - 1);
}

// "node make0:0 F16[2], input bias F16[2]", for messages about arguments.
std::string DescribeArgs(const Validation& v, int i, const std::vector<Spec>& specs) {
  constexpr size_t kShown = 4;
  std::string text;
  const ResolvedNode& node = v.out.nodes[i];
  for (size_t a = 0; a < node.args.size(); ++a) {
    if (a == kShown) {
      absl::StrAppend(&text, ", and ", node.args.size() - kShown, " more");
      break;
    }
    const ResolvedArg& arg = node.args[a];
    absl::StrAppend(&text, a == 0 ? "" : ", ");
    switch (arg.kind) {
      case ResolvedArg::kNode: absl::StrAppend(&text, v.Node(arg.index), " output ", arg.output); break;
      case ResolvedArg::kInput: absl::StrAppend(&text, v.Input(arg.index)); break;
      case ResolvedArg::kCollective: absl::StrAppend(&text, v.Collective(arg.index)); break;
    }
    absl::StrAppend(&text, " ", specs[a].ToString());
  }
  return text;
}

class Inference {
 public:
  explicit Inference(Validation* v) : v_(v) {
    v->node_known.assign(v->graph.node_size(), false);
    v->collective_known.assign(v->graph.collective_size(), false);
  }

  void Node(int i);
  void Collective(int c);
  void GraphOutputs();
  void Dynamic();

 private:
  // Spec of an output, or nullptr when it is not known; an index out of range is reported.
  const Spec* OutputSpec(const std::string& where, const std::string& what, int node, int output);
  const Spec* ArgSpec(int i, int a);

  Validation* const v_;
  int64_t outputs_ = 0;
};

const Spec* Inference::OutputSpec(const std::string& where, const std::string& what, int node, int output) {
  if (node < 0 || output < 0 || !v_->node_known[node]) return nullptr;
  const std::vector<Spec>& specs = v_->out.nodes[node].outputs;
  if (output < static_cast<int>(specs.size())) return &specs[output];
  v_->Error(where, ": ", what, " takes output ", output, " of ", v_->Node(node), ", which ", Outputs(specs.size()));
  return nullptr;
}

const Spec* Inference::ArgSpec(int i, int a) {
  const ResolvedArg& arg = v_->out.nodes[i].args[a];
  if (arg.index < 0) return nullptr;
  switch (arg.kind) {
    case ResolvedArg::kNode: {
      // The common case composes no message.
      const bool good = arg.output >= 0 && v_->node_known[arg.index] &&
                        arg.output < static_cast<int>(v_->out.nodes[arg.index].outputs.size());
      if (good) return &v_->out.nodes[arg.index].outputs[arg.output];
      return OutputSpec(v_->Node(i), ArgName(a), arg.index, arg.output);
    }
    case ResolvedArg::kInput: return v_->input_ok[arg.index] ? &v_->out.inputs[arg.index].spec : nullptr;
    case ResolvedArg::kCollective:
      return v_->collective_known[arg.index] ? &v_->out.collectives[arg.index].output : nullptr;
  }
  return nullptr;
}

void Inference::Node(int i) {
  ResolvedNode& node = v_->out.nodes[i];
  std::vector<Spec> args;
  args.reserve(node.args.size());
  for (int a = 0; a < static_cast<int>(node.args.size()); ++a) {
    if (const Spec* spec = ArgSpec(i, a); spec != nullptr) args.push_back(*spec);
  }
  if (!v_->node_ok[i] || args.size() != node.args.size()) return;

  const auto where = [&] {
    return absl::StrCat(v_->Node(i), " (", v_->out.actors[node.actor].cls, ".", node.method, ")");
  };
  const MethodSignature& method = *v_->method[i];
  if (method.fails_on_device && method.fails_on_device(node.config)) {
    node.device_error = method.device_error.empty() ? absl::StrCat(method.name, " failed on the device") : method.device_error;
  }
  absl::StatusOr<std::vector<Spec>> specs = method.infer(node.config, args);
  if (!specs.ok()) {
    if (v_->errors.full()) return v_->Error();
    v_->Error(where(), ": ", std::string(specs.status().message()), args.empty() ? "" : "; it takes ",
              DescribeArgs(*v_, i, args));
    return;
  }
  const int64_t before = outputs_;
  outputs_ += static_cast<int64_t>(specs->size());
  if (outputs_ > kMaxOutputs) {
    if (before <= kMaxOutputs) {
      v_->Error(where(), ": with this node the graph has more than ", kMaxOutputs,
                " outputs of nodes; make it smaller");
    }
    return;
  }
  for (size_t o = 0; o < specs->size(); ++o) {
    const Spec& spec = (*specs)[o];
    if (SizeOf(spec.dtype) == 0 || !CheckSpecSize(spec).ok()) {
      v_->Error(where(), ": output ", o, " would be ", spec.ToString(), ", which is no tensor of at most 1 TiB");
      return;
    }
  }
  node.outputs = *std::move(specs);
  v_->node_known[i] = true;
}

void Inference::Collective(int c) {
  ResolvedCollective& out = v_->out.collectives[c];
  const std::string where = v_->Collective(c);
  const auto n = static_cast<int64_t>(out.members.size());
  const Spec* first = nullptr;
  int first_member = -1;
  bool good = v_->collective_ok[c];
  for (int m = 0; m < n; ++m) {
    const Spec* spec = OutputSpec(where, absl::StrCat("member ", m), out.members[m].node, out.members[m].output);
    if (spec == nullptr) {
      good = false;
    } else if (!spec->shape.IsStatic()) {
      v_->Error(where, ": member ", m, " (", v_->Node(out.members[m].node), ") gives ", spec->ToString(),
                "; members need fixed sizes");
      good = false;
    } else if (first == nullptr) {
      first = spec;
      first_member = m;
    } else if (!(*spec == *first)) {
      v_->Error(where, ": member ", m, " (", v_->Node(out.members[m].node), ") gives ", spec->ToString(),
                ", but member ", first_member, " (", v_->Node(out.members[first_member].node), ") gives ",
                first->ToString(), "; all give one dtype and shape");
      good = false;
    }
  }
  if (!good || first == nullptr) return;

  out.input = out.output = *first;
  const std::string op = v1::CollectiveOp_Name(out.op);
  const bool reduces = out.op == v1::ALL_REDUCE || out.op == v1::REDUCE_SCATTER;
  if (reduces && out.input.dtype == v1::BOOL) {
    v_->Error(where, ": ", op, " reduces numbers, and its members give BOOL");
    return;
  }
  if (out.op == v1::ALL_GATHER || out.op == v1::REDUCE_SCATTER) {
    if (out.input.shape.dims.empty()) {
      v_->Error(where, ": ", op, " works along axis 0, and its members give scalars; give them the shape \"[1]\"");
      return;
    }
    int64_t& rows = out.output.shape.dims[0].size;
    if (out.op == v1::ALL_GATHER) {
      rows *= n;
    } else if (rows % n != 0) {
      v_->Error(where, ": REDUCE_SCATTER divides axis 0 among its ", n, " members, and ", out.input.ToString(),
                " does not divide; its size must be a multiple of ", n);
      return;
    } else {
      rows /= n;
    }
  }
  if (!CheckSpecSize(out.output).ok()) {
    v_->Error(where, ": its result ", out.output.ToString(), " is larger than 1 TiB");
    return;
  }
  v_->collective_known[c] = true;
}

void Inference::GraphOutputs() {
  for (int i = 0; i < static_cast<int>(v_->out.outputs.size()); ++i) {
    const ResolvedOutput& output = v_->out.outputs[i];
    if (!output.is_collective) OutputSpec(v_->Output(i), "it", output.index, output.output);
  }
}

// `?` stands outside the plan's bytes, so a byte limit could not be held.
void Inference::Dynamic() {
  if (v_->out.options.memory_limit_bytes() == 0) return;
  const auto refuse = [&](const std::string& where, const Spec& spec) {
    v_->Error(where, " is ", spec.ToString(),
              ", and `?` has no bound that options.memory_limit_bytes could count; write ?<=N, "
              "or remove the limit");
  };
  for (int i = 0; i < static_cast<int>(v_->out.inputs.size()); ++i) {
    if (v_->out.inputs[i].spec.shape.HasDynamic()) refuse(v_->Input(i), v_->out.inputs[i].spec);
  }
  for (int i = 0; i < static_cast<int>(v_->out.nodes.size()); ++i) {
    const std::vector<Spec>& outputs = v_->out.nodes[i].outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].shape.HasDynamic()) refuse(absl::StrCat(v_->Node(i), ": output ", o), outputs[o]);
    }
  }
}

}  // namespace

void InferSpecs(Validation* v, const std::vector<int>& order) {
  Inference inference(v);
  const int nodes = v->graph.node_size();
  for (const int x : order) {
    if (x < nodes) {
      inference.Node(x);
    } else {
      inference.Collective(x - nodes);
    }
  }
  inference.GraphOutputs();
  inference.Dynamic();
}

}  // namespace weft
