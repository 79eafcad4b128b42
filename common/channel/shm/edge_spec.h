#pragma once

// One edge as its two ports see it, and what every buffered or emulated port does in the same way. Plain data and functions.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/channel/header.h"
#include "common/channel/port.h"
#include "common/tensor/shape.h"

namespace weft {

struct ShmEdgeSpec {
  // PlanEdge::id.
  int32_t edge = -1;
  // Credits: values that may be under way or held by the reader at once.
  int32_t slots = 1;
  // Payload bytes reserved for a slot; 0: what comes decides (shapes with `?`), or nothing ever comes (control edges).
  uint64_t bytes = 0;
  Spec spec;
  // For messages: "edge make0:0 -> square0:0 (w0 -> w3)". At most 191 bytes cross to the other process.
  std::string name;
  std::string src_worker, dst_worker;
  // The transfer starts when both ends have issued it, and lasts latency_s + bytes / bandwidth (bytes/s, 0: unlimited).
  bool rendezvous = false;
  double latency_s = 0;
  double bandwidth = 0;
};

// InvalidArgument names the edge and field: slots, bytes, a latency or bandwidth that is negative or not finite.
absl::Status CheckEdgeSpec(const ShmEdgeSpec& spec);

// Its name, or "edge 5 (w0 -> w3)" without one.
std::string EdgeLabel(const ShmEdgeSpec& spec);

// How long the emulated link takes for so many bytes.
Nanos TransferTime(const ShmEdgeSpec& spec, uint64_t bytes);
// a + b, or the latest time there is.
Nanos SaturatingAdd(Nanos a, Nanos b);

// Whether the edge takes this value: OutOfRange names the edge, what came and what is declared.
absl::Status CheckSendable(const ShmEdgeSpec& spec, const Value& value);

// What the receiver gets in a value's place when `status` kept the value from it.
TaskErrorRef EdgeError(const ShmEdgeSpec& spec, int64_t execution, const absl::Status& status);

}  // namespace weft
