#include "driver/plan/buckets.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct Bucket {
  std::vector<int32_t> parts;    // collectives
  std::vector<int32_t> pack;     // by rank: index in the new graph
  std::vector<int32_t> unpack;   // likewise; -1: nobody takes a result there
  uint64_t bytes = 0;
};

class Fuser {
 public:
  Fuser(const ResolvedGraph& g, const Placement& p, const Cluster& c) : g_(g), p_(p), c_(c), nodes_(static_cast<int32_t>(g.nodes.size())) {}

  std::optional<ResolvedGraph> Run() {
    if (g_.options.bucket_bytes() == 0) return std::nullopt;
    FindBuckets();
    if (buckets_.empty()) return std::nullopt;
    ListNodes();
    Build();
    return std::move(out_);
  }

 private:
  int32_t WorkerOf(const ResolvedMember& m) const { return p_.node_worker[m.node]; }

  // By node, then collective: how many collectives stand before it on the longest way.
  std::vector<int32_t> Levels() const {
    const int32_t n = nodes_ + static_cast<int32_t>(g_.collectives.size());
    std::vector<std::vector<int32_t>> next(n);
    std::vector<int32_t> needs(n, 0), level(n, 0);
    const auto link = [&](int32_t from, int32_t to) {
      next[from].push_back(to);
      ++needs[to];
    };
    std::vector<int32_t> last(g_.actors.size(), -1);
    for (int32_t i = 0; i < nodes_; ++i) {
      const ResolvedNode& node = g_.nodes[i];
      for (const ResolvedArg& a : node.args) {
        if (a.kind == ResolvedArg::kNode) link(a.index, i);
        if (a.kind == ResolvedArg::kCollective) link(nodes_ + a.index, i);
      }
      for (const int after : node.after) link(after, i);
      if (g_.options.order() == v1::COST) continue;
      if (last[node.actor] >= 0) link(last[node.actor], i);
      last[node.actor] = i;
    }
    for (size_t c = 0; c < g_.collectives.size(); ++c) {
      for (const ResolvedMember& m : g_.collectives[c].members) {
        link(m.node, nodes_ + static_cast<int32_t>(c));
        if (m.after >= 0) link(m.after, nodes_ + static_cast<int32_t>(c));
      }
    }
    std::queue<int32_t> ready;
    for (int32_t v = 0; v < n; ++v) {
      if (needs[v] == 0) ready.push(v);
    }
    for (; !ready.empty(); ready.pop()) {
      const int32_t v = ready.front();
      for (const int32_t to : next[v]) {
        level[to] = std::max(level[to], level[v] + (v >= nodes_ ? 1 : 0));
        if (--needs[to] == 0) ready.push(to);
      }
    }
    return level;
  }

  // The last node behind which a member stands on its worker.
  static int32_t AnchorOf(const ResolvedMember& m) { return std::max(m.node, m.after); }

  // What joins all of level l leaves by results that stand above it, so no bucket can come to wait for itself.
  void FindBuckets() {
    const std::vector<int32_t> level = Levels();
    std::vector<std::pair<int32_t, int32_t>> by_place;  // last anchor, collective
    for (size_t c = 0; c < g_.collectives.size(); ++c) {
      int32_t anchor = 0;
      for (const ResolvedMember& m : g_.collectives[c].members) anchor = std::max(anchor, AnchorOf(m));
      by_place.emplace_back(anchor, static_cast<int32_t>(c));
    }
    std::sort(by_place.begin(), by_place.end());
    using Key = std::tuple<std::vector<int32_t>, int, int, int32_t>;  // workers, reduction, dtype, level
    std::map<Key, Bucket> open;
    std::vector<Bucket> closed;
    for (const auto& [anchor, c] : by_place) {
      const ResolvedCollective& collective = g_.collectives[c];
      const uint64_t bytes = collective.input.MaxBytes();
      if (collective.op != v1::ALL_REDUCE || bytes > g_.options.bucket_bytes()) continue;
      std::vector<int32_t> workers;
      size_t gpus = 0;
      for (const ResolvedMember& m : collective.members) {
        workers.push_back(WorkerOf(m));
        gpus += c_.workers[workers.back()].device == "cuda";
      }
      if (gpus != 0 && gpus != workers.size()) continue;  // which CheckGroups refuses by its own name
      Bucket& b = open[{std::move(workers), collective.reduce, collective.input.dtype, level[nodes_ + c]}];
      if (!b.parts.empty() && b.bytes + bytes > g_.options.bucket_bytes()) closed.push_back(std::exchange(b, Bucket()));
      b.parts.push_back(c);
      b.bytes += bytes;
    }
    for (auto& [key, b] : open) closed.push_back(std::move(b));
    bucket_of_.assign(g_.collectives.size(), -1);
    part_of_.assign(g_.collectives.size(), -1);
    for (Bucket& b : closed) {
      if (b.parts.size() < 2) continue;
      std::sort(b.parts.begin(), b.parts.end());
      for (size_t i = 0; i < b.parts.size(); ++i) {
        bucket_of_[b.parts[i]] = static_cast<int32_t>(buckets_.size());
        part_of_[b.parts[i]] = static_cast<int32_t>(i);
      }
      buckets_.push_back(std::move(b));
    }
  }

  int32_t RankOn(int32_t bucket, int32_t worker) const {
    const std::vector<ResolvedMember>& members = g_.collectives[buckets_[bucket].parts[0]].members;
    for (size_t r = 0; r < members.size(); ++r) {
      if (WorkerOf(members[r]) == worker) return static_cast<int32_t>(r);
    }
    return -1;  // not after Place
  }

  // The new graph's nodes in their order: those of before, with packs and unpacks between them.
  void ListNodes() {
    struct Extra {
      int32_t bucket, rank;
      bool pack;
    };
    std::vector<std::vector<Extra>> before(nodes_ + 1), behind(nodes_);
    for (size_t b = 0; b < buckets_.size(); ++b) {
      Bucket& bucket = buckets_[b];
      const size_t ranks = g_.collectives[bucket.parts[0]].members.size();
      bucket.pack.assign(ranks, -1);
      bucket.unpack.assign(ranks, -1);
      std::vector<int32_t> anchor(ranks, 0), taken(ranks, nodes_ + 1);
      for (size_t r = 0; r < ranks; ++r) {
        for (const int32_t c : bucket.parts) anchor[r] = std::max(anchor[r], AnchorOf(g_.collectives[c].members[r]));
      }
      for (int32_t n = nodes_; n-- > 0;) {
        for (const ResolvedArg& a : g_.nodes[n].args) {
          if (a.kind == ResolvedArg::kCollective && bucket_of_[a.index] == static_cast<int32_t>(b)) {
            taken[RankOn(static_cast<int32_t>(b), p_.node_worker[n])] = n;
          }
        }
      }
      for (const ResolvedOutput& o : g_.outputs) {
        if (!o.is_collective || bucket_of_[o.index] != static_cast<int32_t>(b)) continue;
        int32_t& first = taken[o.member];
        first = std::min(first, nodes_);
      }
      for (size_t r = 0; r < ranks; ++r) {
        const Extra pack{static_cast<int32_t>(b), static_cast<int32_t>(r), true}, unpack{pack.bucket, pack.rank, false};
        behind[anchor[r]].push_back(pack);
        if (taken[r] > nodes_) continue;
        // A taker may stand in the file before the last that gives, on another actor.
        taken[r] > anchor[r] ? before[taken[r]].push_back(unpack) : behind[anchor[r]].push_back(unpack);
      }
    }
    new_index_.assign(nodes_, -1);
    const auto add = [&](const Extra& e) {
      (e.pack ? buckets_[e.bucket].pack : buckets_[e.bucket].unpack)[e.rank] = static_cast<int32_t>(order_.size());
      order_.push_back(-1);
    };
    for (int32_t n = 0; n <= nodes_; ++n) {
      for (const Extra& e : before[n]) add(e);
      if (n == nodes_) break;
      new_index_[n] = static_cast<int32_t>(order_.size());
      order_.push_back(n);
      for (const Extra& e : behind[n]) add(e);
    }
  }

  void Build() {
    out_.name = g_.name;
    out_.inputs = g_.inputs;
    out_.options = g_.options;
    out_.actors = g_.actors;
    for (size_t a = 0; a < out_.actors.size(); ++a) out_.actors[a].worker = c_.workers[p_.actor_worker[a]].name;
    // Collectives: a bucket stands where its first part stood.
    std::vector<int32_t> new_collective(g_.collectives.size(), -1);
    std::vector<int32_t> bucket_index(buckets_.size(), -1);
    for (size_t c = 0; c < g_.collectives.size(); ++c) {
      const int32_t b = bucket_of_[c];
      if (b >= 0 && bucket_index[b] >= 0) continue;
      (b >= 0 ? bucket_index[b] : new_collective[c]) = static_cast<int32_t>(out_.collectives.size());
      ResolvedCollective collective = g_.collectives[c];
      if (b >= 0) {
        int64_t elements = 0;
        for (const int32_t part : buckets_[b].parts) elements += *g_.collectives[part].input.shape.MaxElements();
        collective.name = absl::StrCat("bucket+", collective.name);
        collective.input.shape = collective.output.shape = Shape::Of({elements});
        for (size_t r = 0; r < collective.members.size(); ++r) collective.members[r] = {buckets_[b].pack[r], 0, -1};
      } else {
        for (ResolvedMember& m : collective.members) m = {new_index_[m.node], m.output, m.after >= 0 ? new_index_[m.after] : -1};
      }
      out_.collectives.push_back(std::move(collective));
    }
    out_.nodes.resize(order_.size());
    for (int32_t n = 0; n < nodes_; ++n) {
      ResolvedNode& node = out_.nodes[new_index_[n]] = g_.nodes[n];
      for (ResolvedArg& a : node.args) {
        if (a.kind == ResolvedArg::kNode) a.index = new_index_[a.index];
        if (a.kind != ResolvedArg::kCollective) continue;
        const int32_t b = bucket_of_[a.index];
        if (b < 0) {
          a.index = new_collective[a.index];
        } else {
          a = {ResolvedArg::kNode, buckets_[b].unpack[RankOn(b, p_.node_worker[n])], part_of_[a.index]};
        }
      }
      for (int& after : node.after) after = new_index_[after];
    }
    for (size_t b = 0; b < buckets_.size(); ++b) AddCalls(buckets_[b], bucket_index[b]);
    out_.outputs = g_.outputs;
    for (ResolvedOutput& o : out_.outputs) {
      if (!o.is_collective) {
        o.index = new_index_[o.index];
      } else if (const int32_t b = bucket_of_[o.index]; b < 0) {
        o.index = new_collective[o.index];
      } else {
        o.is_collective = false;
        o.output = part_of_[o.index];
        o.index = buckets_[b].unpack[o.member];
        o.member = 0;
      }
    }
    out_.overrides = g_.overrides;
    for (EdgeOverride& e : out_.overrides) {
      if (e.from_kind == ResolvedArg::kNode) e.from = new_index_[e.from];
      if (e.from_kind == ResolvedArg::kCollective) {
        const int32_t b = bucket_of_[e.from];
        if (b < 0) {
          e.from = new_collective[e.from];
        } else {
          e.from_kind = ResolvedArg::kNode;
          e.output = part_of_[e.from];
          e.from = e.to_output ? out_.outputs[e.to].index : buckets_[b].unpack[RankOn(b, p_.node_worker[e.to])];
        }
      }
      if (!e.to_output) e.to = new_index_[e.to];
    }
  }

  void AddCalls(const Bucket& b, int32_t collective) {
    const ResolvedCollective& whole = out_.collectives[collective];
    for (size_t r = 0; r < b.pack.size(); ++r) {
      const std::string& worker = c_.workers[WorkerOf(g_.collectives[b.parts[0]].members[r])].name;
      // No name of a graph has a '+'.
      const std::string name = absl::StrCat(g_.collectives[b.parts[0]].name, "@", worker);
      ResolvedNode pack;
      pack.name = absl::StrCat("pack+", name);
      pack.actor = static_cast<int>(out_.actors.size());
      pack.method = "pack";
      pack.outputs = {whole.input};
      for (const int32_t c : b.parts) {
        const ResolvedMember& m = g_.collectives[c].members[r];
        pack.args.push_back({ResolvedArg::kNode, new_index_[m.node], m.output});
        if (m.after >= 0) pack.after.push_back(new_index_[m.after]);
      }
      std::sort(pack.after.begin(), pack.after.end());
      pack.after.erase(std::unique(pack.after.begin(), pack.after.end()), pack.after.end());
      out_.actors.push_back({pack.name, "weft.Bucket", worker, {}});
      out_.nodes[b.pack[r]] = std::move(pack);
      if (b.unpack[r] < 0) continue;
      ResolvedNode unpack;
      unpack.name = absl::StrCat("unpack+", name);
      unpack.actor = static_cast<int>(out_.actors.size());
      unpack.method = "unpack";
      unpack.args.push_back({ResolvedArg::kCollective, collective, 0});
      for (size_t i = 0; i < b.parts.size(); ++i) {
        const Spec& spec = g_.collectives[b.parts[i]].output;
        unpack.outputs.push_back(spec);
        (*unpack.config.mutable_extra())[absl::StrCat(i)] = spec.shape.ToString();
      }
      out_.actors.push_back({unpack.name, "weft.Bucket", worker, {}});
      out_.nodes[b.unpack[r]] = std::move(unpack);
    }
  }

  const ResolvedGraph& g_;
  const Placement& p_;
  const Cluster& c_;
  const int32_t nodes_;
  std::vector<Bucket> buckets_;
  std::vector<int32_t> bucket_of_, part_of_;  // by collective
  std::vector<int32_t> order_, new_index_;
  ResolvedGraph out_;
};

}  // namespace

std::optional<ResolvedGraph> FuseCollectives(const ResolvedGraph& graph, const Placement& placement, const Cluster& cluster) {
  return Fuser(graph, placement, cluster).Run();
}

}  // namespace weft
