// GlooDevice, and how a mesh comes to be.

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/comm/gloo/gloo_mesh.h"

namespace weft {
namespace {

// The numeric form of the first address of `host` to which a socket of this machine can be bound. gloo must not resolve names: it
// reads an undefined list when that fails.
absl::StatusOr<std::string> BindableAddress(const std::string& host) {
  const auto unusable = [&](const std::string& why) {
    return absl::UnavailableError(absl::StrCat("cannot use address \"", host, "\" for transfers between workers: ", why,
                                               "; give an address of this machine"));
  };
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int rv = host.empty() ? EAI_NONAME : ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (rv != 0) return unusable(::gai_strerror(rv));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  int err = EADDRNOTAVAIL;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && ::bind(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (!bound) err = errno;
    if (fd >= 0) ::close(fd);
    char numeric[NI_MAXHOST];
    if (bound && ::getnameinfo(a->ai_addr, a->ai_addrlen, numeric, sizeof numeric, nullptr, 0, NI_NUMERICHOST) == 0) return std::string(numeric);
  }
  return unusable(std::strerror(err));
}

}  // namespace

absl::StatusOr<std::shared_ptr<GlooDevice>> GlooDevice::Create(const std::string& address) {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction now;
    if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  });
  try {
    gloo::transport::tcp::attr attr;
    WEFT_ASSIGN_OR_RETURN(attr.hostname, BindableAddress(address));
    return std::shared_ptr<GlooDevice>(new GlooDevice(gloo::transport::tcp::CreateDevice(attr)));
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("cannot use address \"", address, "\" for transfers between workers: ", e.what()));
  }
}

absl::Status GlooMesh::Connect(Nanos timeout) {
  const absl::Status s = ConnectPairs(Clock::Real()->Now() + timeout);
  if (s.ok()) return s;
  Abort(s);
  return Health();
}

absl::Status GlooMesh::ConnectPairs(Nanos deadline) {
  const auto left = [&] { return std::max<Nanos>(deadline - Clock::Real()->Now(), 1); };
  const auto key = [&](int r) { return absl::StrCat(options_.prefix, "/", r); };
  std::string addresses;
  size_t address_bytes = 0;
  int peer = -1;
  try {
    context_ = device_->device()->createContext(rank(), size());
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      // gloo multiplies the timeout that a pair is made with by five while it connects.
      context_->setTimeout(std::chrono::milliseconds(std::max<Nanos>(left() / 5 / 1'000'000, 1)));
      const std::vector<char> bytes = context_->createPair(r)->address().bytes();
      address_bytes = bytes.size();
      addresses.append(bytes.data(), bytes.size());
    }
    {
      MutexLock lock(&mu_);
      pairs_made_ = true;
      if (failed_) return cause_;
    }
    WEFT_RETURN_IF_ERROR(options_.store->Set(key(rank()), addresses));
    std::vector<std::string> keys;
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) keys.push_back(key(r));
    }
    absl::StatusOr<std::vector<std::string>> peers = options_.store->Get(keys, left());
    if (!peers.ok()) {
      return absl::Status(peers.status().code(),
                          absl::StrCat(options_.label, ": addresses of the other ranks: ", std::string(peers.status().message())));
    }
    size_t i = 0;
    for (peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const std::string& all = (*peers)[i++];
      if (all.size() != addresses.size()) {
        return absl::DataLossError(absl::StrCat(options_.label, ": ", RankName(peer), " published ", all.size(), " bytes of addresses, not ",
                                                addresses.size(), "; run the same release on all workers"));
      }
      // Each rank lists its addresses by peer, itself left out.
      const size_t at = address_bytes * (rank() < peer ? rank() : rank() - 1);
      context_->getPair(peer)->connect(std::vector<char>(all.begin() + at, all.begin() + at + address_bytes));
      WEFT_RETURN_IF_ERROR(Health());
      if (Clock::Real()->Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(options_.label, ": connecting took too long, at ", RankName(peer)));
      }
    }
  } catch (const std::exception& e) {
    WEFT_RETURN_IF_ERROR(Health());
    const std::string whom = peer < 0 ? "" : absl::StrCat(" to ", RankName(peer));
    const std::string text = absl::StrCat(options_.label, ": cannot connect", whom, ": ", e.what());
    return Clock::Real()->Now() >= deadline - 1'000'000 * 5 ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
  }
  return StartWatch();
}

}  // namespace weft
