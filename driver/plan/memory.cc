#include "driver/plan/memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 62;

uint64_t Plus(uint64_t a, uint64_t b) { return std::min(kHuge, a + std::min(kHuge, b)); }

int32_t SlotsOf(const Plan& plan, const PlanOp& op) { return op.edge >= 0 ? plan.edges[op.edge].slots : op.slots; }

void SetDefaultSlots(const std::vector<EdgeInfo>& info, bool compute_overlaps, Plan* plan) {
  const int32_t depth = compute_overlaps ? plan->options.prefetch_depth() : 0;
  for (size_t e = 0; e < plan->edges.size(); ++e) {
    PlanEdge& edge = plan->edges[e];
    edge.slots = info[e].depth + 1;
    if (edge.src_worker == kClient || edge.dst_worker == kClient) {
      edge.slots = std::max(edge.slots, plan->options.max_in_flight());
    }
    edge.slots = std::clamp(edge.slots, 1, kMaxSlots);
  }
  for (PlanOp& op : plan->ops) {
    if (op.kind == v1::COMPUTE || op.kind == v1::COLLECTIVE) op.slots = std::clamp(depth + 1, 1, kMaxSlots);
    // What an edge prefetches, its producer must be able to make ahead.
    if ((op.kind == v1::SEND || op.kind == v1::WRITE) && !op.args.empty()) {
      int32_t& slots = plan->ops[op.args[0].op].slots;
      slots = std::max(slots, std::min(info[op.edge].depth + 1, kMaxSlots));
    }
  }
}

void CopyEdgeSlots(Plan* plan) {
  for (PlanOp& op : plan->ops) {
    if (op.kind == v1::READ || op.kind == v1::RECV) op.slots = plan->edges[op.edge].slots;
  }
}

void FillPeak(Plan* plan) {
  plan->peak_bytes.assign(plan->workers.size(), 0);
  for (const PlanOp& op : plan->ops) plan->peak_bytes[op.worker] = Plus(plan->peak_bytes[op.worker], ReservedBytes(*plan, op));
}

bool IsDynamic(const std::vector<Spec>& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const Spec& s) { return s.shape.HasDynamic(); });
}

absl::Status RefuseDynamic(const MemoryLimits& limits, const Plan& plan) {
  for (const PlanOp& op : plan.ops) {
    if (limits.of(op.worker) == 0) continue;
    bool dynamic = false;
    if (op.kind == v1::COMPUTE) dynamic = IsDynamic(plan.nodes[op.node].outputs);
    if (op.kind == v1::COLLECTIVE) dynamic = plan.groups[op.group].output.shape.HasDynamic();
    if (op.edge >= 0) dynamic = plan.edges[op.edge].spec.shape.HasDynamic();
    if (!dynamic) continue;
    return absl::InvalidArgumentError(absl::StrCat(limits.Allows(op.worker), " bytes, but ", OpName(plan, op), " on ",
                                                   WorkerName(plan, op.worker), " has a \"?\" dimension, whose bytes no limit can bound: declare it \"?<=n\", or "
                                                   "leave the limit out"));
  }
  return absl::OkStatus();
}

// Takes slots from the worker's largest buffers until it is within the limit, or has one of each left.
void Shrink(int32_t worker, const std::vector<int32_t>& ops, uint64_t limit, Plan* plan) {
  std::vector<std::pair<uint64_t, int32_t>> largest;
  for (const int32_t i : ops) {
    const PlanOp& op = plan->ops[i];
    if (op.edge >= 0 && (plan->edges[op.edge].src_worker == kClient || plan->edges[op.edge].dst_worker == kClient)) continue;
    const uint64_t bytes = BufferBytes(*plan, op);
    if (bytes > 0 && SlotsOf(*plan, op) > 1) largest.push_back({bytes, i});
  }
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  uint64_t peak = plan->peak_bytes[worker];
  const bool countable = peak < kHuge;  // a sum that saturated cannot be counted down
  for (const auto& [bytes, i] : largest) {
    if (peak <= limit) return;
    PlanOp& op = plan->ops[i];
    int32_t& slots = op.edge >= 0 ? plan->edges[op.edge].slots : op.slots;
    if (!countable) {
      slots = 1;
      continue;
    }
    const uint64_t wanted = (peak - limit + bytes - 1) / bytes;
    const int32_t taken = static_cast<int32_t>(std::min<uint64_t>(wanted, slots - 1));
    slots -= taken;
    peak -= bytes * taken;
  }
}

bool Exceeds(uint64_t bytes, uint64_t limit) { return limit > 0 && bytes > limit; }

absl::Status MeetLimits(const MemoryLimits& limits, Plan* plan) {
  std::vector<std::vector<int32_t>> ops(plan->workers.size());
  for (const PlanOp& op : plan->ops) ops[op.worker].push_back(op.id);
  for (size_t w = 0; w < plan->workers.size(); ++w) {
    if (Exceeds(plan->peak_bytes[w], limits.of(w))) Shrink(static_cast<int32_t>(w), ops[w], limits.of(w), plan);
  }
  FillPeak(plan);
  std::string text;
  for (size_t w = 0; w < plan->workers.size(); ++w) {
    if (!Exceeds(plan->peak_bytes[w], limits.of(w))) continue;
    const PlanOp* largest = nullptr;
    for (const int32_t i : ops[w]) {
      const PlanOp& op = plan->ops[i];
      if (largest == nullptr || ReservedBytes(*plan, op) > ReservedBytes(*plan, *largest)) largest = &op;
    }
    absl::StrAppend(&text, text.empty() ? "" : "\n", plan->workers[w].name, " needs ", FormatBytes(plan->peak_bytes[w]), " (",
                    plan->peak_bytes[w], " bytes) even with the fewest buffers, ", limits.Allows(w), "; the most, ", ReservedBytes(*plan, *largest), " bytes, goes to ", OpName(*plan, *largest),
                    ": raise the limit, use more workers or smaller tensors, or (edges of the client) lower max_in_flight");
  }
  return text.empty() ? absl::OkStatus() : absl::ResourceExhaustedError(text);
}

// A buffer is written again only when all its readers of `slots` executions ago are done. What a READ yields without
// a copy is released through the edge.
void AddBufferWaits(Plan* plan) {
  for (const PlanOp& op : plan->ops) {
    for (const PlanValue& v : op.args) {
      PlanOp& producer = plan->ops[v.op];
      if (producer.kind == v1::READ && !ReadCopies(*plan, plan->edges[producer.edge])) continue;
      // A reader that takes several values of one producer comes here again at once.
      if (!producer.waits.empty() && producer.waits.back() == PlanWait{op.id, producer.slots, v1::PlanWait::BUFFER}) continue;
      producer.waits.push_back({op.id, producer.slots, v1::PlanWait::BUFFER});
    }
  }
}

}  // namespace

uint64_t ReservedBytes(const Plan& plan, const PlanOp& op) {
  const uint64_t bytes = BufferBytes(plan, op);
  const uint64_t slots = static_cast<uint64_t>(std::max(SlotsOf(plan, op), 1));
  return bytes > kHuge / slots ? kHuge : bytes * slots;
}

MemoryLimits::MemoryLimits(const v1::Options& options, const Cluster& cluster) : of_graph_(options.memory_limit_bytes()) {
  for (const ClusterWorker& w : cluster.workers) {
    limits_.push_back(of_graph_ == 0 ? w.memory_bytes : w.memory_bytes == 0 ? of_graph_ : std::min(of_graph_, w.memory_bytes));
    any_ |= limits_.back() > 0;
  }
}

bool MemoryLimits::Fits(const Plan& plan) const {
  for (size_t w = 0; w < limits_.size(); ++w) {
    if (Exceeds(plan.peak_bytes[w], limits_[w])) return false;
  }
  return true;
}

std::string MemoryLimits::Allows(size_t worker) const {
  const bool of_graph = limits_[worker] == of_graph_;
  return absl::StrCat(of_graph ? "options.memory_limit_bytes" : "memory_bytes of the worker in the cluster file", " allows ", limits_[worker]);
}

absl::Status PlanMemory(const std::vector<EdgeInfo>& info, bool compute_overlaps, const MemoryLimits& limits, Plan* plan) {
  SetDefaultSlots(info, compute_overlaps, plan);
  FillPeak(plan);
  if (limits.any()) {
    WEFT_RETURN_IF_ERROR(RefuseDynamic(limits, *plan));
    WEFT_RETURN_IF_ERROR(MeetLimits(limits, plan));
  }
  CopyEdgeSlots(plan);
  AddBufferWaits(plan);
  return absl::OkStatus();
}

}  // namespace weft
