#pragma once

// What goes ahead of a value on an ipc edge: it lies in a slot of shared memory that both processes have page-locked, so that both CPUs and
// both GPUs reach it.
//
// The producer's CPU fills it and sends it over a shm edge as soon as the WRITE is issued, long before the value is there. The producer's
// stream sets `ready` behind the kernel that makes the value; the consumer's stream waits for it before its copy. So no CPU stands between
// the two kernels, and yet every transfer has been announced on the host, with its size or the error in its place.
//
// In captured iterations (options.launch GRAPH) the device does all of it: the announcement is written once, at bootstrap, for each
// variant, and the two flags hand the producer's buffer back and forth.

#include <cstdint>

#include "absl/status/status.h"
#include "common/channel/shm/edge_spec.h"
#include "common/tensor/shape.h"
#include "common/tensor/tensor.h"

namespace weft {

struct alignas(64) IpcAnnouncement {
  static constexpr uint64_t kNoStatus = ~uint64_t{0};

  // 0, then 1 by the producer's stream (or by whoever ends a wait for good). Captured iterations: 0 again by the consumer's stream.
  uint32_t ready = 0;
  // Captured iterations: 1 by the consumer's stream when the value is copied, 0 by the producer's before it writes the buffer again.
  uint32_t free = 1;
  // Slot 0 only: the process that has the producer's memory open, 0 when it has closed it. Written by the consumer's CPU.
  uint32_t opened_by = 0;
  // Of the value and of its status word, in the producer's allocation.
  uint64_t offset = 0;
  uint64_t status_offset = kNoStatus;
  uint64_t bytes = 0;
  int32_t dtype = 0;
  int32_t rank = 0;
  int64_t dims[kMaxRank] = {};
};

// The shm edge that carries the announcements of `edge`: same id, credits and ends.
ShmEdgeSpec AnnouncementEdge(const ShmEdgeSpec& edge);

// For captured iterations: announces in `slot`, which no one reads yet, that the value of a variant always lies at `offset` of the
// producer's allocation and its status word, if any, at `status_offset`. The edge's shape, that of `spec`, is fixed.
void PresetAnnouncement(const Spec& spec, uint64_t offset, uint64_t status_offset, void* slot);

// What the consumer makes of one: dtype and dims that fit the edge and its bytes, and lie within the producer's allocation of `limit`
// bytes. DataLoss or OutOfRange say what does not. `a` is a copy: the other process may change the original.
absl::Status CheckAnnouncement(const IpcAnnouncement& a, const ShmEdgeSpec& edge, uint64_t limit, Dims* dims);

}  // namespace weft
