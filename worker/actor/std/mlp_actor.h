#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/actor/actor.h"
#include "worker/actor/std/mlp_math.h"

namespace weft {

// std.Mlp on whatever device `math` is for. Weights, gradients and all slots are allocated here; calls allocate nothing but their outputs.
// InvalidArgument: the config; ResourceExhausted: no memory.
absl::StatusOr<std::unique_ptr<Actor>> MakeMlpActor(const v1::Config& config, std::unique_ptr<MlpMath> math);

}  // namespace weft
