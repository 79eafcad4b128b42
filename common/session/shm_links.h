#pragma once

// The client's ends of a graph's shared memory: to each worker of this host one segment (also without an input edge, since it carries
// admission), from each worker that gives outputs one.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/channel/shm/hub.h"
#include "common/plan/plan.h"
#include "common/session/session_core.h"

namespace weft {

class ShmClientLinks {
 public:
  // `workers`: those of this host that have a part in the graph, by plan index. `hub` and `plan` outlive it.
  ShmClientLinks(ShmHub* hub, const Plan* plan, std::string attempt, std::vector<int32_t> workers);
  // Withdraws what was exported and not closed yet.
  ~ShmClientLinks();

  // Phase 1: exports what the workers import.
  absl::Status Export();
  // Phase 2: imports the segments of workers with outputs. Blocks, at most until `deadline` (Clock::Real). `addresses` by plan index.
  // Errors name the worker.
  absl::Status Import(const std::vector<std::string>& addresses, Nanos deadline);
  // Ends an Import under way.
  void Withdraw();

  // After Import.
  absl::StatusOr<std::unique_ptr<SendPort>> InputPort(const PlanEdge& edge) const;
  absl::StatusOr<std::unique_ptr<RecvPort>> OutputPort(const PlanEdge& edge) const;
  std::unique_ptr<AdmissionLink> Link(int32_t worker) const;

 private:
  ShmHub* const hub_;
  const Plan* const plan_;
  const std::string attempt_;
  const std::vector<int32_t> workers_;
  std::vector<std::string> import_keys_;
  std::map<int32_t, std::shared_ptr<ShmSegment>> to_;
  std::map<int32_t, std::shared_ptr<ShmSegment>> from_;
};

}  // namespace weft
