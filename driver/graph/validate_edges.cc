// Validate: edge overrides. Every edge exists by an arg or a graph output; an override that speaks of none is a
// mistake.

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "driver/graph/validation.h"

namespace weft {
namespace {

// A producer and a consumer, packed: from 0 to 30 its index, 31 input, 32 to 62 the consumer's index, 63 graph output.
uint64_t Key(bool from_input, int from, bool to_output, int to) {
  return static_cast<uint64_t>(from) | static_cast<uint64_t>(from_input) << 31 | static_cast<uint64_t>(to) << 32 |
         static_cast<uint64_t>(to_output) << 63;
}

struct Pair {
  std::vector<int> taken;     // outputs that the consumer takes
  std::vector<int> adjusted;  // outputs that overrides speak of; -1: all
};

class Edges {
 public:
  explicit Edges(Validation* v) : v_(v) {}

  void Run() {
    const int n = v_->graph.edge_size();
    if (n == 0) return;
    for (int e = 0; e < n; ++e) CheckFields(e);
    // Only pairs that some override could mean are looked up, so a graph without overrides costs nothing.
    for (int e = 0; e < n; ++e) {
      for (const uint64_t key : Candidates(e)) pairs_[key];
    }
    for (int i = 0; i < static_cast<int>(v_->out.nodes.size()); ++i) {
      for (const ResolvedArg& arg : v_->out.nodes[i].args) {
        if (arg.index < 0 || arg.kind == ResolvedArg::kCollective) continue;
        Take(Key(arg.kind == ResolvedArg::kInput, arg.index, false, i), arg.output);
      }
    }
    for (int i = 0; i < static_cast<int>(v_->out.outputs.size()); ++i) {
      const ResolvedOutput& output = v_->out.outputs[i];
      if (output.index >= 0 && !output.is_collective) Take(Key(false, output.index, true, i), output.output);
    }
    for (auto& [key, pair] : pairs_) {
      std::sort(pair.taken.begin(), pair.taken.end());
      pair.taken.erase(std::unique(pair.taken.begin(), pair.taken.end()), pair.taken.end());
    }
    for (int e = 0; e < n; ++e) Match(e);
  }

 private:
  std::string Where(int e) const {
    const v1::Edge& edge = v_->graph.edge(e);
    const std::string output = edge.has_output() ? absl::StrCat(" output ", edge.output()) : "";
    return absl::StrCat("edge ", Quote(edge.from()), output, " -> ", Quote(edge.to()));
  }

  void CheckFields(int e) {
    const v1::Edge& edge = v_->graph.edge(e);
    const std::string where = Where(e);
    if (!v1::Transport_IsValid(edge.transport())) {
      v_->Error(where, ": transport is unknown; one of LOCAL, SHM, IPC, NCCL, GLOO, REMOTE");
    }
    if (!v1::Overlap_IsValid(edge.overlap())) v_->Error(where, ": overlap is unknown; one of OFF, ON, AUTO");
    if (edge.has_prefetch_depth()) CheckPrefetchDepth(v_, where, edge.prefetch_depth());
    if (!edge.has_emulate()) return;
    CheckLink(v_, absl::StrCat(where, ": emulate"), edge.emulate());
    if (edge.transport() != v1::TRANSPORT_UNSPECIFIED && edge.transport() != v1::SHM) {
      v_->Error(where, ": an emulated link is laid over a shm edge; remove emulate, or make transport SHM");
    }
  }

  // The pairs that it could mean, by its names alone: none when `from` or `to` is unknown.
  std::vector<uint64_t> Candidates(int e) const {
    const v1::Edge& edge = v_->graph.edge(e);
    const auto node = v_->nodes.find(edge.from());
    const auto input = v_->inputs.find(edge.from());
    const auto to_node = v_->nodes.find(edge.to());
    const auto to_output = v_->outputs.find(edge.to());
    std::vector<uint64_t> keys;
    if (node != v_->nodes.end()) {
      if (to_node != v_->nodes.end()) keys.push_back(Key(false, node->second, false, to_node->second));
      if (to_output != v_->outputs.end()) keys.push_back(Key(false, node->second, true, to_output->second));
    } else if (input != v_->inputs.end() && to_node != v_->nodes.end()) {
      keys.push_back(Key(true, input->second, false, to_node->second));
    }
    return keys;
  }

  void Take(uint64_t key, int output) {
    if (const auto it = pairs_.find(key); it != pairs_.end()) it->second.taken.push_back(output);
  }

  // Says why an override matches nothing.
  void Unmatched(int e) {
    if (v_->errors.full()) return v_->Error();
    const v1::Edge& edge = v_->graph.edge(e);
    const std::string where = Where(e);
    const auto from = v_->nodes.find(edge.from());
    if (from == v_->nodes.end() && v_->inputs.count(edge.from()) == 0) {
      if (v_->collectives.count(edge.from()) != 0) {
        v_->Error(where, ": from is a collective; only edges from nodes and inputs can be adjusted");
      } else {
        std::vector<const std::string*> names = v_->node_names;
        names.insert(names.end(), v_->input_names.begin(), v_->input_names.end());
        v_->Error(where, ": from names neither a node nor an input", v_->suggester.For(edge.from(), names));
      }
      return;
    }
    const auto to = v_->nodes.find(edge.to());
    if (to == v_->nodes.end() && v_->outputs.count(edge.to()) == 0) {
      std::vector<const std::string*> names = v_->node_names;
      names.insert(names.end(), v_->output_names.begin(), v_->output_names.end());
      v_->Error(where, ": to names neither a node nor a graph output", v_->suggester.For(edge.to(), names));
      return;
    }
    if (to != v_->nodes.end() && from != v_->nodes.end()) {
      const std::vector<int>& after = v_->out.nodes[to->second].after;
      if (std::find(after.begin(), after.end(), from->second) != after.end()) {
        v_->Error(where, ": that is a control edge, which carries no value; nothing of it can be adjusted");
        return;
      }
    }
    v_->Error(where, ": the graph has no such edge, since ", Quote(edge.to()), " does not take a value of ",
              Quote(edge.from()), "; remove it, or add the arg");
  }

  void Match(int e) {
    const v1::Edge& edge = v_->graph.edge(e);
    const std::string where = Where(e);
    uint64_t key = 0;
    Pair* pair = nullptr;
    for (const uint64_t candidate : Candidates(e)) {
      Pair& p = pairs_[candidate];
      if (p.taken.empty()) continue;
      if (pair != nullptr) {
        v_->Error(where, ": ", Quote(edge.to()),
                  " is a node and a graph output, and both take that value; rename one of them");
        return;
      }
      key = candidate;
      pair = &p;
    }
    if (pair == nullptr) return Unmatched(e);

    EdgeOverride out;
    const bool from_input = key >> 31 & 1;
    out.from_kind = from_input ? ResolvedArg::kInput : ResolvedArg::kNode;
    out.from = static_cast<int>(key & 0x7fffffff);
    out.to_output = key >> 63;
    out.to = static_cast<int>(key >> 32 & 0x7fffffff);
    out.output = edge.has_output() ? edge.output() : -1;
    out.edge = edge;
    if (out.output >= 0 || edge.has_output()) {
      if (!std::binary_search(pair->taken.begin(), pair->taken.end(), edge.output())) {
        v_->Error(where, ": ", Quote(edge.to()), " does not take output ", edge.output(), " of ", Quote(edge.from()),
                  "; it takes ", pair->taken.front(), pair->taken.size() > 1 ? " and others" : "");
        return;
      }
    }
    if (from_input) out.output = -1;
    if (!pair->adjusted.empty() &&
        (out.output < 0 || pair->adjusted.front() < 0 || !adjusted_.insert({key, out.output}).second)) {
      v_->Error(where, ": it is adjusted twice; merge the two entries");
      return;
    }
    if (pair->adjusted.empty()) adjusted_.insert({key, out.output});
    pair->adjusted.push_back(out.output);
    CheckTransport(where, out, *pair);
    v_->out.overrides.push_back(std::move(out));
  }

  void CheckTransport(const std::string& where, const EdgeOverride& e, const Pair& pair) {
    const v1::Transport t = e.edge.transport();
    const bool client = e.from_kind == ResolvedArg::kInput || e.to_output;
    if (client && t != v1::TRANSPORT_UNSPECIFIED && t != v1::SHM && t != v1::REMOTE && v1::Transport_IsValid(t)) {
      v_->Error(where, ": one end is the client, which is reached by SHM or REMOTE and not by ", v1::Transport_Name(t));
    }
    if (!client && t == v1::REMOTE) {
      v_->Error(where, ": REMOTE joins the client with a worker of another host; between workers use GLOO or NCCL");
    }
    if (client && e.edge.has_emulate())
      v_->Error(where, ": an emulated link lies between two workers, and one end is the client");
    if (t != v1::NCCL && t != v1::IPC) return;
    for (const int output : pair.taken) {
      if (e.output >= 0 && output != e.output) continue;
      const Spec* spec = nullptr;
      if (e.from_kind == ResolvedArg::kInput) {
        spec = &v_->out.inputs[e.from].spec;
      } else if (v_->node_known[e.from] && output >= 0 &&
                 output < static_cast<int>(v_->out.nodes[e.from].outputs.size())) {
        spec = &v_->out.nodes[e.from].outputs[output];
      }
      if (spec == nullptr || !spec->shape.HasDynamic()) continue;
      v_->Error(where, ": its value is ", spec->ToString(), ", and `?` cannot go by ", v1::Transport_Name(t),
                ", which reserves memory; write ?<=N, or choose LOCAL, SHM or GLOO");
    }
  }

  struct PairHash {
    size_t operator()(const std::pair<uint64_t, int>& p) const {
      return std::hash<uint64_t>()(p.first * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(p.second));
    }
  };

  Validation* const v_;
  std::unordered_map<uint64_t, Pair> pairs_;
  // Pairs with the output that an override has spoken of.
  std::unordered_set<std::pair<uint64_t, int>, PairHash> adjusted_;
};

}  // namespace

void CheckEdges(Validation* v) { Edges(v).Run(); }

}  // namespace weft
