#include "driver/plan/place.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "driver/graph/error_list.h"

namespace weft {
namespace {

// How many worker names an error lists.
constexpr size_t kListed = 20;

class Placer {
 public:
  Placer(const ResolvedGraph& graph, const Cluster& cluster) : g_(graph), c_(cluster) {}

  absl::StatusOr<Placement> Run() {
    if (c_.workers.empty()) return absl::InvalidArgumentError("there is no worker to place actors on: start one");
    for (size_t w = 0; w < c_.workers.size(); ++w) by_name_.emplace(c_.workers[w].name, static_cast<int32_t>(w));
    MakeSets();
    PlaceExplicit();
    if (!problems_.empty()) return problems_.ToStatus();
    for (size_t s = 0; s < sets_.size(); ++s) PlaceAfterItsNeeds(static_cast<int32_t>(s));
    if (!problems_.empty()) return problems_.ToStatus();
    Fill();
    CheckCollectives();
    if (!problems_.empty()) return problems_.ToStatus();
    return std::move(out_);
  }

 private:
  // Actors that must live together: those of a collective's member and of the node that the member waits for.
  struct Set {
    std::vector<int32_t> actors;
    int32_t nodes = 0;
    std::vector<int32_t> consumes;   // collectives whose result its nodes take
    std::vector<int32_t> member_of;  // collectives that its nodes take part in
    int32_t worker = -1;
    bool visited = false;
  };

  int32_t Root(int32_t a) {
    while (parent_[a] != a) a = parent_[a] = parent_[parent_[a]];
    return a;
  }
  int32_t SetOfNode(int32_t node) { return set_of_[g_.nodes[node].actor]; }

  void MakeSets() {
    const int32_t actors = static_cast<int32_t>(g_.actors.size());
    parent_.resize(actors);
    for (int32_t a = 0; a < actors; ++a) parent_[a] = a;
    for (const ResolvedCollective& c : g_.collectives) {
      for (const ResolvedMember& m : c.members) {
        if (m.after < 0) continue;
        const int32_t a = Root(g_.nodes[m.node].actor), b = Root(g_.nodes[m.after].actor);
        parent_[std::max(a, b)] = std::min(a, b);
      }
    }
    set_of_.assign(actors, -1);
    for (int32_t a = 0; a < actors; ++a) {
      const int32_t root = Root(a);  // the smallest of its set, so it comes first
      if (root == a) {
        set_of_[a] = static_cast<int32_t>(sets_.size());
        sets_.emplace_back();
      }
      set_of_[a] = set_of_[root];
      sets_[set_of_[a]].actors.push_back(a);
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      Set& set = sets_[SetOfNode(n)];
      ++set.nodes;
      for (const ResolvedArg& arg : g_.nodes[n].args) {
        if (arg.kind == ResolvedArg::kCollective) set.consumes.push_back(arg.index);
      }
    }
    for (size_t c = 0; c < g_.collectives.size(); ++c) {
      for (const ResolvedMember& m : g_.collectives[c].members) sets_[SetOfNode(m.node)].member_of.push_back(c);
    }
    for (Set& set : sets_) {
      std::sort(set.consumes.begin(), set.consumes.end());
      set.consumes.erase(std::unique(set.consumes.begin(), set.consumes.end()), set.consumes.end());
    }
  }

  std::string WorkerList() const {
    std::string out;
    for (size_t w = 0; w < c_.workers.size() && w < kListed; ++w) absl::StrAppend(&out, w ? ", " : "", c_.workers[w].name);
    if (c_.workers.size() > kListed) absl::StrAppend(&out, " and ", c_.workers.size() - kListed, " more");
    return out;
  }

  void PlaceExplicit() {
    load_.assign(c_.workers.size(), 0);
    for (Set& set : sets_) {
      int32_t first = -1;
      for (const int32_t a : set.actors) {
        const ResolvedActor& actor = g_.actors[a];
        if (actor.worker.empty()) continue;
        const auto it = by_name_.find(actor.worker);
        if (it == by_name_.end()) {
          problems_.Add(absl::StrCat("actor ", actor.name, ": there is no worker ", actor.worker, "; there are: ", WorkerList()));
          continue;
        }
        if (set.worker >= 0 && set.worker != it->second) {
          problems_.Add(absl::StrCat("actor ", actor.name, " is on ", actor.worker, " and actor ", g_.actors[first].name, " on ",
                                     g_.actors[first].worker,
                                     ", but a collective's member comes after a node between them: put both on one worker"));
          continue;
        }
        if (first < 0) first = a;
        set.worker = it->second;
      }
      if (set.worker >= 0) {
        load_[set.worker] += set.nodes;
        set.visited = true;
      }
    }
    for (size_t w = 0; w < load_.size(); ++w) by_load_.insert({load_[w], static_cast<int32_t>(w)});
  }

  // A consumer of a collective can only be placed once the members are: an explicit stack, since such chains may be long.
  void PlaceAfterItsNeeds(int32_t start) {
    std::vector<std::pair<int32_t, bool>> stack = {{start, false}};
    while (!stack.empty()) {
      const auto [s, needs_done] = stack.back();
      stack.pop_back();
      Set& set = sets_[s];
      if (needs_done) {
        PlaceSet(&set);
        continue;
      }
      if (set.visited) continue;
      set.visited = true;
      stack.push_back({s, true});
      for (auto c = set.consumes.rbegin(); c != set.consumes.rend(); ++c) {
        const std::vector<ResolvedMember>& members = g_.collectives[*c].members;
        for (auto m = members.rbegin(); m != members.rend(); ++m) {
          const int32_t owner = SetOfNode(m->node);
          if (!sets_[owner].visited) stack.push_back({owner, false});
        }
      }
    }
  }

  void PlaceSet(Set* set) {
    const int32_t self = set_of_[set->actors[0]];
    std::vector<int32_t> avoid;
    for (const int32_t c : set->member_of) {
      for (const ResolvedMember& m : g_.collectives[c].members) {
        const int32_t owner = SetOfNode(m.node);
        if (owner != self && sets_[owner].worker >= 0) avoid.push_back(sets_[owner].worker);
      }
    }
    std::sort(avoid.begin(), avoid.end());
    const auto avoided = [&](int32_t w) { return std::binary_search(avoid.begin(), avoid.end(), w); };

    bool limited = false;
    std::vector<int32_t> allowed;
    for (const int32_t c : set->consumes) {
      std::vector<int32_t> here;
      bool own = false;
      for (const ResolvedMember& m : g_.collectives[c].members) {
        const int32_t owner = SetOfNode(m.node);
        own |= owner == self;
        if (sets_[owner].worker >= 0) here.push_back(sets_[owner].worker);
      }
      if (own) continue;  // wherever it goes, its own member is there
      std::sort(here.begin(), here.end());
      if (limited) {
        std::vector<int32_t> both;
        std::set_intersection(here.begin(), here.end(), allowed.begin(), allowed.end(), std::back_inserter(both));
        here = std::move(both);
      }
      allowed = std::move(here);
      limited = true;
    }

    int32_t best = -1;
    if (limited) {
      for (const int32_t w : allowed) {
        if (!avoided(w) && (best < 0 || load_[w] < load_[best])) best = w;
      }
    } else {
      for (const auto& [load, w] : by_load_) {
        if (!avoided(w)) {
          best = w;
          break;
        }
      }
    }
    const std::string& name = g_.actors[set->actors[0]].name;
    if (best < 0 && limited) {
      problems_.Add(absl::StrCat("actor ", name, ": no worker holds a member of every collective whose result it takes (",
                                 g_.collectives[set->consumes[0]].name, set->consumes.size() > 1 ? ", ..." : "",
                                 "): name its worker, or split the actor"));
      return;
    }
    if (best < 0) {
      problems_.Add(absl::StrCat("actor ", name, ": every worker already holds another member of ",
                                 g_.collectives[set->member_of[0]].name, " or of another of its collectives; each member needs a worker "
                                 "of its own, and there are ", c_.workers.size(), ": start more workers"));
      return;
    }
    set->worker = best;
    by_load_.erase({load_[best], best});
    load_[best] += set->nodes;
    by_load_.insert({load_[best], best});
  }

  void Fill() {
    out_.actor_worker.resize(g_.actors.size());
    for (size_t a = 0; a < g_.actors.size(); ++a) out_.actor_worker[a] = sets_[set_of_[a]].worker;
    out_.node_worker.resize(g_.nodes.size());
    for (size_t n = 0; n < g_.nodes.size(); ++n) out_.node_worker[n] = out_.actor_worker[g_.nodes[n].actor];
    out_.tasks = static_cast<int32_t>(g_.nodes.size());
    for (const ResolvedCollective& c : g_.collectives) {
      out_.member_base.push_back(out_.tasks);
      out_.tasks += static_cast<int32_t>(c.members.size());
    }
  }

  void CheckCollectives() {
    for (size_t i = 0; i < g_.collectives.size(); ++i) {
      for (size_t r = 0; r < g_.collectives[i].members.size(); ++r) {
        const int32_t w = out_.node_worker[g_.collectives[i].members[r].node];
        out_.members.push_back({{static_cast<int32_t>(i), w}, out_.member_base[i] + static_cast<int32_t>(r)});
      }
    }
    std::sort(out_.members.begin(), out_.members.end());
    for (size_t i = 1; i < out_.members.size(); ++i) {
      if (out_.members[i].first != out_.members[i - 1].first) continue;
      // No structured binding: lambdas cannot capture one in every compiler that builds this.
      const int32_t c = out_.members[i].first.first;
      const int32_t w = out_.members[i].first.second;
      const auto node = [&](int32_t task) { return g_.nodes[g_.collectives[c].members[task - out_.member_base[c]].node].name; };
      problems_.Add(absl::StrCat("collective ", g_.collectives[c].name, ": members ", node(out_.members[i - 1].second), " and ",
                                 node(out_.members[i].second), " are both on ", c_.workers[w].name,
                                 "; each member needs a worker of its own"));
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const int32_t w = out_.node_worker[n];
      for (const ResolvedArg& arg : g_.nodes[n].args) {
        if (arg.kind != ResolvedArg::kCollective || out_.MemberTask(arg.index, w) >= 0) continue;
        std::string where;
        size_t listed = 0;
        for (const ResolvedMember& m : g_.collectives[arg.index].members) {
          if (listed == kListed) absl::StrAppend(&where, ", ...");
          if (++listed > kListed) break;
          absl::StrAppend(&where, where.empty() ? "" : ", ", c_.workers[out_.node_worker[m.node]].name);
        }
        problems_.Add(absl::StrCat("node ", g_.nodes[n].name, " takes collective ", g_.collectives[arg.index].name, " on ",
                                   c_.workers[w].name, ", where it has no member; its members are on ", where,
                                   ": put the node's actor on one of these"));
      }
    }
  }

  const ResolvedGraph& g_;
  const Cluster& c_;
  std::unordered_map<std::string, int32_t> by_name_;
  std::vector<int32_t> parent_;
  std::vector<int32_t> set_of_;  // by actor
  std::vector<Set> sets_;
  std::vector<int64_t> load_;  // nodes on each worker
  std::set<std::pair<int64_t, int32_t>> by_load_;
  ErrorList problems_;
  Placement out_;
};

}  // namespace

int32_t Placement::MemberTask(int32_t collective, int32_t worker) const {
  const std::pair<int32_t, int32_t> key = {collective, worker};
  const auto it = std::lower_bound(members.begin(), members.end(), std::make_pair(key, int32_t{-1}));
  return it != members.end() && it->first == key ? it->second : -1;
}

absl::StatusOr<Placement> Place(const ResolvedGraph& graph, const Cluster& cluster) { return Placer(graph, cluster).Run(); }

}  // namespace weft
