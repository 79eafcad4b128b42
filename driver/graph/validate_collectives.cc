// Validate: collectives, and who may take their results.

#include <unordered_map>

#include "common/plan/plan.h"
#include "driver/graph/validation.h"

namespace weft {
namespace {

bool Reduces(v1::CollectiveOp op) { return op == v1::ALL_REDUCE || op == v1::REDUCE_SCATTER; }

// Where the members of one collective live, as far as the graph says.
struct Places {
  std::unordered_map<int, int> actor;           // to member
  std::unordered_map<std::string, int> worker;  // named ones, to member
  bool all_named = true;
};

// Actor of a node, or -1.
int ActorOf(const Validation& v, int node) { return node < 0 ? -1 : v.out.nodes[node].actor; }

const std::string& WorkerOf(const Validation& v, int actor) {
  static const std::string kNone;
  return actor < 0 ? kNone : v.out.actors[actor].worker;
}

void CheckOp(Validation* v, int c) {
  const v1::Collective& collective = v->graph.collective(c);
  ResolvedCollective& out = v->out.collectives[c];
  out.name = collective.name();
  out.op = collective.op();
  const std::string where = v->Collective(c);
  const auto bad = [&](const auto&... parts) {
    v->Error(where, ": ", parts...);
    v->collective_ok[c] = false;
  };
  if (!v1::CollectiveOp_IsValid(collective.op()) || collective.op() == v1::COLLECTIVE_OP_UNSPECIFIED) {
    bad("op is ", collective.op() == v1::COLLECTIVE_OP_UNSPECIFIED ? "missing" : "unknown",
        "; one of ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST");
    return;
  }
  const std::string& op = v1::CollectiveOp_Name(collective.op());
  if (!v1::ReduceOp_IsValid(collective.reduce())) {
    bad("reduce is unknown; one of SUM, PROD, MIN, MAX");
  } else if (Reduces(collective.op()) && collective.reduce() == v1::REDUCE_OP_UNSPECIFIED) {
    bad("reduce is missing; ", op, " needs one of SUM, PROD, MIN, MAX");
  } else if (!Reduces(collective.op()) && collective.reduce() != v1::REDUCE_OP_UNSPECIFIED) {
    bad(op, " does not reduce; remove reduce");
  } else if (Reduces(collective.op())) {
    out.reduce = collective.reduce();
  }
  if (collective.member_size() == 0) bad("it has no member; add at least one");
  if (static_cast<size_t>(collective.member_size()) > kMaxGroupRanks) {
    bad("it has ", collective.member_size(), " members, at most ", kMaxGroupRanks, " are possible; combine in two steps, by groups and then between them");
  }
  if (collective.op() != v1::BROADCAST && !collective.root().empty()) bad("root is for BROADCAST only; remove it");
}

// Members, their order marks and the root.
Places ResolveMembers(Validation* v, int c) {
  const v1::Collective& collective = v->graph.collective(c);
  ResolvedCollective& out = v->out.collectives[c];
  const std::string where = v->Collective(c);
  Places places;
  std::unordered_map<int, int> seen;
  const auto bad = [&](const auto&... parts) {
    v->Error(where, ": ", parts...);
    v->collective_ok[c] = false;
  };
  for (int m = 0; m < collective.member_size(); ++m) {
    const v1::Collective::Member& member = collective.member(m);
    ResolvedMember resolved;
    resolved.output = member.output();
    const std::string what = absl::StrCat("member ", m);
    if (member.node().empty()) {
      bad(what, " names no node");
    } else {
      resolved.node = v->FindNode(where, what, member.node());
      if (resolved.node < 0) v->collective_ok[c] = false;
    }
    if (member.output() < 0) bad(what, " gives output ", member.output(), "; outputs count from 0");
    if (!member.after().empty()) {
      resolved.after = v->FindNode(where, absl::StrCat("after of ", what), member.after());
      if (resolved.after < 0) v->collective_ok[c] = false;
    }
    out.members.push_back(resolved);
    const int actor = ActorOf(*v, resolved.node);
    const std::string& worker = WorkerOf(*v, actor);
    if (worker.empty()) places.all_named = false;
    if (resolved.node >= 0) {
      const auto [same, fresh] = seen.emplace(resolved.node, m);
      if (!fresh) {
        bad("members ", same->second, " and ", m, " are both node ", Quote(member.node()), "; a node takes part once");
        continue;
      }
    }
    if (actor >= 0) {
      const auto [same, fresh] = places.actor.emplace(actor, m);
      if (!fresh) {
        bad("members ", same->second, " and ", m, " are both nodes of ", v->Actor(actor),
            "; members live on different workers, so give them actors of their own");
      } else if (!worker.empty()) {
        const auto [other, first] = places.worker.emplace(worker, m);
        if (!first) {
          bad("members ", other->second, " and ", m, " both live on worker ", Quote(worker),
              "; members live on different workers");
        }
      }
    }
    const int after_actor = ActorOf(*v, resolved.after);
    const std::string& after_worker = WorkerOf(*v, after_actor);
    if (after_actor >= 0 && actor >= 0 && after_actor != actor && !worker.empty() && !after_worker.empty() &&
        worker != after_worker) {
      bad("after of ", what, " is node ", Quote(member.after()), " on worker ", Quote(after_worker),
          ", but the member lives on ", Quote(worker), "; name a node of the member's worker");
    }
  }
  if (collective.op() == v1::BROADCAST && !collective.root().empty()) {
    out.root_rank = -1;
    for (int m = 0; m < collective.member_size() && out.root_rank < 0; ++m) {
      if (collective.member(m).node() == collective.root()) out.root_rank = m;
    }
    if (out.root_rank < 0) bad("root ", Quote(collective.root()), " is not the node of a member; name one that is");
  }
  return places;
}

void CheckConsumers(Validation* v, const std::vector<Places>& places) {
  for (int i = 0; i < v->graph.node_size(); ++i) {
    const ResolvedNode& node = v->out.nodes[i];
    for (int a = 0; a < static_cast<int>(node.args.size()); ++a) {
      const ResolvedArg& arg = node.args[a];
      if (arg.kind != ResolvedArg::kCollective || arg.index < 0 || node.actor < 0) continue;
      const Places& p = places[arg.index];
      const std::string& worker = WorkerOf(*v, node.actor);
      if (!v->collective_ok[arg.index] || p.actor.count(node.actor) != 0 || worker.empty()) continue;
      if (!p.all_named || p.worker.count(worker) != 0) continue;  // the former is for the placement to see
      v->Error(v->Node(i), ": ", ArgName(a), " is the result of ", v->Collective(arg.index),
               ", which has no member on worker ", Quote(worker), "; put ", v->Actor(node.actor),
               " on a member's worker, or take the result there and pass it on");
      v->node_ok[i] = false;
    }
  }
}

}  // namespace

void ResolveCollectives(Validation* v) {
  const int n = v->graph.collective_size();
  v->collective_ok.assign(n, true);
  v->out.collectives.resize(n);
  std::vector<Places> places(n);
  for (int c = 0; c < n; ++c) {
    CheckOp(v, c);
    places[c] = ResolveMembers(v, c);
  }
  CheckConsumers(v, places);
}

}  // namespace weft
