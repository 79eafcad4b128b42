#pragma once

// Pass 7: how many buffers each value has, who must be done before one is written again, and how many bytes that takes.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/plan/plan.h"
#include "driver/plan/compiler.h"
#include "driver/plan/transport.h"

namespace weft {

// What bounds the planned bytes of each worker: options.memory_limit_bytes and ClusterWorker::memory_bytes, the smaller where both do.
class MemoryLimits {
 public:
  MemoryLimits(const v1::Options& options, const Cluster& cluster);

  bool any() const { return any_; }
  // Of a worker; 0: none.
  uint64_t of(size_t worker) const { return limits_[worker]; }
  bool Fits(const Plan& plan) const;
  // "options.memory_limit_bytes allows 9215".
  std::string Allows(size_t worker) const;

 private:
  std::vector<uint64_t> limits_;
  uint64_t of_graph_ = 0;
  bool any_ = false;
};

// Sets slots of edges and ops, adds the BUFFER waits and fills peak_bytes. `compute_overlaps`: whether the graph overlaps as a whole.
// With limits, buffers beyond the first are given up, the largest first, until every worker is within it (those of
// client edges stay: admission relies on them). ResourceExhausted when that is not enough: names the worker, its largest op and the bytes.
// InvalidArgument: a limit together with `?` dimensions, whose bytes no one knows.
absl::Status PlanMemory(const std::vector<EdgeInfo>& info, bool compute_overlaps, const MemoryLimits& limits, Plan* plan);

// Bytes that an op's buffers take on its worker: COMPUTE and COLLECTIVE their outputs; RECV, and READ from another host, what is received;
// WRITE to memory that both ends share, that memory, since the writer makes it. Slots included; saturates at 2^62. 0 for `?` dimensions.
uint64_t ReservedBytes(const Plan& plan, const PlanOp& op);

}  // namespace weft
