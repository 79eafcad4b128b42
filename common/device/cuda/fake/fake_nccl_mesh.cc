#include "common/device/cuda/fake/fake_nccl_mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "common/device/cuda/api/nccl_api.h"

namespace weft {
namespace {

constexpr uint32_t kMagic = 0x4e434c46;
constexpr int kNapMs = 1;

enum Type : uint32_t { kReady = 1, kData = 2, kRefused = 3 };

struct Hello {
  uint32_t magic;
  int32_t ranks, rank, unused;
};

socklen_t Address(const std::string& name, int rank, sockaddr_un* out) {
  *out = sockaddr_un{};
  out->sun_family = AF_UNIX;
  const std::string full = name + "-" + std::to_string(rank);
  std::memcpy(out->sun_path + 1, full.data(), full.size());  // the zero before makes it abstract: nothing is left of it after a crash
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + full.size());
}

int NewSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

struct FakeNcclMesh::Lane {
  struct Out {
    Header head;
    const char* data;
    uint64_t bytes;
    uint64_t sent = 0;  // of head and data together
  };
  std::deque<const Transfer*> sends;  // that have met no receive
  std::deque<const Transfer*> recvs;  // whose data has not come
  std::deque<Out> out;
  bool in_data = false;
  bool refused = false;  // a send fits no receive: never done
  uint64_t got = 0;

  bool reads() const { return !sends.empty() || !recvs.empty(); }
  bool done() const { return !reads() && out.empty() && !refused; }
};

FakeNcclMesh::FakeNcclMesh(std::string name, int ranks, int rank, bool report_dead_peers)
    : name_(std::move(name)), ranks_(ranks), rank_(rank), report_dead_peers_(report_dead_peers), peers_(ranks), state_(kNcclInProgress) {
  joining_ = std::thread([this] { Join(); });
}

FakeNcclMesh::~FakeNcclMesh() { Abort(); }

int FakeNcclMesh::state(std::string* text) {
  MutexLock lock(&mu_);
  if (state_ == kNcclSuccess) {
    for (const int fd : watched_) {
      char byte;
      const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n > 0 || (n < 0 && WouldBlock())) continue;
      state_ = kNcclRemoteError;
      text_ = "a peer has closed its connection";
      break;
    }
  }
  if (text != nullptr) *text = text_;
  return state_;
}

void FakeNcclMesh::Fail(int code, const std::string& text) {
  MutexLock lock(&mu_);
  if (state_ != kNcclSuccess && state_ != kNcclInProgress) return;
  state_ = code;
  text_ = text;
}

void FakeNcclMesh::Abort() {
  aborted_.store(true, std::memory_order_release);
  if (joining_.joinable()) joining_.join();
  MutexLock run(&run_mu_);
  MutexLock lock(&mu_);
  watched_.clear();
  for (Peer& p : peers_) {
    if (p.fd >= 0) close(p.fd);
    p.fd = -1;
  }
}

void FakeNcclMesh::Join() {
  sockaddr_un address;
  const int listening = NewSocket();
  const socklen_t length = Address(name_, rank_, &address);
  if (listening < 0 || bind(listening, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listening, 128) != 0) {
    Fail(errno == EADDRINUSE ? kNcclInvalidUsage : kNcclSystemError,
         "rank " + std::to_string(rank_) + " cannot listen: " + std::strerror(errno));
    if (listening >= 0) close(listening);
    return;
  }
  std::vector<int> strangers;
  while (!aborted() && !JoinStep(listening, &strangers)) {
    pollfd wait{listening, POLLIN, 0};
    poll(&wait, 1, kNapMs);
  }
  for (const int fd : strangers) close(fd);
  close(listening);
}

bool FakeNcclMesh::JoinStep(int listening, std::vector<int>* strangers) {
  for (int p = 0; p < rank_; ++p) {
    Peer& peer = peers_[p];
    if (peer.joined) continue;
    if (peer.fd < 0) {
      sockaddr_un address;
      const socklen_t length = Address(name_, p, &address);
      const Hello hello{kMagic, ranks_, rank_, 0};
      const int fd = NewSocket();
      if (fd < 0) continue;
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
          send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
        close(fd);
        continue;
      }
      peer.fd = fd;
    }
    char welcome;
    const ssize_t n = recv(peer.fd, &welcome, 1, 0);
    if (n == 1) {
      peer.joined = true;
    } else if (n == 0 || !WouldBlock()) {
      close(peer.fd);
      peer.fd = -1;
    }
  }
  for (int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); fd >= 0;
       fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) {
    strangers->push_back(fd);
  }
  for (size_t i = 0; i < strangers->size();) {
    const int fd = (*strangers)[i];
    Hello hello{};
    const ssize_t n = recv(fd, &hello, sizeof(hello), 0);
    if (n < 0 && WouldBlock()) {
      ++i;
      continue;
    }
    strangers->erase(strangers->begin() + static_cast<ptrdiff_t>(i));
    if (n != sizeof(hello) || hello.magic != kMagic) {
      close(fd);
      continue;
    }
    if (hello.ranks != ranks_ || hello.rank <= rank_ || hello.rank >= ranks_ || peers_[hello.rank].joined) {
      close(fd);
      Fail(kNcclInvalidUsage, "a peer says that it is rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.ranks) +
                                  "; rank " + std::to_string(rank_) + " joins " + std::to_string(ranks_) + " ranks");
      return true;
    }
    const char welcome = 1;
    if (send(fd, &welcome, 1, MSG_NOSIGNAL) != 1) {
      close(fd);
      continue;
    }
    peers_[hello.rank].fd = fd;
    peers_[hello.rank].joined = true;
  }
  for (int p = 0; p < ranks_; ++p) {
    if (p != rank_ && !peers_[p].joined) return false;
  }
  MutexLock lock(&mu_);
  if (report_dead_peers_) {
    for (int p = 0; p < ranks_; ++p) {
      if (p != rank_) watched_.push_back(peers_[p].fd);
    }
  }
  if (state_ == kNcclInProgress) state_ = kNcclSuccess;
  return true;
}

void FakeNcclMesh::Start(const std::vector<Transfer>& transfers, std::vector<Lane>* lanes) {
  for (const Transfer& t : transfers) {
    Lane& lane = (*lanes)[t.peer];
    if (t.send) {
      lane.sends.push_back(&t);
    } else {
      lane.recvs.push_back(&t);
      lane.out.push_back({{kMagic, kReady, t.bytes, t.kind}, nullptr, 0});
    }
  }
}

void FakeNcclMesh::Lost(int peer) {
  peers_[peer].dead = true;
  if (report_dead_peers_) Fail(kNcclRemoteError, "rank " + std::to_string(peer) + " has closed its connection");
}

void FakeNcclMesh::TakeHeader(int peer, Lane* lane) {
  Peer& p = peers_[peer];
  p.head_got = 0;
  const auto disagree = [&](const Transfer& t) {
    Fail(kNcclInvalidUsage, "rank " + std::to_string(rank_) + (t.send ? " sends " : " receives ") + std::to_string(t.bytes) + " bytes (" +
                                t.what + ") where rank " + std::to_string(peer) + (t.send ? " receives " : " sends ") +
                                std::to_string(p.head.bytes) + (p.head.kind == t.kind ? "" : ", or something of another kind or type"));
  };
  if (p.head.type == kReady) {
    p.ready.push_back(p.head);
    return;
  }
  if (lane->recvs.empty() || p.head.magic != kMagic) {
    Fail(kNcclInternalError, "rank " + std::to_string(peer) + " sent what nobody waits for");
    p.dead = true;
    return;
  }
  const Transfer& t = *lane->recvs.front();
  if (p.head.type == kRefused) {
    disagree(t);
    p.dead = true;
    return;
  }
  lane->in_data = true;  // as announced: the sender has checked it
  lane->got = 0;
}

void FakeNcclMesh::Read(int peer, Lane* lane) {
  Peer& p = peers_[peer];
  while (!p.dead && !lane->refused) {
    if (lane->in_data && lane->got == lane->recvs.front()->bytes) {
      lane->in_data = false;
      lane->recvs.pop_front();
    }
    // A send that is met no longer needs the peer's words.
    while (!lane->sends.empty() && !p.ready.empty()) {
      const Transfer& t = *lane->sends.front();
      const Header r = p.ready.front();
      p.ready.pop_front();
      if (r.bytes != t.bytes || r.kind != t.kind) {
        lane->out.push_back({{kMagic, kRefused, t.bytes, t.kind}, nullptr, 0});
        lane->refused = true;
        Fail(kNcclInvalidUsage, "rank " + std::to_string(rank_) + " sends " + std::to_string(t.bytes) + " bytes (" + t.what +
                                    ") where rank " + std::to_string(peer) + " receives " + std::to_string(r.bytes) +
                                    (r.kind == t.kind ? "" : ", or something of another kind or type"));
      } else {
        lane->out.push_back({{kMagic, kData, t.bytes, t.kind}, t.data, t.bytes});
      }
      lane->sends.pop_front();
    }
    if (!lane->reads()) return;
    char* const at = lane->in_data ? lane->recvs.front()->data + lane->got : reinterpret_cast<char*>(&p.head) + p.head_got;
    const size_t left = lane->in_data ? lane->recvs.front()->bytes - lane->got : sizeof(Header) - p.head_got;
    const ssize_t n = recv(p.fd, at, left, 0);
    if (n < 0 && WouldBlock()) return;
    if (n <= 0) return Lost(peer);
    if (lane->in_data) {
      lane->got += n;
    } else if ((p.head_got += n) == sizeof(Header)) {
      TakeHeader(peer, lane);
    }
  }
}

void FakeNcclMesh::Write(int peer, Lane* lane) {
  Peer& p = peers_[peer];
  while (!p.dead && !lane->out.empty()) {
    Lane::Out& o = lane->out.front();
    const bool in_head = o.sent < sizeof(Header);
    const char* const at = in_head ? reinterpret_cast<const char*>(&o.head) + o.sent : o.data + (o.sent - sizeof(Header));
    const size_t left = in_head ? sizeof(Header) - o.sent : sizeof(Header) + o.bytes - o.sent;
    const ssize_t n = left == 0 ? 0 : send(p.fd, at, left, MSG_NOSIGNAL);
    if (n < 0 && WouldBlock()) return;
    if (n < 0) return Lost(peer);
    o.sent += n;
    if (o.sent == sizeof(Header) + o.bytes) lane->out.pop_front();
  }
}

bool FakeNcclMesh::Run(const std::vector<Transfer>& transfers, const std::function<bool()>& ended) {
  MutexLock run(&run_mu_);
  if (aborted() || ended()) return false;
  std::vector<Lane> lanes(ranks_);
  Start(transfers, &lanes);
  while (true) {
    std::vector<pollfd> waits;
    bool done = true;
    for (int p = 0; p < ranks_; ++p) {
      Lane& lane = lanes[p];
      if (lane.done()) continue;
      Read(p, &lane);
      Write(p, &lane);
      if (lane.done()) continue;
      done = false;
      if (peers_[p].dead || (lane.refused && lane.out.empty())) continue;
      const int events = (lane.reads() && !lane.refused ? POLLIN : 0) | (lane.out.empty() ? 0 : POLLOUT);
      waits.push_back({peers_[p].fd, static_cast<short>(events), 0});
    }
    if (done) return true;
    if (aborted() || ended()) return false;
    poll(waits.data(), waits.size(), kNapMs);
  }
}

}  // namespace weft
