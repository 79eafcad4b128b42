#include "common/channel/shm/hub.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/channel/header.h"
#include "common/channel/shm/wire.h"

namespace weft {

using shm::Got;
using shm::Hello;
using shm::OwnedFd;
using shm::Reply;

namespace {

constexpr uint64_t kListenId = 0;
constexpr uint64_t kWakeId = 1;
constexpr uint64_t kFirstConnection = 2;
// Readers that wait and segments together. More than any machine has worker pairs; keeps a broken peer from taking all descriptors.
constexpr size_t kMaxConnections = 16384;
// While the process is out of descriptors the listener is left alone for so long.
constexpr int kAcceptPauseMs = 100;

void Signal(int eventfd) {
  const uint64_t one = 1;
  // The counter never fills up, and whoever waits looks at a flag.
  (void)!write(eventfd, &one, sizeof one);
}

absl::Status CheckKey(const std::string& key) {
  if (!key.empty() && key.size() <= shm::kMaxKey) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a key of shared memory has 1 to ", shm::kMaxKey, " bytes, not ", key.size()));
}

bool Watch(int epoll, int fd, uint64_t id) {
  epoll_event e = {};
  e.events = EPOLLIN | EPOLLRDHUP;
  e.data.u64 = id;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmHub>> ShmHub::Create(Doorbell* own_doorbell) {
  if (own_doorbell == nullptr || own_doorbell->fd() < 0) {
    return absl::InvalidArgumentError("shared memory needs a doorbell that other processes can map: Doorbell::Create");
  }
  const auto fail = [](const char* what) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", what, " for shared memory: ", strerror(errno)));
  };
  const std::string address = absl::StrCat("@weft-", getpid(), "-", NewIncarnation());
  sockaddr_un name;
  unsigned length = 0;
  WEFT_RETURN_IF_ERROR(shm::ParseAddress(address, &name, &length));
  OwnedFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0 || bind(listener.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 ||
      listen(listener.get(), 1024) != 0) {
    return fail("socket");
  }
  OwnedFd epoll(epoll_create1(EPOLL_CLOEXEC));
  OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (epoll.get() < 0 || wake.get() < 0 || !Watch(epoll.get(), listener.get(), kListenId) || !Watch(epoll.get(), wake.get(), kWakeId)) {
    return fail("descriptors");
  }
  std::unique_ptr<ShmHub> hub(new ShmHub(own_doorbell, std::move(listener), std::move(epoll), std::move(wake), address));
  try {
    hub->thread_ = std::thread([h = hub.get()] { h->Loop(); });
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread for shared memory: ", e.what()));
  }
  return hub;
}

ShmHub::ShmHub(Doorbell* own, OwnedFd listener, OwnedFd epoll, OwnedFd wake, std::string address)
    : own_doorbell_(own),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      address_(std::move(address)),
      next_id_(kFirstConnection) {}

ShmHub::~ShmHub() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  Signal(wake_.get());
  if (thread_.joinable()) thread_.join();
  MutexLock lock(&mu_);
  const absl::Status cause = absl::CancelledError("the process shuts its shared memory down");
  for (auto& [id, c] : connections_) {
    if (const auto segment = c.segment.lock()) segment->Close(cause);
    shutdown(c.socket->get(), SHUT_RDWR);
  }
  for (auto& [key, weak] : exports_) {
    if (const auto segment = weak.lock()) segment->Close(cause);
  }
}

absl::StatusOr<std::shared_ptr<ShmSegment>> ShmHub::Export(const std::string& key, std::vector<ShmEdgeSpec> edges, uint64_t plan_hash) {
  WEFT_RETURN_IF_ERROR(CheckKey(key));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<ShmSegment> segment, ShmSegment::CreateWriter(std::move(edges), plan_hash, own_doorbell_));
  MutexLock lock(&mu_);
  // Keys of segments that are gone are forgotten on this occasion.
  for (auto it = exports_.begin(); it != exports_.end();) it = it->second.expired() ? exports_.erase(it) : std::next(it);
  if (!exports_.emplace(key, segment).second) {
    return absl::AlreadyExistsError(absl::StrCat("shared memory is exported as \"", key, "\" already"));
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& c = it->second;
    if (!c.bound && c.greeted && c.key == key && !Serve(&c, segment)) {
      shutdown(c.socket->get(), SHUT_RDWR);
      it = connections_.erase(it);
    } else {
      ++it;
    }
  }
  return segment;
}

void ShmHub::Withdraw(const std::string& key) {
  MutexLock lock(&mu_);
  exports_.erase(key);
  for (PendingImport* p : imports_) {
    if (p->key != key) continue;
    p->withdrawn = true;
    Signal(p->wake.get());
  }
}

bool ShmHub::Withdrawn(const PendingImport& pending) {
  MutexLock lock(&mu_);
  return pending.withdrawn;
}

bool ShmHub::Serve(Connection* c, const std::shared_ptr<ShmSegment>& segment) {
  Reply reply;
  // Attached before it is told: from then on it may rely on being rung.
  const absl::Status s = segment->AttachPeer(std::move(c->doorbell), c->socket, c->pid);
  if (!s.ok()) {
    reply.code = static_cast<int32_t>(s.code());
    const std::string text(s.message());
    std::memcpy(reply.message, text.data(), std::min(text.size(), sizeof reply.message - 1));
    (void)shm::SendPacket(c->socket->get(), &reply, sizeof reply, {});
    return false;
  }
  c->segment = segment;
  c->bound = true;
  const absl::Status sent = shm::SendPacket(c->socket->get(), &reply, sizeof reply, {segment->fd_.get(), own_doorbell_->fd()});
  if (!sent.ok()) {
    segment->PeerGone(std::string(sent.message()));
    return false;
  }
  own_doorbell_->Ring();
  return true;
}

bool ShmHub::Add(Connection c) {
  if (connections_.size() >= kMaxConnections) return false;
  const uint64_t id = next_id_++;
  const int fd = c.socket->get();
  connections_.emplace(id, std::move(c));
  if (Watch(epoll_.get(), fd, id)) return true;
  connections_.erase(id);
  return false;
}

void ShmHub::Loop() {
  epoll_event events[64];
  bool accept = false;
  for (;;) {
    const int n = epoll_wait(epoll_.get(), events, 64, -1);
    if (n < 0 && errno != EINTR) {
      spdlog::error("shared memory: epoll failed: {}; deaths of peers are not noticed any more", strerror(errno));
      return;
    }
    accept = false;
    for (int i = 0; i < n; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kWakeId) {
        MutexLock lock(&mu_);
        if (stop_) return;
      } else if (id == kListenId) {
        accept = true;
      } else {
        HandleConnection(id, events[i].events);
      }
    }
    if (accept) Accept();
  }
}

void ShmHub::Accept() {
  for (;;) {
    auto fd = std::make_shared<OwnedFd>(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd->get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory: the listener stays readable, so this thread must not turn in circles.
      spdlog::debug("shared memory: cannot accept: {}", strerror(errno));
      pollfd wait = {wake_.get(), POLLIN, 0};
      poll(&wait, 1, kAcceptPauseMs);
      return;
    }
    const absl::StatusOr<int> pid = shm::CheckPeer(fd->get());
    if (!pid.ok()) {
      spdlog::debug("shared memory: refused: {}", std::string(pid.status().message()));
      continue;
    }
    Connection c;
    c.socket = std::move(fd);
    c.pid = *pid;
    MutexLock lock(&mu_);
    if (!Add(std::move(c))) spdlog::debug("shared memory: refused process {}: too many connections", *pid);
  }
}

void ShmHub::HandleConnection(uint64_t id, uint32_t events) {
  MutexLock lock(&mu_);
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Connection& c = it->second;
  bool keep = true;
  if (!c.greeted && !c.bound) {
    keep = TakeHello(&c);
  } else if ((events & EPOLLIN) != 0) {
    // Nothing more is to come. What does is read and forgotten, descriptors included.
    char junk[64];
    size_t bytes = 0;
    std::vector<OwnedFd> fds;
    if (shm::ReceivePacket(c.socket->get(), junk, sizeof junk, &bytes, &fds) == Got::kPacket) {
      spdlog::debug("shared memory: {} unexpected bytes of process {}", bytes, c.pid);
    }
  }
  if (keep && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) return;
  if (const std::shared_ptr<ShmSegment> segment = c.segment.lock()) {
    segment->PeerGone("its process ended or closed the connection");
  }
  shutdown(c.socket->get(), SHUT_RDWR);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c.socket->get(), nullptr);  // a segment may keep the descriptor open
  connections_.erase(it);
}

bool ShmHub::TakeHello(Connection* c) {
  Hello hello;
  size_t bytes = 0;
  std::vector<OwnedFd> fds;
  switch (shm::ReceivePacket(c->socket->get(), &hello, sizeof hello, &bytes, &fds)) {
    case Got::kNothing:
      return true;
    case Got::kEnd:
      return false;
    case Got::kPacket:
      break;
  }
  const bool sane = bytes == sizeof hello && hello.magic == Hello::kMagic && hello.version == shm::kSegmentVersion &&
                    hello.key_bytes >= 1 && hello.key_bytes <= shm::kMaxKey && fds.size() == 1;
  if (!sane) {
    spdlog::debug("shared memory: {} bytes of process {} are no request", bytes, c->pid);
    return false;
  }
  absl::StatusOr<std::unique_ptr<Doorbell>> doorbell = Doorbell::Attach(fds[0].release());
  if (!doorbell.ok()) {
    spdlog::debug("shared memory: process {}: {}", c->pid, std::string(doorbell.status().message()));
    return false;
  }
  c->greeted = true;
  c->doorbell = *std::move(doorbell);
  c->key.assign(hello.key, hello.key_bytes);
  const auto found = exports_.find(c->key);
  const std::shared_ptr<ShmSegment> segment = found == exports_.end() ? nullptr : found->second.lock();
  return segment == nullptr || Serve(c, segment);
}

}  // namespace weft
