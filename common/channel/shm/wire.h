#pragma once

// What crosses the socket between two hubs: one packet each way, then the connection only stays open. SOCK_SEQPACKET, fixed sizes.

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel/shm/segment.h"

namespace weft::shm {

constexpr size_t kMaxKey = 255;

// Reader to writer, with the reader's doorbell.
struct Hello {
  static constexpr uint64_t kMagic = 0x316f6c65'74666577;  // "weftelo1"
  uint64_t magic = kMagic;
  uint32_t version = kSegmentVersion;
  uint32_t key_bytes = 0;
  char key[256] = {};
};

// Writer to reader, with the segment and the writer's doorbell when code is 0.
struct Reply {
  static constexpr uint64_t kMagic = 0x31796c70'74666577;  // "weftply1"
  uint64_t magic = kMagic;
  uint32_t version = kSegmentVersion;
  int32_t code = 0;
  char message[512] = {};
};

// Sends one packet without blocking. Unavailable when the other end is gone or takes nothing.
absl::Status SendPacket(int socket, const void* data, size_t bytes, const std::vector<int>& fds);

enum class Got { kPacket, kNothing, kEnd };
// Receives one packet without blocking: at most `capacity` bytes, `*bytes` says how many came (or more, when it was longer), and at
// most four descriptors. Descriptors that came are owned by `fds` whatever else is wrong.
Got ReceivePacket(int socket, void* data, size_t capacity, size_t* bytes, std::vector<OwnedFd>* fds);

// Process at the other end; PermissionDenied when it runs as another user.
absl::StatusOr<int> CheckPeer(int socket);

// "@weft-..." as an abstract socket address; InvalidArgument for any other text. `*length` is what bind and connect want.
absl::Status ParseAddress(const std::string& address, sockaddr_un* out, unsigned* length);

}  // namespace weft::shm
