#pragma once

#include <functional>

#include "common/channel/header.h"

namespace weft {

// Turns the status word behind a value (DeviceStatus::word, not 0) into the error that it stands for. Made by whoever knows the plan.
using DeviceErrorFn = std::function<TaskErrorRef(uint64_t word)>;

}  // namespace weft
