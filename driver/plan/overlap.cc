#include "driver/plan/overlap.h"

#include <algorithm>

namespace weft {
namespace {

// What has been met on one worker, walking along its list.
struct WorkerState {
  int32_t compute = -1;                                // nearest COMPUTE before
  int32_t last_compute = -1;                           // of the whole list
  int32_t send[3 * kMaxLanes];                         // nearest blocking send by lane, then collective by lane, then copy by lane
  int32_t last_send[3 * kMaxLanes];                    // of the whole list
  int32_t waited_compute[3 * kMaxLanes];               // COMPUTE for which a receive lane waits already, then collective, then copy lanes
  int32_t waited_send[3 * kMaxLanes];                  // send for which the compute lane waits already

  WorkerState() {
    std::fill(std::begin(send), std::end(send), -1);
    std::fill(std::begin(last_send), std::end(last_send), -1);
    // Not -1: "none before it" too must be told apart from "nothing waited for yet".
    std::fill(std::begin(waited_compute), std::end(waited_compute), -2);
    std::fill(std::begin(waited_send), std::end(waited_send), -2);
  }
};

class Waits {
 public:
  Waits(const std::vector<EdgeInfo>& info, bool collectives_overlap, Plan* plan)
      : info_(info), collectives_overlap_(collectives_overlap), plan_(plan), state_(plan->workers.size()) {}

  void Run() {
    for (const PlanOp& op : plan_->ops) {
      WorkerState& s = state_[op.worker];
      if (op.kind == v1::COMPUTE) s.last_compute = op.id;
      if (BlocksCompute(op)) s.last_send[Slot(op)] = op.id;
    }
    for (PlanOp& op : plan_->ops) {
      WorkerState& s = state_[op.worker];
      if (op.kind == v1::COMPUTE) {
        HoldCompute(&s, &op);
        s.compute = op.id;
      }
      if (WaitsForCompute(op)) HoldTransfer(&s, &op);
      if (BlocksCompute(op)) s.send[Slot(op)] = op.id;
    }
  }

 private:
  static bool IsIn(const PlanOp& op) { return op.kind == v1::RECV || op.kind == v1::READ; }
  static bool IsOut(const PlanOp& op) { return op.kind == v1::SEND || op.kind == v1::WRITE; }
  bool BlockingGroup(const PlanOp& op) const { return op.kind == v1::COLLECTIVE && !collectives_overlap_; }
  bool WaitsForCompute(const PlanOp& op) const { return (IsIn(op) && !info_[op.edge].overlap) || BlockingGroup(op); }
  bool BlocksCompute(const PlanOp& op) const {
    // Over ipc the producer moves nothing: its WRITE is over when the consumer has taken the value, and waiting for that could be for ever.
    if (IsOut(op) && plan_->edges[op.edge].transport == v1::IPC) return false;
    return (IsOut(op) && !info_[op.edge].overlap) || BlockingGroup(op);
  }
  static int32_t Slot(const PlanOp& op) {
    return op.lane_index + (op.kind == v1::COLLECTIVE ? kMaxLanes : op.lane == v1::LANE_COPY ? 2 * kMaxLanes : 0);
  }

  static void Add(PlanOp* op, int32_t on, int32_t distance) {
    for (const PlanWait& w : op->waits) {
      if (w.op == on && w.distance == distance) return;
    }
    op->waits.push_back({on, distance, v1::PlanWait::NO_OVERLAP});
  }

  // A lane runs in order, so what an op before this one waited for holds for this one too.
  void HoldTransfer(WorkerState* s, PlanOp* op) {
    int32_t* waited = &s->waited_compute[Slot(*op)];
    if (*waited == s->compute) return;
    *waited = s->compute;
    if (s->compute >= 0) {
      Add(op, s->compute, 0);
    } else if (s->last_compute >= 0) {
      Add(op, s->last_compute, 1);
    }
  }

  void HoldCompute(WorkerState* s, PlanOp* op) {
    for (int32_t i = 0; i < 3 * kMaxLanes; ++i) {
      if (s->last_send[i] < 0 || s->waited_send[i] == s->send[i]) continue;
      s->waited_send[i] = s->send[i];
      if (s->send[i] >= 0) {
        Add(op, s->send[i], 0);
      } else {
        Add(op, s->last_send[i], 1);
      }
    }
  }

  const std::vector<EdgeInfo>& info_;
  const bool collectives_overlap_;
  Plan* const plan_;
  std::vector<WorkerState> state_;
};

}  // namespace

void AddOverlapWaits(const std::vector<EdgeInfo>& info, bool collectives_overlap, Plan* plan) {
  Waits(info, collectives_overlap, plan).Run();
}

}  // namespace weft
