#include "worker/session/device_budget.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {

DeviceBudget::Need DeviceBudget::Of(const Plan& part, int max_ctas) {
  std::set<std::pair<int, int>> lanes, nccl;
  for (const PlanOp& op : part.ops) {
    if (op.worker != part.part_of) continue;
    const std::pair<int, int> lane = {op.lane, op.lane_index};
    lanes.insert(lane);
    const PlanEdge* const edge = op.edge >= 0 ? FindEdge(part, op.edge) : nullptr;
    const PlanGroup* const group = op.group >= 0 ? FindGroup(part, op.group) : nullptr;
    if ((edge != nullptr && edge->transport == v1::NCCL) || (group != nullptr && group->transport == v1::NCCL)) nccl.insert(lane);
  }
  return {static_cast<int>(nccl.size()), max_ctas, static_cast<int>(lanes.size())};
}

class DeviceBudget::Reservation {
 public:
  Reservation(DeviceBudget* budget, int64_t id) : budget_(budget), id_(id) {}
  ~Reservation() { budget_->Release(id_); }

 private:
  DeviceBudget* const budget_;
  const int64_t id_;
};

void DeviceBudget::Release(int64_t id) {
  MutexLock lock(&mu_);
  taken_.erase(id);
}

absl::StatusOr<std::shared_ptr<void>> DeviceBudget::Reserve(const std::string& graph, const std::string& worker, const Need& need) {
  MutexLock lock(&mu_);
  const int ctas = need.nccl_lanes * need.max_ctas;
  int taken_ctas = 0, taken_streams = 0;
  std::string who_ctas, who_streams;
  for (const auto& [id, t] : taken_) {
    taken_ctas += t.ctas;
    taken_streams += t.streams;
    if (t.ctas > 0) absl::StrAppend(&who_ctas, who_ctas.empty() ? " by " : ", ", "graph ", t.graph, " (", t.ctas, ")");
    if (t.streams > 0) absl::StrAppend(&who_streams, who_streams.empty() ? " by " : ", ", "graph ", t.graph, " (", t.streams, ")");
  }
  if (taken_ctas + ctas > limits_.ctas) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "graph ", graph, " on ", worker, " has ", need.nccl_lanes, " lanes with NCCL kernels of up to ", need.max_ctas, " CTAs, ", ctas,
        " together; of the ", limits_.ctas, " that NCCL may have on this GPU (half of its ", limits_.sm_count, " SMs) ", taken_ctas, " are taken",
        who_ctas, ": lower the worker's --nccl-max-ctas or the graph's send_lanes, recv_lanes and collective_lanes, use IPC edges, or remove a graph"));
  }
  if (taken_streams + need.streams > limits_.streams) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "graph ", graph, " on ", worker, " has ", need.streams, " lanes, a CUDA stream each; of the ", limits_.streams,
        " that the GPU can run at once (CUDA_DEVICE_MAX_CONNECTIONS) ", taken_streams, " are taken", who_streams,
        ": lower the graph's lanes, or remove a graph"));
  }
  const int64_t id = next_++;
  taken_[id] = {graph, ctas, need.streams};
  return std::shared_ptr<void>(std::make_shared<Reservation>(this, id));
}

}  // namespace weft
