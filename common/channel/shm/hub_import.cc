// The reader's side of ShmHub: runs on the caller's thread, which may block until its deadline.

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/header.h"
#include "common/channel/shm/hub.h"
#include "common/channel/shm/wire.h"

namespace weft {

using shm::Got;
using shm::Hello;
using shm::OwnedFd;
using shm::Reply;

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmHub::Import(const std::string& address, const std::string& key, Nanos deadline,
                                                           const std::function<absl::Status()>& interrupted) {
  if (key.empty() || key.size() > shm::kMaxKey) {
    return absl::InvalidArgumentError(absl::StrCat("a key of shared memory has 1 to ", shm::kMaxKey, " bytes, not ", key.size()));
  }
  sockaddr_un name;
  unsigned length = 0;
  WEFT_RETURN_IF_ERROR(shm::ParseAddress(address, &name, &length));
  const std::string what = absl::StrCat("shared memory \"", key, "\" of ", address);
  const auto late = [&] { return absl::DeadlineExceededError(absl::StrCat(what, " was not exported in time: is that worker alive?")); };

  // A connect blocks only while the other end's queue of connections is full; bounded all the same.
  auto socket = std::make_shared<OwnedFd>(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  PendingImport pending;
  pending.key = key;
  pending.wake = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (socket->get() < 0 || pending.wake.get() < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no descriptors to import ", what, ": ", strerror(errno)));
  }
  const Nanos left = deadline - Clock::Real()->Now();
  if (left <= 0) return late();
  const Nanos step = std::min<Nanos>(left, 3600 * kNanosPerSecond);
  timeval limit = {step / kNanosPerSecond, std::max<Nanos>(1, step % kNanosPerSecond / 1000)};
  setsockopt(socket->get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int rc;
  do {
    rc = connect(socket->get(), reinterpret_cast<sockaddr*>(&name), length);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    if (errno == EAGAIN) return late();
    return absl::UnavailableError(absl::StrCat(what, ": no process is there (", strerror(errno), ")"));
  }
  const auto named = [&](const absl::Status& s) {
    return s.ok() ? s : absl::Status(s.code(), absl::StrCat(what, ": ", std::string(s.message())));
  };
  const absl::StatusOr<int> peer = shm::CheckPeer(socket->get());
  if (!peer.ok()) return named(peer.status());
  const int pid = *peer;
  Hello hello;
  hello.key_bytes = static_cast<uint32_t>(key.size());
  std::memcpy(hello.key, key.data(), key.size());
  WEFT_RETURN_IF_ERROR(named(shm::SendPacket(socket->get(), &hello, sizeof hello, {own_doorbell_->fd()})));

  {
    MutexLock lock(&mu_);
    imports_.push_back(&pending);
  }
  std::unique_ptr<Doorbell> doorbell;
  absl::StatusOr<std::shared_ptr<ShmSegment>> segment = AwaitReply(socket->get(), pid, what, &pending, deadline, interrupted, &doorbell);
  MutexLock lock(&mu_);
  imports_.erase(std::find(imports_.begin(), imports_.end(), &pending));
  if (!segment.ok()) return segment;
  WEFT_RETURN_IF_ERROR((*segment)->AttachPeer(std::move(doorbell), socket, pid));
  Connection c;
  c.socket = std::move(socket);
  c.pid = pid;
  c.bound = true;
  c.segment = *segment;
  if (!Add(std::move(c))) return absl::ResourceExhaustedError(absl::StrCat(what, ": this process has too many connections"));
  return segment;
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmHub::AwaitReply(int socket, int pid, const std::string& what, PendingImport* pending,
                                                               Nanos deadline, const std::function<absl::Status()>& interrupted,
                                                               std::unique_ptr<Doorbell>* doorbell) {
  for (;;) {
    if (Withdrawn(*pending)) return absl::CancelledError(absl::StrCat(what, ": the import was withdrawn"));
    Reply reply;
    size_t bytes = 0;
    std::vector<OwnedFd> fds;
    const Got got = shm::ReceivePacket(socket, &reply, sizeof reply, &bytes, &fds);
    if (got == Got::kEnd) return absl::UnavailableError(absl::StrCat(what, ": process ", pid, " ended or refused"));
    if (got == Got::kPacket) {
      if (bytes != sizeof reply || reply.magic != Reply::kMagic || reply.version != shm::kSegmentVersion) {
        return absl::DataLossError(absl::StrCat(what, ": process ", pid, " answered with something else: is it of the same release?"));
      }
      if (reply.code != 0) {
        const bool known = reply.code > 0 && reply.code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
        return absl::Status(known ? static_cast<absl::StatusCode>(reply.code) : absl::StatusCode::kUnknown,
                            absl::StrCat(what, ": ", SafeText(reply.message, sizeof reply.message)));
      }
      if (fds.size() != 2) return absl::DataLossError(absl::StrCat(what, ": process ", pid, " passed no memory"));
      absl::StatusOr<std::unique_ptr<Doorbell>> bell = Doorbell::Attach(fds[1].release());
      if (!bell.ok()) return absl::DataLossError(absl::StrCat(what, ": ", std::string(bell.status().message())));
      *doorbell = *std::move(bell);
      absl::StatusOr<std::shared_ptr<ShmSegment>> segment = ShmSegment::OpenReader(std::move(fds[0]), own_doorbell_);
      if (segment.ok()) return segment;
      return absl::Status(segment.status().code(), absl::StrCat(what, ": ", std::string(segment.status().message())));
    }
    const Nanos left = deadline - Clock::Real()->Now();
    if (left <= 0) return absl::DeadlineExceededError(absl::StrCat(what, " was not exported in time: is that worker alive?"));
    if (interrupted) WEFT_RETURN_IF_ERROR(interrupted());
    pollfd waits[2] = {{socket, POLLIN, 0}, {pending->wake.get(), POLLIN, 0}};
    // Rounded up, so that it does not turn in circles before the deadline.
    poll(waits, 2, static_cast<int>(std::min<Nanos>(left / 1'000'000 + 1, interrupted ? 100 : 1'000'000)));
  }
}

}  // namespace weft
