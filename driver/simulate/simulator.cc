#include "driver/simulate/simulator.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "driver/plan/verify_index.h"
#include "driver/simulate/slowdown.h"

namespace weft {
namespace {

constexpr Nanos kEndOfTime = std::numeric_limits<Nanos>::max();
// 1.6 GB of events.
constexpr int64_t kMaxEvents = 50'000'000;
constexpr int32_t kDefaultInFlight = 4;

// Bits of a and b spread over 64, so that sums of them tell different sets apart.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Nanos Later(Nanos t, Nanos by) { return t > kEndOfTime - by ? kEndOfTime : t + by; }

// One run. Every lane goes through its ops, execution after execution. A lane that cannot go on hangs itself on the one thing that it
// lacks - an op's next completion, an admission, or the other ends of its unit - and is looked at again when that comes, from the
// dependency where it stood: a dependency that held once holds for good. So each dependency of each op and execution is looked at once,
// besides one extra look per wake-up. The queue holds one end a lane, and one arrival for each value that is under way without a lane; with
// contention also ends that no longer hold, which are passed over.
class Simulation {
 public:
  Simulation(const PlanIndex& index, const SimOptions& options, int32_t in_flight)
      : index_(index),
        n_(options.executions),
        in_flight_(in_flight),
        record_(options.record),
        fingerprint_(options.fingerprint),
        barrier_(options.end_barrier) {}

  absl::Status Prepare(const CostModel& costs);
  absl::StatusOr<SimResult> Run();

 private:
  struct Lane {
    size_t place = 0;       // of its head
    int64_t execution = 0;  // of its head
    int32_t cursor = 0;     // first dependency of the head not seen to hold
    bool issued = false;    // the head holds the lane
    int32_t next_waiter = -1;
  };
  // Of a unit, or the arrival of a WRITE's value: then unit is -1 - op.
  struct End {
    Nanos at;
    int32_t unit;
    Nanos start;
    uint32_t version = 0;
    bool operator>(const End& o) const { return std::tie(at, unit, version) > std::tie(o.at, o.unit, o.version); }
  };

  int32_t Head(int32_t lane) const { return index_.lanes()[lane].ops[lanes_[lane].place]; }
  bool Finished(int32_t lane) const { return lanes_[lane].execution >= n_; }
  bool Holds(const Dependency& d, int64_t execution) const {
    const std::vector<int64_t>& count = d.cause == Cause::kValue && !there_.empty() ? there_ : done_;
    return count[d.op] > execution - d.distance;
  }
  int32_t SizeOfUnit(int32_t op) const;
  bool IsIpcWrite(int32_t op) const {
    const PlanOp& o = index_.op(op);
    return o.kind == v1::WRITE && index_.edge_of(o).transport == v1::IPC && index_.sink()[o.edge] >= 0;
  }

  void Look(int32_t lane);
  void Issue(int32_t lane);
  void Start(int32_t unit, Nanos cost);
  void Finish(const End& end);
  void Arrive(int32_t op);
  void Wake(int32_t op);
  void FinishOp(int32_t op, const End& end);
  void Count(int64_t execution);
  absl::Status Standstill() const;
  std::string WhyStuck(int32_t lane) const;

  const PlanIndex& index_;
  const int64_t n_;
  const int32_t in_flight_;
  const bool record_;
  const bool fingerprint_;
  const bool barrier_;

  std::vector<Dependency> deps_;
  std::vector<int32_t> deps_at_;
  std::vector<Nanos> cost_;                   // by op
  std::vector<Nanos> first_;                  // by op: what execution 0 takes longer; empty: nothing
  std::vector<Nanos> latency_;                // by op, of WRITEs; empty: none
  std::optional<Slowdown> slowdown_;
  std::vector<int32_t> unit_size_, arrived_;  // by unit: ends there are, ends issued
  std::vector<int32_t> unit_ops_, unit_ops_at_;
  std::vector<bool> tracked_;  // by op: belongs to what makes an execution complete
  int64_t tracked_count_ = 0;

  Nanos now_ = 0;
  std::vector<Lane> lanes_;
  std::vector<int64_t> done_;          // by op: executions done
  std::vector<int64_t> there_;         // by op: values that a reader finds, where there is latency; otherwise empty
  std::vector<int32_t> first_waiter_;  // by op: lanes that hang on its next completion
  std::vector<int32_t> unadmitted_;    // lanes whose head's execution is not admitted
  std::vector<int32_t> look_;          // lanes to look at
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
  std::vector<int64_t> counts_;  // ring by execution: tracked ops done
  int64_t complete_ = 0;         // executions
  int64_t admitted_ = 0;
  std::vector<Nanos> compute_start_, compute_end_;  // by worker
  SimResult result_;
};

// Also where ends are missing: such a unit never starts.
int32_t Simulation::SizeOfUnit(int32_t op) const {
  const PlanOp& o = index_.op(op);
  if (IsRendezvousOp(o.kind)) return 2;
  return o.kind == v1::COLLECTIVE ? std::max<int32_t>(1, static_cast<int32_t>(index_.group_of(o).members.size())) : 1;
}

absl::Status Simulation::Prepare(const CostModel& costs) {
  const Plan& plan = index_.plan();
  std::vector<Nanos> by_node(plan.nodes.size()), by_edge(plan.edges.size()), by_group(plan.groups.size());
  std::vector<Nanos> latency(by_edge), read(by_edge), first_node(by_node), first_edge(by_edge), first_group(by_group), contact(by_edge);
  const auto ask = [&](const auto& f, const auto& list, const auto& name, std::vector<Nanos>* to) -> absl::Status {
    for (size_t i = 0; f != nullptr && i < list.size(); ++i) {
      (*to)[i] = f(plan, list[i]);
      if ((*to)[i] < 0) return absl::InvalidArgumentError(absl::StrCat(name(list[i]), ": the cost model says ", (*to)[i], " ns"));
    }
    return absl::OkStatus();
  };
  const auto node_name = [](const PlanNode& n) { return "node " + n.name; };
  const auto edge_name = [&](const PlanEdge& e) { return EdgeName(plan, e); };
  const auto group_name = [](const PlanGroup& g) { return "collective " + g.name; };
  const std::function<Nanos(const Plan&, const PlanGroup&)> collective = [&](const Plan& p, const PlanGroup& g) { return CollectiveCost(costs, p, g); };
  WEFT_RETURN_IF_ERROR(ask(costs.compute, plan.nodes, node_name, &by_node));
  WEFT_RETURN_IF_ERROR(ask(costs.transfer, plan.edges, edge_name, &by_edge));
  WEFT_RETURN_IF_ERROR(ask(collective, plan.groups, group_name, &by_group));
  WEFT_RETURN_IF_ERROR(ask(costs.latency, plan.edges, edge_name, &latency));
  WEFT_RETURN_IF_ERROR(ask(costs.read, plan.edges, edge_name, &read));
  WEFT_RETURN_IF_ERROR(ask(costs.first_call, plan.nodes, node_name, &first_node));
  WEFT_RETURN_IF_ERROR(ask(costs.first_transfer, plan.edges, edge_name, &first_edge));
  WEFT_RETURN_IF_ERROR(ask(costs.first_collective, plan.groups, group_name, &first_group));
  WEFT_RETURN_IF_ERROR(ask(costs.first_contact, plan.edges, edge_name, &contact));
  // Only the first edge of each connection pays for it.
  std::set<std::tuple<int32_t, int32_t, int32_t>> met;
  for (const PlanOp& o : plan.ops) {
    if (o.kind != v1::SEND && o.kind != v1::WRITE) continue;
    const PlanEdge& e = plan.edges[o.edge];
    if (contact[e.id] > 0 && met.emplace(e.transport, e.src_worker, e.dst_worker).second) first_edge[e.id] = Later(first_edge[e.id], contact[e.id]);
  }

  const int32_t ops = index_.num_ops();
  cost_.resize(ops);
  std::vector<Nanos> first(ops), write_latency(ops);
  tracked_.resize(ops);
  bool outputs = false;
  for (const PlanOp& o : plan.ops) {
    deps_at_.push_back(static_cast<int32_t>(deps_.size()));
    index_.ForEachDependency(o.id, [&](Dependency d) {
      // Over ipc the value stays where it is until the consumer has copied it: then the WRITE is over for those who wait for it.
      if (d.cause == Cause::kWait && IsIpcWrite(d.op)) d.op = index_.sink()[index_.op(d.op).edge];
      deps_.push_back(d);
    });
    if (o.kind == v1::COMPUTE) cost_[o.id] = by_node[o.node], first[o.id] = first_node[o.node];
    if (o.kind == v1::COLLECTIVE) cost_[o.id] = by_group[o.group], first[o.id] = first_group[o.group];
    // A buffered transfer takes its time on the sending side; READ finds the value there.
    if (IsRendezvousOp(o.kind) || o.kind == v1::WRITE) cost_[o.id] = by_edge[o.edge], first[o.id] = first_edge[o.edge];
    if (o.kind == v1::WRITE) write_latency[o.id] = latency[o.edge];
    if (o.kind == v1::READ) cost_[o.id] = read[o.edge];
    if (IsIpcWrite(o.id)) {
      cost_[o.id] = first[o.id] = 0;
    } else if (o.kind == v1::READ && index_.edge_of(o).transport == v1::IPC) {
      cost_[o.id] = Later(by_edge[o.edge], read[o.edge]);
      first[o.id] = first_edge[o.edge];
    }
    if (o.kind == v1::READ && index_.edge_of(o).src_worker != kClient && index_.source()[o.edge] < 0) {
      return absl::FailedPreconditionError(absl::StrCat(index_.Name(o.id), " reads an edge that no op writes"));
    }
    tracked_[o.id] = o.kind == v1::WRITE && index_.edge_of(o).dst_worker == kClient;
    outputs |= tracked_[o.id];
  }
  deps_at_.push_back(static_cast<int32_t>(deps_.size()));
  if (!outputs || barrier_) tracked_.assign(ops, true);
  const auto any = [](const std::vector<Nanos>& v) { return std::any_of(v.begin(), v.end(), [](Nanos t) { return t > 0; }); };
  if (any(first)) first_ = std::move(first);
  if (any(write_latency)) {
    latency_ = std::move(write_latency);
    there_.assign(ops, 0);
  }
  tracked_count_ = std::count(tracked_.begin(), tracked_.end(), true);

  const int32_t units = index_.num_units();
  unit_size_.resize(units);
  arrived_.assign(units, 0);
  unit_ops_at_.assign(units + 1, 0);
  for (int32_t i = 0; i < ops; ++i) ++unit_ops_at_[index_.unit_of(i) + 1];
  for (int32_t u = 0; u < units; ++u) unit_ops_at_[u + 1] += unit_ops_at_[u];
  std::vector<int32_t> next(unit_ops_at_.begin(), unit_ops_at_.end() - 1);
  unit_ops_.resize(ops);
  for (int32_t i = 0; i < ops; ++i) {
    unit_ops_[next[index_.unit_of(i)]++] = i;
    unit_size_[index_.unit_of(i)] = SizeOfUnit(i);
  }

  if (!costs.contention.empty()) {
    WEFT_RETURN_IF_ERROR(Slowdown::Check(costs.contention));
    slowdown_.emplace(index_, costs.contention, unit_ops_, unit_ops_at_);
  }

  lanes_.resize(index_.lanes().size());
  for (size_t l = 0; l < lanes_.size(); ++l) lanes_[l].cursor = deps_at_[Head(static_cast<int32_t>(l))];
  done_.assign(ops, 0);
  first_waiter_.assign(ops, -1);
  counts_.assign(std::min<int64_t>(in_flight_, n_), 0);
  admitted_ = std::min<int64_t>(in_flight_, n_);
  result_.execution_start.assign(n_, kEndOfTime);
  result_.execution_end.assign(n_, 0);
  result_.admitted.assign(n_, 0);
  result_.done.assign(n_, 0);
  if (fingerprint_) result_.fingerprint.assign(n_, 0);
  result_.busy.assign(plan.workers.size(), 0);
  result_.span.assign(plan.workers.size(), 0);
  compute_start_.assign(plan.workers.size(), kEndOfTime);
  compute_end_.assign(plan.workers.size(), 0);
  if (record_) result_.events.reserve(static_cast<size_t>(ops) * n_);
  return absl::OkStatus();
}

void Simulation::Look(int32_t l) {
  Lane& lane = lanes_[l];
  if (lane.issued || Finished(l)) return;
  if (lane.execution >= admitted_) {
    unadmitted_.push_back(l);
    return;
  }
  const int32_t end = deps_at_[Head(l) + 1];
  for (; lane.cursor < end; ++lane.cursor) {
    const Dependency& d = deps_[lane.cursor];
    if (Holds(d, lane.execution)) continue;
    lane.next_waiter = first_waiter_[d.op];
    first_waiter_[d.op] = l;
    return;
  }
  Issue(l);
}

void Simulation::Issue(int32_t l) {
  lanes_[l].issued = true;
  const int32_t op = Head(l);
  const int32_t unit = index_.unit_of(op);
  if (++arrived_[unit] < unit_size_[unit]) return;
  arrived_[unit] = 0;
  Start(unit, lanes_[l].execution == 0 && !first_.empty() ? Later(cost_[op], first_[op]) : cost_[op]);
}

void Simulation::Start(int32_t unit, Nanos cost) {
  if (!slowdown_) {
    ends_.push({Later(now_, cost), unit, now_});
    return;
  }
  slowdown_->Start(unit, now_, cost);
  for (const Slowdown::End& e : slowdown_->changed()) ends_.push({e.at, e.unit, e.start, e.version});
}

void Simulation::Finish(const End& end) {
  if (slowdown_) {
    slowdown_->Finish(end.unit, now_);
    for (const Slowdown::End& e : slowdown_->changed()) ends_.push({e.at, e.unit, e.start, e.version});
  }
  for (int32_t i = unit_ops_at_[end.unit]; i < unit_ops_at_[end.unit + 1]; ++i) FinishOp(unit_ops_[i], end);
}

void Simulation::Arrive(int32_t op) {
  const int64_t execution = there_[op]++;
  Wake(op);
  if (tracked_[op] && index_.edge_of(index_.op(op)).dst_worker == kClient) Count(execution);
}

void Simulation::Wake(int32_t op) {
  for (int32_t w = first_waiter_[op]; w >= 0; w = lanes_[w].next_waiter) look_.push_back(w);
  first_waiter_[op] = -1;
}

void Simulation::FinishOp(int32_t op, const End& end) {
  const PlanOp& o = index_.op(op);
  const int32_t l = index_.lane_of(op);
  Lane& lane = lanes_[l];
  const int64_t execution = lane.execution;
  if (record_) result_.events.push_back({op, execution, end.start, end.at});
  if (fingerprint_) result_.fingerprint[execution] += Mix(op, end.at - result_.admitted[execution]);
  result_.makespan = std::max(result_.makespan, end.at);
  result_.execution_start[execution] = std::min(result_.execution_start[execution], end.start);
  result_.execution_end[execution] = std::max(result_.execution_end[execution], end.at);
  if (o.lane == v1::LANE_COMPUTE) {
    result_.busy[o.worker] += end.at - end.start;
    compute_start_[o.worker] = std::min(compute_start_[o.worker], end.start);
    compute_end_[o.worker] = std::max(compute_end_[o.worker], end.at);
  }
  ++done_[op];
  if (!there_.empty() && (latency_[op] == 0 || end.at == kEndOfTime)) {
    ++there_[op];
  } else if (!there_.empty()) {
    ends_.push({Later(end.at, latency_[op]), -1 - op, end.at});
  }
  Wake(op);
  if (++lane.place == index_.lanes()[l].ops.size()) {
    lane.place = 0;
    ++lane.execution;
  }
  lane.issued = false;
  lane.cursor = deps_at_[Head(l)];
  look_.push_back(l);
  // A result is there when the client has it, which is also when it can ask for more.
  const bool arrives = !latency_.empty() && latency_[op] > 0 && end.at != kEndOfTime && index_.edge_of(o).dst_worker == kClient;
  if (tracked_[op] && !arrives) Count(execution);
}

// Executions become complete in order: each tracked op runs them in order.
void Simulation::Count(int64_t execution) {
  const int64_t ring = static_cast<int64_t>(counts_.size());
  ++counts_[execution % ring];
  while (complete_ < n_ && counts_[complete_ % ring] == tracked_count_) {
    counts_[complete_ % ring] = 0;
    result_.done[complete_++] = now_;
  }
  const int64_t admitted = std::min(n_, complete_ + in_flight_);
  if (admitted == admitted_) return;
  for (; admitted_ < admitted; ++admitted_) result_.admitted[admitted_] = now_;
  look_.insert(look_.end(), unadmitted_.begin(), unadmitted_.end());
  unadmitted_.clear();
}

absl::StatusOr<SimResult> Simulation::Run() {
  for (size_t l = lanes_.size(); l-- > 0;) look_.push_back(static_cast<int32_t>(l));
  while (true) {
    while (!look_.empty()) {
      const int32_t l = look_.back();
      look_.pop_back();
      Look(l);
    }
    if (ends_.empty()) break;
    const End end = ends_.top();
    ends_.pop();
    if (end.unit >= 0 && slowdown_ && !slowdown_->Holds(end.unit, end.version)) continue;
    now_ = end.at;
    if (end.unit < 0) {
      Arrive(-1 - end.unit);
    } else {
      Finish(end);
    }
  }
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (!Finished(static_cast<int32_t>(l))) return Standstill();
  }
  std::sort(result_.events.begin(), result_.events.end(), [](const SimEvent& a, const SimEvent& b) {
    return std::tie(a.start, a.op, a.execution) < std::tie(b.start, b.op, b.execution);
  });
  if (index_.num_ops() == 0) result_.execution_start.assign(n_, 0);
  for (size_t w = 0; w < result_.span.size(); ++w) result_.span[w] = std::max<Nanos>(0, compute_end_[w] - compute_start_[w]);
  const Nanos first = result_.done.front(), last = result_.done.back();
  result_.seconds_per_execution = n_ == 1 ? ToSeconds(result_.makespan) : ToSeconds(last - first) / static_cast<double>(n_ - 1);
  return std::move(result_);
}

std::string Simulation::WhyStuck(int32_t l) const {
  const Lane& lane = lanes_[l];
  if (lane.issued) {
    std::vector<std::string> missing;
    const int32_t unit = index_.unit_of(Head(l));
    for (int32_t i = unit_ops_at_[unit]; i < unit_ops_at_[unit + 1]; ++i) {
      const int32_t op = unit_ops_[i];
      const Lane& other = lanes_[index_.lane_of(op)];
      const bool there = other.issued && Head(index_.lane_of(op)) == op && other.execution == lane.execution;
      if (!there && missing.size() < 8) missing.push_back(index_.Name(op));
    }
    if (missing.empty()) return "is issued, but the plan lacks its other end";
    return absl::StrCat("is issued and waits for ", absl::StrJoin(missing, " and "));
  }
  if (lane.execution >= admitted_) {
    return absl::StrCat("is not admitted: execution ", lane.execution - in_flight_, " is not complete");
  }
  const Dependency& d = deps_[lane.cursor];
  const std::string what = absl::StrCat(index_.Name(d.op), " of execution ", lane.execution - d.distance);
  switch (d.cause) {
    case Cause::kValue:
      return absl::StrCat("waits for the value of ", what);
    case Cause::kCredit:
      return absl::StrCat("lacks a credit: all ", d.distance, " slots are taken until ", what);
    default:
      return absl::StrCat("waits for ", what, " (", v1::PlanWait::Reason_Name(d.reason), ")");
  }
}

absl::Status Simulation::Standstill() const {
  constexpr size_t kMaxLines = 100;
  std::string text = absl::StrCat("plan of graph \"", index_.plan().graph, "\" comes to a standstill after ", now_, " ns:");
  size_t lines = 0, more = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int32_t l = static_cast<int32_t>(i);
    if (Finished(l)) continue;
    if (lines == kMaxLines) {
      ++more;
      continue;
    }
    ++lines;
    const PlanLane& lane = index_.lanes()[l];
    absl::StrAppend(&text, "\n", WorkerName(index_.plan(), lane.worker), " ", LaneName(lane.kind, lane.index), ": ",
                    OpName(index_.plan(), index_.op(Head(l))), " of execution ", lanes_[l].execution, " ", WhyStuck(l));
  }
  if (more > 0) absl::StrAppend(&text, "\nand ", more, " more lanes");
  return absl::FailedPreconditionError(text);
}

}  // namespace

absl::StatusOr<SimResult> Simulate(const Plan& plan, const CostModel& costs, const SimOptions& options) {
  Findings findings;
  PlanIndex::Check(plan, &findings);
  WEFT_RETURN_IF_ERROR(findings.ToStatus(absl::StatusCode::kInvalidArgument, plan.graph));
  int32_t in_flight = options.in_flight;
  if (options.end_barrier) {
    in_flight = 1;
  } else if (in_flight == 0) {
    in_flight = plan.options.max_in_flight() > 0 ? plan.options.max_in_flight() : kDefaultInFlight;
  }
  if (options.executions < 1 || in_flight < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot simulate ", options.executions, " executions, ", in_flight, " in flight: both must be at least 1"));
  }
  constexpr int64_t kMaxExecutions = 100'000'000;
  const int64_t ops = std::max<int64_t>(1, static_cast<int64_t>(plan.ops.size()));
  if (options.executions > kMaxExecutions || (options.record && options.executions > kMaxEvents / ops)) {
    return absl::InvalidArgumentError(absl::StrCat("simulating ", options.executions, " executions of ", plan.ops.size(),
                                                   " ops is too much: at most ", kMaxExecutions, " executions, and ", kMaxEvents,
                                                   " events when they are recorded"));
  }
  const PlanIndex index(plan);
  Simulation simulation(index, options, in_flight);
  WEFT_RETURN_IF_ERROR(simulation.Prepare(costs));
  return simulation.Run();
}

}  // namespace weft
