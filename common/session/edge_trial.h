#pragma once

// The message that every planned edge carries once at bootstrap, ahead of execution 0: an error value, since that fits every edge
// whatever its dtype, shape and size. Both ends know what it must say.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/channel/port.h"

namespace weft {

constexpr int64_t kTrialExecution = -1;

Value TrialValue(int32_t edge);

// What was received as execution kTrialExecution. `name` is the edge's for the message. DataLoss says what came instead.
absl::Status CheckTrialValue(const Value& value, int32_t edge, const std::string& name);

}  // namespace weft
