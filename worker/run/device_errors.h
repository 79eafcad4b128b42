#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/channel/header.h"
#include "common/plan/plan.h"

namespace weft {

// Errors of tasks as the status words that values in device memory carry (DeviceStatus::word: code << 56 | node << 32 | low half of the
// execution), and back. What a word cannot hold comes from the plan: the node's worker and what it says. Immutable; shared by threads.
class DeviceErrors {
 public:
  // Stands for whoever is no node of the plan: the client, or an edge that failed.
  static constexpr uint64_t kNoNode = 0xFFFFFF;

  // `part` names the nodes whose errors come as words (PartOf).
  explicit DeviceErrors(Plan part);

  // nullptr when the plan does not know the node.
  TaskErrorRef ErrorOf(uint64_t word) const;
  // Never 0.
  uint64_t WordOf(const TaskError& error) const;

 private:
  const Plan part_;
  std::unordered_map<std::string, int32_t> nodes_;  // by name
};

}  // namespace weft
