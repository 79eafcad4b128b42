#pragma once

#include "absl/status/status.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/tensor/tensor.h"

namespace weft {

// What a port also is that can make ready beforehand for where its edge's values will lie.
class PlannedPlaces {
 public:
  virtual ~PlannedPlaces() = default;

  // One of the places from which the edge's values will be sent, or to which they come: once for each of the plan's buffers, before execution 0, by the
  // thread that makes the graph. `status` is where a value's status word will lie; nullptr when it has none. Values may still come to lie elsewhere.
  // What is learned of a broken device or communicator, with the edge's name.
  virtual absl::Status Plan(const Tensor& place, DeviceStatus* status) = 0;
};

}  // namespace weft
