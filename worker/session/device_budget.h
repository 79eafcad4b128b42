#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/plan/plan.h"

namespace weft {

// What the graphs on one GPU may take of it together. NCCL's kernels wait on the device for their peers: were there more of them than fit at
// once, those that run could wait for ever for one that does not. And streams beyond the hardware's queues share one, in which a transfer
// stands behind the kernel of another lane. So a graph that does not fit is refused when it is loaded. Thread-safe; outlives what it reserved.
class DeviceBudget {
 public:
  struct Limits {
    int sm_count = 0;    // for messages
    int ctas = 0;        // of NCCL kernels at once
    int streams = 0;     // CUDA_DEVICE_MAX_CONNECTIONS
  };
  // Half of the SMs for NCCL: the other half always computes.
  static Limits Default(int sm_count, int streams) { return {sm_count, sm_count / 2, streams}; }

  struct Need {
    int nccl_lanes = 0;  // lanes with transfers or collectives over NCCL: each has at most one such kernel at a time
    int max_ctas = 0;    // of one kernel
    int streams = 0;     // lanes
  };
  // Of a worker's part of a plan.
  static Need Of(const Plan& part, int max_ctas);

  explicit DeviceBudget(const Limits& limits) : limits_(limits) {}

  // Given back with the last reference. ResourceExhausted with the numbers, who has what, and what to do.
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& graph, const std::string& worker, const Need& need);

 private:
  class Reservation;
  void Release(int64_t id);

  const Limits limits_;
  Mutex mu_;
  int64_t next_ WEFT_GUARDED_BY(mu_) = 0;
  struct Taken {
    std::string graph;
    int ctas = 0;
    int streams = 0;
  };
  std::map<int64_t, Taken> taken_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
