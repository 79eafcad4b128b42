#include "common/session/edge_trial.h"

#include <memory>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

std::string Text(int32_t edge) { return absl::StrCat("trial of edge ", edge); }

}  // namespace

Value TrialValue(int32_t edge) {
  auto error = std::make_shared<TaskError>();
  error->worker = "bootstrap";
  error->node = "trial";
  error->execution = kTrialExecution;
  error->code = absl::StatusCode::kCancelled;
  error->message = Text(edge);
  Value value;
  value.error = std::move(error);
  return value;
}

absl::Status CheckTrialValue(const Value& value, int32_t edge, const std::string& name) {
  if (value.error == nullptr) {
    return absl::DataLossError(absl::StrCat(name, ": a value came where the trial message was due"));
  }
  const TaskError& e = *value.error;
  if (e.execution != kTrialExecution || e.message != Text(edge)) {
    return absl::DataLossError(absl::StrCat(name, ": instead of the trial message came \"", e.message, "\""));
  }
  return absl::OkStatus();
}

}  // namespace weft
