#pragma once

// A plan with everything looked up once: what the verifier's rules and the simulator read. Built only from plans whose indices are
// all in range, so that those who use it need no further checks to be safe on any plan.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"
#include "driver/plan/verify_findings.h"

namespace weft {

// The queue of one lane: its ops in the plan's order.
struct PlanLane {
  int32_t worker = 0;
  LaneKind kind = v1::LANE_KIND_UNSPECIFIED;
  int32_t index = 0;
  std::vector<int32_t> ops;
};

// Why an op needs another one first.
enum class Cause : uint8_t {
  kWait,    // a wait of the plan
  kLane,    // stands before it on its lane
  kValue,   // READ: the WRITE of its edge
  kCredit,  // WRITE: a reader of the edge's value, `slots` executions ago
};

// Execution k of an op needs execution k - distance of `op`.
struct Dependency {
  int32_t op = -1;
  int32_t distance = 0;
  Cause cause = Cause::kWait;
  WaitReason reason = v1::PlanWait::DATA;  // kWait only
};

class PlanIndex {
 public:
  // Finds every index, enum and size that later code relies on. With a finding, no PlanIndex may be made of the plan.
  static void Check(const Plan& plan, Findings* findings);

  // `plan` must have passed Check, and outlive this.
  explicit PlanIndex(const Plan& plan);

  const Plan& plan() const { return *plan_; }
  const PlanOp& op(int32_t i) const { return plan_->ops[i]; }
  int32_t num_ops() const { return static_cast<int32_t>(plan_->ops.size()); }

  // What an op speaks of; only of kinds that have one.
  const PlanNode& node_of(const PlanOp& op) const { return plan_->nodes[op.node]; }
  const PlanActor& actor_of(const PlanNode& node) const { return plan_->actors[node.actor]; }
  const PlanEdge& edge_of(const PlanOp& op) const { return plan_->edges[op.edge]; }
  const PlanGroup& group_of(const PlanOp& op) const { return plan_->groups[op.group]; }

  // First op of each role, -1 without: COMPUTE of a node, WRITE or SEND and READ or RECV of an edge, COLLECTIVE of a group's rank.
  const std::vector<int32_t>& compute() const { return compute_; }
  const std::vector<int32_t>& source() const { return source_; }
  const std::vector<int32_t>& sink() const { return sink_; }
  const std::vector<std::vector<int32_t>>& members() const { return members_; }
  // Rank of a worker in a group; -1: not a member.
  int32_t RankOf(int32_t group, int32_t worker) const;

  const std::vector<PlanLane>& lanes() const { return lanes_; }
  int32_t lane_of(int32_t op) const { return lane_of_[op]; }
  int32_t place_in_lane(int32_t op) const { return place_in_lane_[op]; }

  // Ops that take a value of `op` as an argument, or only wait for it by a CONTROL wait of distance 0; each once.
  struct Range {
    const int32_t* first;
    const int32_t* last;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
    bool empty() const { return first == last; }
  };
  Range readers(int32_t op) const { return {readers_.data() + readers_at_[op], readers_.data() + readers_at_[op + 1]}; }

  // Those of them that take it as an argument.
  Range takers(int32_t op) const { return {readers_.data() + readers_at_[op], readers_.data() + takers_end_[op]}; }

  // The ops that must run at one instant are one unit: both ends of a rendezvous transfer, all members of a collective; any other op is a
  // unit of its own.
  int32_t num_units() const { return num_units_; }
  int32_t unit_of(int32_t op) const { return unit_of_[op]; }

  // Everything that `op` needs besides its place in its lane, admission and the other ends of its unit.
  template <typename F>
  void ForEachDependency(int32_t i, F f) const {
    const PlanOp& o = op(i);
    for (const PlanWait& w : o.waits) f(Dependency{w.op, w.distance, Cause::kWait, w.reason});
    if (o.kind == v1::READ) {
      const int32_t write = source_[o.edge];
      if (write >= 0) f(Dependency{write, 0, Cause::kValue});
      // The client too writes into a slot only when it is free.
      if (edge_of(o).src_worker == kClient) {
        for (const int32_t reader : readers(i)) f(Dependency{reader, edge_of(o).slots, Cause::kCredit});
      }
    } else if (o.kind == v1::RECV) {
      // Values have BUFFER waits; what a control edge brings is held by those that wait for it.
      if (edge_of(o).control) {
        for (const int32_t reader : readers(i)) f(Dependency{reader, edge_of(o).slots, Cause::kCredit});
      }
    } else if (o.kind == v1::WRITE) {
      // The slot of execution k comes back when all readers of READ's value are done with it; without readers, when READ is.
      const int32_t read = sink_[o.edge];
      if (read < 0 || edge_of(o).dst_worker == kClient) return;
      const int32_t slots = edge_of(o).slots;
      const Range r = readers(read);
      for (const int32_t reader : r) f(Dependency{reader, slots, Cause::kCredit});
      if (r.empty()) f(Dependency{read, slots, Cause::kCredit});
    }
  }

  // What a value is; nullptr when the op makes no such output.
  const Spec* SpecOf(const PlanValue& value) const;

  // "w0: SEND a:0 -> b:0".
  std::string Name(int32_t op) const;

 private:
  void IndexLanes();
  void IndexReaders();
  void IndexUnits();

  const Plan* plan_;
  std::vector<int32_t> compute_, source_, sink_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> ranks_;  // by group: (worker, rank), sorted
  std::vector<PlanLane> lanes_;
  std::vector<int32_t> lane_of_, place_in_lane_;
  std::vector<int32_t> readers_, readers_at_, takers_end_;
  std::vector<int32_t> unit_of_;
  int32_t num_units_ = 0;
};

inline bool IsRendezvousOp(OpKind kind) { return kind == v1::SEND || kind == v1::RECV; }
inline bool IsTransferOp(OpKind kind) { return IsRendezvousOp(kind) || kind == v1::READ || kind == v1::WRITE; }

}  // namespace weft
