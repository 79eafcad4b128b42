#include "driver/plan/verify_index.h"

#include <algorithm>

namespace weft {
namespace {

template <typename T>
void CheckIds(const std::vector<T>& list, const char* what, Findings* f) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].id == static_cast<int32_t>(i)) continue;
    f->Add("V7", what, " number ", i, " has id ", list[i].id, ": in a whole plan the id is the place");
  }
}

bool InRange(int32_t i, size_t n) { return i >= 0 && static_cast<size_t>(i) < n; }

bool LaneFits(OpKind kind, LaneKind lane) {
  switch (kind) {
    case v1::COMPUTE:
      return lane == v1::LANE_COMPUTE;
    case v1::SEND:
      return lane == v1::LANE_SEND;
    case v1::RECV:
      return lane == v1::LANE_RECV;
    // A buffered transfer between a GPU and the host is a copy by DMA, on the copy lane.
    case v1::WRITE:
      return lane == v1::LANE_SEND || lane == v1::LANE_COPY;
    case v1::READ:
      return lane == v1::LANE_RECV || lane == v1::LANE_COPY;
    case v1::COLLECTIVE:
      return lane == v1::LANE_COLLECTIVE;
    default:
      return false;
  }
}

int32_t LanesOf(const v1::Options& o, LaneKind kind) {
  switch (kind) {
    case v1::LANE_SEND:
      return std::max(o.send_lanes(), 1);
    case v1::LANE_RECV:
      return std::max(o.recv_lanes(), 1);
    case v1::LANE_COLLECTIVE:
      return std::max(o.collective_lanes(), 1);
    case v1::LANE_COPY:
      return 2;  // into the GPU and out of it
    default:
      return 1;
  }
}

// An op as it can be named before anything of it is known to be valid.
std::string RawName(const Plan& plan, size_t i) {
  return absl::StrCat(WorkerName(plan, plan.ops[i].worker), ": op ", i);
}

void CheckOp(const Plan& plan, size_t i, Findings* f) {
  const PlanOp& op = plan.ops[i];
  const auto bad = [&](const auto&... parts) {
    if (f->more()) {
      f->Add("V7", RawName(plan, i), ": ", parts...);
    } else {
      f->Drop();
    }
  };
  if (op.id != static_cast<int32_t>(i)) bad("has id ", op.id, ": an op's id is its place in the plan");
  if (!InRange(op.worker, plan.workers.size())) {
    bad("is on worker ", op.worker, " of ", plan.workers.size());
  }
  const bool kind_ok = op.kind >= v1::READ && op.kind <= v1::COLLECTIVE;
  if (!kind_ok) bad("has kind ", static_cast<int>(op.kind), ": no such kind of op");
  if (kind_ok && !LaneFits(op.kind, op.lane)) {
    bad(v1::OpKind_Name(op.kind), " is on a lane of kind ", static_cast<int>(op.lane),
        ": COMPUTE goes on compute, SEND and WRITE on send, RECV and READ on recv, COLLECTIVE on collective");
  } else if (kind_ok && !InRange(op.lane_index, std::min(LanesOf(plan.options, op.lane), kMaxLanes))) {
    bad(v1::OpKind_Name(op.kind), " is on lane ", op.lane_index, " of ", LanesOf(plan.options, op.lane), " of its kind");
  }
  if (op.slots < 1 || op.slots > kMaxSlots) bad("has ", op.slots, " slots: 1 to ", kMaxSlots);
  const auto refers = [&](const char* what, int32_t id, size_t n, bool wanted) {
    if (wanted && !InRange(id, n)) bad("speaks of ", what, " ", id, " of ", n);
    if (!wanted && id != -1) bad("speaks of ", what, " ", id, ", which its kind has nothing to do with: -1");
  };
  if (kind_ok) {
    refers("node", op.node, plan.nodes.size(), op.kind == v1::COMPUTE);
    refers("edge", op.edge, plan.edges.size(), IsTransferOp(op.kind));
    refers("group", op.group, plan.groups.size(), op.kind == v1::COLLECTIVE);
  }
  for (size_t a = 0; a < op.args.size(); ++a) {
    if (!InRange(op.args[a].op, plan.ops.size())) bad("argument ", a, " is of op ", op.args[a].op, " of ", plan.ops.size());
    if (op.args[a].output < 0) bad("argument ", a, " is output ", op.args[a].output);
  }
  for (const PlanWait& w : op.waits) {
    if (!InRange(w.op, plan.ops.size())) bad("waits for op ", w.op, " of ", plan.ops.size());
    if (w.distance < 0 || w.distance > kMaxSlots) {
      bad("waits for op ", w.op, " at distance ", w.distance, ": 0 to ", kMaxSlots,
          ", since nothing can wait for an execution that comes later");
    }
    if (w.reason < v1::PlanWait::DATA || w.reason > v1::PlanWait::NO_OVERLAP) {
      bad("waits for op ", w.op, " with reason ", static_cast<int>(w.reason), ": no such reason");
    }
  }
}

}  // namespace

void PlanIndex::Check(const Plan& plan, Findings* f) {
  if (plan.part_of != -1) {
    f->Add("V7", "this is the part of ", WorkerName(plan, plan.part_of), ": only a whole plan can be checked or simulated");
    return;
  }
  if (plan.ops.size() > static_cast<size_t>(kMaxOps)) {
    f->Add("V7", "the plan has ", plan.ops.size(), " ops: at most ", kMaxOps);
    return;
  }
  if (plan.workers.size() > static_cast<size_t>(kMaxWorkers)) {
    f->Add("V7", "the plan has ", plan.workers.size(), " workers: at most ", kMaxWorkers);
    return;
  }
  CheckIds(plan.actors, "actor", f);
  CheckIds(plan.nodes, "node", f);
  CheckIds(plan.edges, "edge", f);
  CheckIds(plan.groups, "group", f);
  for (const PlanActor& a : plan.actors) {
    if (!InRange(a.worker, plan.workers.size())) f->Add("V7", "actor ", a.name, " is on worker ", a.worker, " of ", plan.workers.size());
  }
  for (const PlanNode& n : plan.nodes) {
    if (!InRange(n.actor, plan.actors.size())) f->Add("V7", "node ", n.name, " is of actor ", n.actor, " of ", plan.actors.size());
  }
  for (const PlanEdge& e : plan.edges) {
    for (const int32_t w : {e.src_worker, e.dst_worker}) {
      if (w != kClient && !InRange(w, plan.workers.size())) {
        f->Add("V7", "edge ", e.id, " ", e.src, " -> ", e.dst, " ends on worker ", w, " of ", plan.workers.size());
      }
    }
    if (e.slots < 1 || e.slots > kMaxSlots) {
      f->Add("V7", "edge ", e.id, " ", e.src, " -> ", e.dst, " (", WorkerName(plan, e.src_worker), " -> ",
             WorkerName(plan, e.dst_worker), ") has ", e.slots, " slots: 1 to ", kMaxSlots);
    }
  }
  for (const PlanGroup& g : plan.groups) {
    for (const int32_t w : g.members) {
      if (!InRange(w, plan.workers.size())) f->Add("V7", "group ", g.name, " has a member on worker ", w, " of ", plan.workers.size());
    }
  }
  for (size_t i = 0; i < plan.ops.size(); ++i) CheckOp(plan, i, f);
}

PlanIndex::PlanIndex(const Plan& plan)
    : plan_(&plan),
      compute_(plan.nodes.size(), -1),
      source_(plan.edges.size(), -1),
      sink_(plan.edges.size(), -1) {
  members_.reserve(plan.groups.size());
  for (const PlanGroup& g : plan.groups) {
    members_.emplace_back(g.members.size(), -1);
    ranks_.emplace_back();
    for (size_t r = 0; r < g.members.size(); ++r) ranks_.back().emplace_back(g.members[r], static_cast<int32_t>(r));
    std::sort(ranks_.back().begin(), ranks_.back().end());
  }
  const auto claim = [](int32_t* role, int32_t op) {
    if (*role < 0) *role = op;
  };
  for (const PlanOp& o : plan.ops) {
    switch (o.kind) {
      case v1::COMPUTE:
        claim(&compute_[o.node], o.id);
        break;
      case v1::SEND:
      case v1::WRITE:
        claim(&source_[o.edge], o.id);
        break;
      case v1::RECV:
      case v1::READ:
        claim(&sink_[o.edge], o.id);
        break;
      default: {
        const int32_t rank = RankOf(o.group, o.worker);
        if (rank >= 0) claim(&members_[o.group][rank], o.id);
      }
    }
  }
  IndexLanes();
  IndexReaders();
  IndexUnits();
}

void PlanIndex::IndexLanes() {
  constexpr int32_t kKinds = v1::LANE_COLLECTIVE + 1;
  std::vector<int32_t> lane_at(plan_->workers.size() * kKinds * kMaxLanes, -1);
  lane_of_.resize(plan_->ops.size());
  place_in_lane_.resize(plan_->ops.size());
  // Lanes in the order of worker, kind, index, whatever the ops' order: reports come out the same for equal plans.
  const auto key = [](const PlanOp& o) { return (o.worker * kKinds + o.lane) * kMaxLanes + o.lane_index; };
  for (const PlanOp& o : plan_->ops) lane_at[key(o)] = 0;
  for (size_t k = 0; k < lane_at.size(); ++k) {
    if (lane_at[k] < 0) continue;
    lane_at[k] = static_cast<int32_t>(lanes_.size());
    PlanLane lane;
    lane.index = static_cast<int32_t>(k % kMaxLanes);
    lane.kind = static_cast<LaneKind>(k / kMaxLanes % kKinds);
    lane.worker = static_cast<int32_t>(k / kMaxLanes / kKinds);
    lanes_.push_back(std::move(lane));
  }
  for (const PlanOp& o : plan_->ops) {
    const int32_t lane = lane_at[key(o)];
    lane_of_[o.id] = lane;
    place_in_lane_[o.id] = static_cast<int32_t>(lanes_[lane].ops.size());
    lanes_[lane].ops.push_back(o.id);
  }
}

void PlanIndex::IndexReaders() {
  const size_t n = plan_->ops.size();
  readers_at_.assign(n + 1, 0);
  takers_end_.assign(n, 0);
  std::vector<int32_t> last(n);  // last reader seen, so that each is listed once
  // Takers of all ops first, then those that only wait: an op's list comes out in that order.
  const auto each = [&](const auto& takes, const auto& waits) {
    std::fill(last.begin(), last.end(), -1);
    const auto once = [&](int32_t of, const PlanOp& reader, const auto& f) {
      if (last[of] != reader.id) f(of, reader.id);
      last[of] = reader.id;
    };
    for (const PlanOp& o : plan_->ops) {
      for (const PlanValue& v : o.args) once(v.op, o, takes);
      for (const PlanWait& w : o.waits) {
        if (w.reason == v1::PlanWait::CONTROL && w.distance == 0) once(w.op, o, waits);
      }
    }
  };
  const auto nothing = [](int32_t, int32_t) {};
  const auto count = [&](int32_t of, int32_t) { ++readers_at_[of + 1]; };
  each(count, count);
  for (size_t i = 0; i < n; ++i) readers_at_[i + 1] += readers_at_[i];
  readers_.resize(readers_at_[n]);
  std::vector<int32_t> next(readers_at_.begin(), readers_at_.end() - 1);
  const auto put = [&](int32_t of, int32_t reader) { readers_[next[of]++] = reader; };
  each(put, nothing);
  takers_end_ = next;
  each(nothing, put);
}

void PlanIndex::IndexUnits() {
  unit_of_.assign(plan_->ops.size(), -1);
  std::vector<int32_t> edge_unit(plan_->edges.size(), -1);
  std::vector<int32_t> group_unit(plan_->groups.size(), -1);
  for (const PlanOp& o : plan_->ops) {
    int32_t* shared = nullptr;
    if (IsRendezvousOp(o.kind) && (source_[o.edge] == o.id || sink_[o.edge] == o.id)) shared = &edge_unit[o.edge];
    if (o.kind == v1::COLLECTIVE) {
      const int32_t rank = RankOf(o.group, o.worker);
      if (rank >= 0 && members_[o.group][rank] == o.id) shared = &group_unit[o.group];
    }
    if (shared != nullptr && *shared >= 0) {
      unit_of_[o.id] = *shared;
      continue;
    }
    unit_of_[o.id] = num_units_++;
    if (shared != nullptr) *shared = unit_of_[o.id];
  }
}

int32_t PlanIndex::RankOf(int32_t group, int32_t worker) const {
  const auto& ranks = ranks_[group];
  const auto it = std::lower_bound(ranks.begin(), ranks.end(), std::make_pair(worker, int32_t{0}));
  return it != ranks.end() && it->first == worker ? it->second : -1;
}

const Spec* PlanIndex::SpecOf(const PlanValue& value) const {
  const PlanOp& o = op(value.op);
  switch (o.kind) {
    case v1::COMPUTE: {
      const std::vector<Spec>& outputs = node_of(o).outputs;
      return InRange(value.output, outputs.size()) ? &outputs[value.output] : nullptr;
    }
    case v1::READ:
    case v1::RECV:
      return value.output == 0 && !edge_of(o).control ? &edge_of(o).spec : nullptr;
    case v1::COLLECTIVE:
      return value.output == 0 ? &group_of(o).output : nullptr;
    default:
      return nullptr;
  }
}

std::string PlanIndex::Name(int32_t i) const {
  return absl::StrCat(WorkerName(*plan_, op(i).worker), ": ", OpName(*plan_, op(i)));
}

}  // namespace weft
