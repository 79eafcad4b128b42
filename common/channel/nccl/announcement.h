#pragma once

// What goes ahead of every transfer over NCCL, through a host channel: the receiver launches nothing before it has it, so that no kernel waits
// for what may never come, and both ends know what moves.

#include <cstddef>
#include <cstdint>

#include "common/channel/header.h"
#include "common/channel/shm/edge_spec.h"

namespace weft {

struct NcclAnnouncement {
  static constexpr uint32_t kHasStatus = 1;  // the value's status word (DeviceStatus) comes in the same transfer

  // Counts the transfers of the link that move anything on the device, in the order in which they are launched; only then is it used.
  uint64_t transfer = 0;
  uint32_t flags = 0;
  uint32_t unused = 0;
  // The value's, or the error in its place. The host channel's own header is another one, and an error of its own means that the ends are out of
  // step, which is why a poisoned value's error travels in here.
  MessageHeader header;
};
static_assert(sizeof(NcclAnnouncement) == 16 + sizeof(MessageHeader));

// Without an error its texts stay behind.
constexpr size_t kNcclShortAnnouncement = offsetof(NcclAnnouncement, header) + offsetof(MessageHeader, error_execution);

// How the host channel sees the announcements of an edge over NCCL: an edge of the same number, slots and ends.
ShmEdgeSpec NcclHeaderSpec(const ShmEdgeSpec& edge);

}  // namespace weft
