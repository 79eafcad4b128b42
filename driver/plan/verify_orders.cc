#include <map>
#include <tuple>

#include "driver/plan/verify_cycles.h"
#include "driver/plan/verify_rules.h"

namespace weft {
namespace {

constexpr size_t kMaxCycles = 5;

// One communicator's direction: a pair of workers and of lanes, since every lane has communicators of its own.
using PairKey = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t>;

struct PairSequences {
  std::vector<int32_t> sends, recvs;  // edges by position, in each end's order
};

void CheckPairs(const PlanIndex& index, Findings* f) {
  std::map<PairKey, PairSequences> pairs;
  for (const PlanOp& o : index.plan().ops) {
    if (!IsRendezvousOp(o.kind)) continue;
    const int32_t e = o.edge;
    const int32_t send = index.source()[e], recv = index.sink()[e];
    if (send < 0 || recv < 0 || (o.id != send && o.id != recv)) continue;  // V7 reports these
    const PlanOp &s = index.op(send), &r = index.op(recv);
    PairSequences& p = pairs[{index.edge_of(o).transport, s.worker, r.worker, s.lane_index, r.lane_index}];
    (o.id == send ? p.sends : p.recvs).push_back(e);
  }
  for (const auto& [key, p] : pairs) {
    for (size_t i = 0; i < p.sends.size() && i < p.recvs.size(); ++i) {
      if (p.sends[i] == p.recvs[i]) continue;
      const int32_t transport = std::get<0>(key);
      f->Add("V1", "transfers of ", v1::Transport_IsValid(transport) ? v1::Transport_Name(static_cast<v1::Transport>(transport)) : "?",
             " from ", WorkerName(index.plan(), std::get<1>(key)), " to ", WorkerName(index.plan(), std::get<2>(key)), ": number ", i,
             " is sent by ", index.Name(index.source()[p.sends[i]]), " but received by ", index.Name(index.sink()[p.recvs[i]]),
             "; both ends must have the same order");
      break;
    }
  }
}

// Circles in the union of all workers' launch orders, of the ops that `takes` chooses.
template <typename Takes>
std::vector<Cycle> OrderCycles(const PlanIndex& index, Takes takes) {
  NeedsTable table;
  table.at.reserve(index.num_ops() + 1);
  std::vector<int32_t> unit_of(index.num_ops());
  std::vector<int32_t> last(index.plan().workers.size(), -1);
  for (const PlanOp& o : index.plan().ops) {
    table.at.push_back(static_cast<int32_t>(table.needs.size()));
    unit_of[o.id] = index.unit_of(o.id);
    if (!takes(o)) continue;
    if (last[o.worker] >= 0) table.needs.push_back(last[o.worker]);
    last[o.worker] = o.id;
  }
  table.at.push_back(static_cast<int32_t>(table.needs.size()));
  return FindCycles(unit_of, index.num_units(), table, kMaxCycles);
}

void ReportOrderCycles(const PlanIndex& index, const char* rule, const char* what, const std::vector<Cycle>& cycles, Findings* f) {
  constexpr size_t kMaxSteps = 20;
  for (const Cycle& cycle : cycles) {
    std::string text = what;
    for (size_t i = 0; i < cycle.size(); ++i) {
      const CycleStep& s = cycle[i];
      if (i == kMaxSteps) {
        absl::StrAppend(&text, "; and ", cycle.size() - i, " more");
        break;
      }
      absl::StrAppend(&text, i == 0 ? ": " : "; ", WorkerName(index.plan(), index.op(s.op).worker), " has ",
                      OpName(index.plan(), index.op(s.needs)), " before ", OpName(index.plan(), index.op(s.op)));
    }
    f->Add(rule, text, "; no single order fits all of them");
  }
}

bool IsIpcWrite(const PlanIndex& index, int32_t op) {
  const PlanOp& o = index.op(op);
  return o.kind == v1::WRITE && index.edge_of(o).transport == v1::IPC && index.sink()[o.edge] >= 0;
}

std::string WhyNeeded(const PlanIndex& index, int32_t op, int32_t needs) {
  std::string why = "before it on its lane";
  index.ForEachDependency(op, [&](const Dependency& d) {
    if (d.distance == 0 && IsIpcWrite(index, d.op) && index.sink()[index.op(d.op).edge] == needs) {
      why = absl::StrCat("which alone ends ", index.Name(d.op), ", for which there is a ", v1::PlanWait::Reason_Name(d.reason),
                         " wait of the plan");
    }
    if (d.op != needs || d.distance != 0) return;
    why = d.cause == Cause::kValue ? "whose value it takes"
                                   : absl::StrCat("a ", v1::PlanWait::Reason_Name(d.reason), " wait of the plan");
  });
  return why;
}

std::string CycleText(const PlanIndex& index, const Cycle& cycle) {
  constexpr size_t kMaxSteps = 30;
  std::string text = "these ops wait for each other for ever, in every execution:";
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (i == kMaxSteps) {
      absl::StrAppend(&text, "\n     and ", cycle.size() - i, " more");
      break;
    }
    const CycleStep& s = cycle[i];
    absl::StrAppend(&text, "\n     ", index.Name(s.op), " waits for ", index.Name(s.needs), ", ", WhyNeeded(index, s.op, s.needs));
    const int32_t next = cycle[(i + 1) % cycle.size()].op;
    if (next == s.needs) continue;
    absl::StrAppend(&text, "\n     ", index.Name(s.needs), " waits for ", index.Name(next), ", ",
                    index.op(next).kind == v1::COLLECTIVE ? "another member of its collective" : "its other end");
  }
  return text;
}

}  // namespace

void CheckOrders(const PlanIndex& index, Findings* f) {
  CheckPairs(index, f);
  ReportOrderCycles(index, "V2", "collectives are in different orders", OrderCycles(index, [](const PlanOp& o) {
                      return o.kind == v1::COLLECTIVE;
                    }),
                    f);
  ReportOrderCycles(index, "V3", "workers launch transfers and collectives in different orders", OrderCycles(index, [](const PlanOp& o) {
                      return o.kind == v1::COLLECTIVE || IsRendezvousOp(o.kind);
                    }),
                    f);
}

// Why an acyclic graph of zero-distance edges is enough, for any number of executions, any number in flight, and any times:
//
// Write (u, k) for unit u in execution k. A unit is what must run at one instant: an op, both ends of a rendezvous transfer, all members
// of a collective. (u, k) can run once its ops are issued, and an op is issued once
//   a. the op before it on its lane is done: in the same execution, or, for the first of the lane, the lane's last op of execution k - 1.
//      Lanes hold an execution's ops in the plan's order and all of k before any of k + 1, because the plan lists every op once and the
//      lane's queue is that list, repeated;
//   b. its waits hold: an op of execution k - distance is done;
//   c. READ: WRITE of the same execution is done; WRITE: the readers of execution k - slots are done. Ends at the client never hold
//      anything up: a READ's value is there when its execution is admitted, and the client takes what is written at once;
//   d. execution k is admitted, which needs execution k - in_flight to be complete, in_flight >= 1;
//   e. a wait for a WRITE over ipc: its READ is done, since the value stays where it is until the consumer has copied it.
// So (u, k) depends only on (v, k) along an edge of distance zero - the lane's predecessor, a wait of distance 0, WRITE of a READ - or on
// some (v, j) with j < k, since every other edge carries tokens: its distance (or slots, or in_flight, or 1 at the lane's border) is at
// least one, which PlanIndex::Check and CheckDefinitions make sure of. Order the pairs by k first, and within one execution by a
// topological order of the zero-distance edges, which exists because they have no circle. Every pair then depends on smaller pairs only,
// and only finitely many of them; by induction each runs. Executions that never come are larger than all that have, so nothing admitted
// waits for them. Conversely a circle of zero-distance edges can never run, already in execution 0.
void CheckLiveness(const PlanIndex& index, Findings* f) {
  NeedsTable table;
  table.at.reserve(index.num_ops() + 1);
  std::vector<int32_t> unit_of(index.num_ops());
  for (int32_t i = 0; i < index.num_ops(); ++i) {
    table.at.push_back(static_cast<int32_t>(table.needs.size()));
    unit_of[i] = index.unit_of(i);
    if (index.place_in_lane(i) > 0) table.needs.push_back(index.lanes()[index.lane_of(i)].ops[index.place_in_lane(i) - 1]);
    index.ForEachDependency(i, [&](const Dependency& d) {
      if (d.distance != 0) return;
      table.needs.push_back(d.op);
      // e.
      if (IsIpcWrite(index, d.op) && d.cause == Cause::kWait) table.needs.push_back(index.sink()[index.op(d.op).edge]);
    });
  }
  table.at.push_back(static_cast<int32_t>(table.needs.size()));
  for (const Cycle& cycle : FindCycles(unit_of, index.num_units(), table, kMaxCycles)) f->Add("V4", CycleText(index, cycle));
}

}  // namespace weft
