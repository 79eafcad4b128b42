#include "common/channel/shm/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/channel/header.h"

namespace weft::shm {
namespace {

constexpr size_t kMaxFds = 4;

union Control {
  char data[CMSG_SPACE(sizeof(int) * kMaxFds)];
  cmsghdr align;
};

}  // namespace

absl::Status SendPacket(int socket, const void* data, size_t bytes, const std::vector<int>& fds) {
  iovec iov = {const_cast<void*>(data), bytes};
  Control control = {};
  msghdr msg = {};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  if (!fds.empty()) {
    msg.msg_control = control.data;
    msg.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("that process is gone or takes nothing: ", strerror(errno)));
}

Got ReceivePacket(int socket, void* data, size_t capacity, size_t* bytes, std::vector<OwnedFd>* fds) {
  iovec iov = {data, capacity};
  Control control = {};
  msghdr msg = {};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control.data;
  msg.msg_controllen = sizeof control.data;
  ssize_t n;
  do {
    n = recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Got::kNothing : Got::kEnd;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
  *bytes = static_cast<size_t>(n);
  return n == 0 ? Got::kEnd : Got::kPacket;
}

absl::StatusOr<int> CheckPeer(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::UnavailableError(absl::StrCat("nobody is at the other end of the socket: ", strerror(errno)));
  }
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("process ", peer.pid, " runs as user ", peer.uid, ", this one as ", geteuid(),
                                                    ": workers of one host share memory only as one user"));
  }
  return static_cast<int>(peer.pid);
}

absl::Status ParseAddress(const std::string& address, sockaddr_un* out, unsigned* length) {
  *out = {};
  if (address.size() < 2 || address[0] != '@' || address.size() > sizeof out->sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("\"", SafeText(address.data(), std::min<size_t>(address.size(), 100)),
                                                   "\" is no address of a process's shared memory: they begin with '@'"));
  }
  out->sun_family = AF_UNIX;
  std::memcpy(out->sun_path + 1, address.data() + 1, address.size() - 1);  // the leading zero makes it abstract: no file anywhere
  *length = static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + address.size());
  return absl::OkStatus();
}

}  // namespace weft::shm
