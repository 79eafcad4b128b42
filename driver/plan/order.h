#pragma once

// Pass 5: one global linear order of everything that a plan does. Worker lists and lane queues are its projections.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/plan/lower.h"

namespace weft {

enum class StepKind : uint8_t {
  kTake,      // stands for R of a task that receives nothing; no op
  kRun,       // COMPUTE of a task that is a node
  kGive,      // stands for W of a task that sends nothing; no op
  kExchange,  // SEND and RECV of a rendezvous transfer, at one instant
  kWrite,     // WRITE of a buffered transfer
  kRead,      // READ of a buffered transfer
  kGroup,     // COLLECTIVE on all members, at one instant
};

struct Step {
  StepKind kind = StepKind::kRun;
  int32_t index = 0;  // of the task, transfer or collective
  bool operator==(const Step&) const = default;
};

// Takes, again and again, the step with the smallest key (not communication, place in its worker's program, id) of those whose
// predecessors all stand already; communication is kExchange and kGroup. A receive also waits until every task that stands more than
// Transfer::depth before its own in the worker's program has placed its last step, unless nothing else can be placed.
// O(n log n). InvalidArgument only when program order and values contradict each other: names the tasks of one circle.
absl::StatusOr<std::vector<Step>> OrderSteps(const Program& program);

}  // namespace weft
