#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/actor/actor.h"

namespace weft {

// Copies bytes of a device's memory, or puts that on the call's stream. The ranges do not overlap; never called for 0 bytes.
using BucketCopyFn = std::function<absl::Status(CallContext& ctx, void* to, const void* from, size_t bytes)>;

// Registers weft.Bucket, which no graph can name: what the compiler puts around collectives that it fuses or puts in the place of edges
// (driver/plan/buckets.h, broadcasts.h). It copies by what `for_device` gives for the actor's device.
void RegisterBucketClass(ActorRegistry* registry, std::function<absl::StatusOr<BucketCopyFn>(Device* device)> for_device);

}  // namespace weft
