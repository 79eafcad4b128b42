#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/fill.h"
#include "worker/actor/actor.h"

namespace weft {

// Fills an output, or puts that on the call's stream.
using FillFn = std::function<absl::Status(CallContext& ctx, const Fill& fill, uint64_t seed, ExecutionNumber execution, const Tensor& out)>;

// Registers std.Source and std.Constant, which fill their outputs by what `for_device` gives for the actor's device.
void RegisterSourceClasses(ActorRegistry* registry, const std::function<absl::StatusOr<FillFn>(Device* device)>& for_device);

}  // namespace weft
