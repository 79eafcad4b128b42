#include "worker/run/device_errors.h"

#include <utility>

namespace weft {
namespace {

constexpr int kCodeShift = 56;
constexpr int kNodeShift = 32;
constexpr uint64_t kNodeMask = 0xFFFFFF;
constexpr uint64_t kExecutionMask = 0xFFFFFFFF;

}  // namespace

DeviceErrors::DeviceErrors(Plan part) : part_(std::move(part)) {
  for (const PlanNode& n : part_.nodes) nodes_.emplace(n.name, n.id);
}

TaskErrorRef DeviceErrors::ErrorOf(uint64_t word) const {
  auto error = std::make_shared<TaskError>();
  error->execution = static_cast<int64_t>(word & kExecutionMask);
  error->code = static_cast<absl::StatusCode>(word >> kCodeShift);
  const uint64_t id = word >> kNodeShift & kNodeMask;
  if (id == kNoNode) {
    error->worker = "a host";
    error->node = "(no node)";
    error->message =
        "a value came to a GPU as an error that no node of the graph has made, such as an input's; the worker that took it knows its text";
    return error;
  }
  const PlanNode* const node = FindNode(part_, static_cast<int32_t>(id));
  if (node == nullptr) return nullptr;
  const PlanActor* const actor = FindActor(part_, node->actor);
  error->worker = WorkerName(part_, actor == nullptr ? -2 : actor->worker);
  error->node = node->name;
  error->message = !node->config.message().empty() ? node->config.message() : node->device_error;
  return error;
}

uint64_t DeviceErrors::WordOf(const TaskError& error) const {
  const auto node = nodes_.find(error.node);
  const uint64_t id = node == nodes_.end() ? kNoNode : static_cast<uint64_t>(node->second) & kNodeMask;
  const auto code = error.code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : error.code;
  return static_cast<uint64_t>(code) << kCodeShift | id << kNodeShift | (static_cast<uint64_t>(error.execution) & kExecutionMask);
}

}  // namespace weft
