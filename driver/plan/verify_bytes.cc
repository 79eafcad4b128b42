#include <algorithm>

#include "driver/plan/verify_rules.h"

namespace weft {
namespace {

// Bytes below this are summed exactly; more is as much too much as this.
constexpr uint64_t kHuge = uint64_t{1} << 62;

uint64_t Plus(uint64_t a, uint64_t b) { return std::min(kHuge, a + std::min(kHuge, b)); }
// slots <= 4096 and bytes <= 2^40 for specs that passed.
uint64_t OpBytes(const PlanIndex& index, const PlanOp& o) {
  uint64_t bytes = 0;
  switch (o.kind) {
    case v1::COMPUTE:
      for (const Spec& s : index.node_of(o).outputs) bytes = Plus(bytes, CheckedBytes(s).value_or(kHuge));
      break;
    case v1::RECV:
      bytes = CheckedBytes(index.edge_of(o).spec).value_or(kHuge);
      break;
    case v1::READ:
      // Memory that both ends share is the writer's; a GPU copies out of it.
      if (index.edge_of(o).transport == v1::REMOTE || ReadCopies(index.plan(), index.edge_of(o))) bytes = CheckedBytes(index.edge_of(o).spec).value_or(kHuge);
      break;
    case v1::WRITE:
      if (index.edge_of(o).transport != v1::REMOTE && index.edge_of(o).transport != v1::IPC &&
          index.plan().workers[o.worker].device != "cuda") {
        bytes = CheckedBytes(index.edge_of(o).spec).value_or(kHuge);
      }
      break;
    case v1::COLLECTIVE:
      bytes = CheckedBytes(index.group_of(o).output).value_or(kHuge);
      break;
    default:
      break;  // SEND reads its argument where it is
  }
  const uint64_t slots = static_cast<uint64_t>(o.kind == v1::WRITE ? index.edge_of(o).slots : o.slots);
  return bytes > kHuge / slots ? kHuge : bytes * slots;
}

}  // namespace

void CheckBytes(const PlanIndex& index, Findings* f) {
  const Plan& plan = index.plan();
  std::vector<uint64_t> peak(plan.workers.size());
  std::vector<int32_t> largest(plan.workers.size(), -1);
  std::vector<uint64_t> largest_bytes(plan.workers.size());
  for (const PlanOp& o : plan.ops) {
    const uint64_t bytes = OpBytes(index, o);
    peak[o.worker] = Plus(peak[o.worker], bytes);
    if (largest[o.worker] >= 0 && bytes <= largest_bytes[o.worker]) continue;
    largest[o.worker] = o.id;
    largest_bytes[o.worker] = bytes;
  }
  if (plan.peak_bytes.size() != plan.workers.size()) {
    f->Add("V6", "peak_bytes has ", plan.peak_bytes.size(), " entries for ", plan.workers.size(), " workers");
  }
  const uint64_t limit = plan.options.memory_limit_bytes();
  for (size_t w = 0; w < peak.size(); ++w) {
    if (w < plan.peak_bytes.size() && plan.peak_bytes[w] != peak[w]) {
      f->Add("V6", plan.workers[w].name, ": the plan states ", plan.peak_bytes[w], " bytes, its ops reserve ", peak[w]);
    }
    if (limit > 0 && peak[w] > limit) {
      f->Add("V6", plan.workers[w].name, ": ", peak[w], " bytes reserved, the limit is ", limit, "; the most, ", largest_bytes[w],
             ", by ", index.Name(largest[w]));
    }
  }
  if (limit == 0) return;
  for (const PlanOp& o : plan.ops) {
    bool dynamic = false;
    if (o.kind == v1::COMPUTE) {
      for (const Spec& s : index.node_of(o).outputs) dynamic |= s.shape.HasDynamic();
    } else if (o.kind == v1::READ || o.kind == v1::RECV) {
      dynamic = index.edge_of(o).spec.shape.HasDynamic();
    } else if (o.kind == v1::COLLECTIVE) {
      dynamic = index.group_of(o).output.shape.HasDynamic();
    }
    if (dynamic) f->Add("V6", index.Name(o.id), " makes a value with a ? dimension, whose bytes no limit can bound: declare ?<=n");
  }
}

}  // namespace weft
