#include "common/channel/shm/hub.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>

#include "common/channel/port_conformance.h"
#include "common/channel/shm/wire.h"

namespace weft {
namespace {

using conformance::Await;
using conformance::EdgeOf;

struct Process {
  std::unique_ptr<Doorbell> bell = *Doorbell::Create();
  std::unique_ptr<ShmHub> hub = *ShmHub::Create(bell.get());
};

Nanos In(Nanos d) { return Clock::Real()->Now() + d; }
Nanos Soon() { return In(30 * kNanosPerSecond); }
bool Has(const absl::Status& s, const std::string& part) { return std::string(s.message()).find(part) != std::string::npos; }

int ConnectTo(const std::string& address) {
  sockaddr_un name;
  unsigned length = 0;
  REQUIRE(shm::ParseAddress(address, &name, &length).ok());
  const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(connect(s, reinterpret_cast<sockaddr*>(&name), length) == 0);
  return s;
}

TEST_CASE("hub: export and import in either order") {
  Process w, r;
  auto exported = *w.hub->Export("first", {EdgeOf("[4]", 2)}, 7);
  CHECK_FALSE(exported->connected());
  auto imported = *r.hub->Import(w.hub->address(), "first", Soon());
  CHECK(exported->connected());
  CHECK(imported->plan_hash() == 7);
  REQUIRE(imported->edges().size() == 1);
  CHECK(imported->edges()[0].name == "edge a:0 -> b:0 (w0 -> w1)");

  absl::StatusOr<std::shared_ptr<ShmSegment>> later = absl::UnknownError("");
  std::thread importer([&] { later = r.hub->Import(w.hub->address(), "second", Soon()); });
  auto second = *w.hub->Export("second", {}, 8);  // no edges: it still carries admission and closing
  importer.join();
  REQUIRE(later.ok());
  CHECK((*later)->admitted() == -1);
  const uint32_t seen = r.bell->Snapshot();
  second->PublishAdmitted(5);
  CHECK((*later)->admitted() == 5);
  CHECK(r.bell->Snapshot() != seen);
}

TEST_CASE("hub: one process may be both ends") {
  Process p;
  auto w = *p.hub->Export("k", {EdgeOf("[4]", 2)}, 7);
  auto r = p.hub->Import(p.hub->address(), "k", Soon());
  REQUIRE(r.ok());
  w->Close(absl::CancelledError("enough"));
  CHECK((*r)->closed().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("hub: imports that cannot be say why") {
  Process w, r;
  CHECK(r.hub->Import(w.hub->address(), "nothing", In(20'000'000)).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Has(r.hub->Import(w.hub->address(), "nothing", In(-1)).status(), "nothing"));
  CHECK(r.hub->Import("@weft-no-such-process", "k", Soon()).status().code() == absl::StatusCode::kUnavailable);
  for (const std::string& bad : {std::string(), std::string("x"), std::string("@"), "@" + std::string(300, 'x'), std::string("/tmp/x")}) {
    CHECK(r.hub->Import(bad, "k", Soon()).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(r.hub->Import(w.hub->address(), "", Soon()).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(r.hub->Import(w.hub->address(), std::string(256, 'k'), Soon()).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(w.hub->Export("", {}, 1).status().code() == absl::StatusCode::kInvalidArgument);

  auto seg = *w.hub->Export("k", {EdgeOf("[4]", 2)}, 1);
  CHECK(w.hub->Export("k", {}, 1).status().code() == absl::StatusCode::kAlreadyExists);
  auto first = r.hub->Import(w.hub->address(), "k", Soon());
  REQUIRE(first.ok());
  CHECK(r.hub->Import(w.hub->address(), "k", Soon()).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(seg->closed().ok());

  ShmEdgeSpec none = EdgeOf("[4]", 0);
  CHECK(w.hub->Export("k2", {none}, 1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(ShmHub::Create(nullptr).ok());
  auto local = Doorbell::InProcess();
  CHECK_FALSE(ShmHub::Create(local.get()).ok());
}

TEST_CASE("hub: withdrawing ends imports under way and hides exports") {
  Process w, r;
  absl::Status status;
  std::atomic<bool> done{false};
  std::thread importer([&] {
    status = r.hub->Import(w.hub->address(), "k", Soon()).status();
    done = true;
  });
  while (!done) {  // only an import that has begun is ended
    r.hub->Withdraw("k");
    std::this_thread::yield();
  }
  importer.join();
  CHECK(status.code() == absl::StatusCode::kCancelled);

  auto seg = *w.hub->Export("k", {}, 1);
  w.hub->Withdraw("k");
  CHECK(r.hub->Import(w.hub->address(), "k", In(20'000'000)).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(w.hub->Export("k", {}, 1).ok());  // the key is free
}

TEST_CASE("hub: a dropped export frees its key") {
  Process w;
  auto seg = *w.hub->Export("k", {}, 1);
  seg.reset();
  CHECK(w.hub->Export("k", {}, 1).ok());
}

TEST_CASE("hub: each end's closing and end reach the other, with the first cause") {
  for (const bool reader_closes : {false, true}) {
    for (const bool drops : {false, true}) {
      Process w, r;
      auto a = *w.hub->Export("k", {EdgeOf("[4]", 2)}, 1);
      auto b = *r.hub->Import(w.hub->address(), "k", Soon());
      auto& closer = reader_closes ? b : a;
      auto& other = reader_closes ? a : b;
      Doorbell* bell = reader_closes ? w.bell.get() : r.bell.get();
      const std::string name = reader_closes ? "w1" : "w0";
      if (!drops) closer->Close(absl::DataLossError("disk \xff full"));
      if (drops) closer.reset();
      REQUIRE(Await(bell, [&] { return !other->closed().ok(); }));
      CHECK(Has(other->closed(), name));
      CHECK(other->closed().code() == (drops ? absl::StatusCode::kCancelled : absl::StatusCode::kDataLoss));
      if (!drops) CHECK(Has(other->closed(), "disk ? full"));
      other->Close(absl::InternalError("second"));
      CHECK(Has(other->closed(), name));
    }
  }
}

TEST_CASE("hub: what broke the peer is a consequence here, with the peer's words") {
  Process w, r;
  auto a = *w.hub->Export("k", {EdgeOf("[4]", 2)}, 1);
  auto b = *r.hub->Import(w.hub->address(), "k", Soon());
  a->Close(absl::InternalError("GPU 0 of this worker has failed"));
  REQUIRE(Await(r.bell.get(), [&] { return !b->closed().ok(); }));
  CHECK(a->closed().code() == absl::StatusCode::kInternal);
  CHECK(b->closed().code() == absl::StatusCode::kAborted);
  CHECK(Has(b->closed(), "GPU 0 of this worker has failed"));
}

TEST_CASE("hub: its own end closes what is open") {
  Process w, r;
  auto a = *w.hub->Export("k", {EdgeOf("[4]", 2)}, 1);
  auto b = *r.hub->Import(w.hub->address(), "k", Soon());
  auto lonely = *w.hub->Export("l", {}, 1);
  w.hub.reset();
  CHECK(a->closed().code() == absl::StatusCode::kCancelled);
  CHECK_FALSE(lonely->closed().ok());
  REQUIRE(Await(r.bell.get(), [&] { return !b->closed().ok(); }));
}

TEST_CASE("hub: garbage on the socket harms nobody") {
  Process w, r;
  auto seg = *w.hub->Export("k", {EdgeOf("[4]", 2)}, 1);
  std::mt19937_64 rng(9);
  std::vector<int> open;
  for (int i = 0; i < 300; ++i) {
    const int s = ConnectTo(w.hub->address());
    std::vector<char> junk(rng() % 3000);
    for (char& c : junk) c = static_cast<char>(rng());
    shm::Hello hello;
    std::vector<int> fds;
    int devnull[4] = {0, 1, 2, w.bell->fd()};
    for (uint64_t k = 0; k < rng() % 5; ++k) fds.push_back(devnull[rng() % 4]);
    switch (i % 6) {
      case 0:  // nothing, and stays
        open.push_back(s);
        continue;
      case 1:
        (void)shm::SendPacket(s, junk.data(), junk.size(), fds);
        break;
      case 2:  // right but for the doorbell
        hello.key_bytes = 1;
        hello.key[0] = 'k';
        (void)shm::SendPacket(s, &hello, sizeof hello, {devnull[i % 3]});
        break;
      case 3:
        hello.key_bytes = static_cast<uint32_t>(rng());
        (void)shm::SendPacket(s, &hello, sizeof hello, {w.bell->fd()});
        break;
      case 4:
        (void)shm::SendPacket(s, &hello, rng() % sizeof hello, fds);
        break;
      case 5:  // asks for what is not there, then talks on
        hello.key_bytes = 3;
        (void)shm::SendPacket(s, &hello, sizeof hello, {w.bell->fd()});
        for (int k = 0; k < 5; ++k) (void)shm::SendPacket(s, junk.data(), std::min<size_t>(junk.size(), 100), fds);
        open.push_back(s);
        continue;
    }
    close(s);
  }
  auto imported = r.hub->Import(w.hub->address(), "k", Soon());
  CHECK(imported.ok());
  CHECK(seg->closed().ok());
  for (const int s : open) close(s);
  CHECK(w.hub->Export("another", {}, 1).ok());
}

// Answers one request with whatever the test wants.
void FakeWriter(int listener, const std::function<void(int)>& answer) {
  const int s = accept(listener, nullptr, nullptr);
  shm::Hello hello;
  size_t bytes = 0;
  std::vector<shm::OwnedFd> fds;
  pollfd p = {s, POLLIN, 0};
  poll(&p, 1, 30000);
  (void)shm::ReceivePacket(s, &hello, sizeof hello, &bytes, &fds);
  answer(s);
  close(s);
}

TEST_CASE("hub: a writer that answers nonsense is found out") {
  Process r;
  auto bell = *Doorbell::Create();
  sockaddr_un name;
  unsigned length = 0;
  const std::string address = "@weft-test-" + std::to_string(getpid());
  REQUIRE(shm::ParseAddress(address, &name, &length).ok());
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&name), length) == 0);
  REQUIRE(listen(listener, 16) == 0);
  const auto import_with = [&](const std::function<void(int)>& answer) {
    std::thread t([&] { FakeWriter(listener, answer); });
    const absl::Status s = r.hub->Import(address, "k", Soon()).status();
    t.join();
    return s;
  };
  const auto file = [](uint64_t bytes, const void* content, size_t n, bool seal) {
    const int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    if (n > 0) REQUIRE(pwrite(fd, content, n, 0) == static_cast<ssize_t>(n));
    if (seal) REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
  };
  const auto with_file = [&](int fd) {
    const absl::Status s = import_with([&](int sock) {
      shm::Reply ok;
      (void)shm::SendPacket(sock, &ok, sizeof ok, {fd, bell->fd()});
    });
    close(fd);
    return s;
  };

  CHECK(import_with([](int) {}).code() == absl::StatusCode::kUnavailable);
  CHECK(import_with([](int s) { (void)shm::SendPacket(s, "hello", 5, {}); }).code() == absl::StatusCode::kDataLoss);
  CHECK(import_with([](int s) {
          shm::Reply ok;
          (void)shm::SendPacket(s, &ok, sizeof ok, {});
        }).code() == absl::StatusCode::kDataLoss);
  CHECK(import_with([](int s) {
          shm::Reply no;
          no.code = 12345;
          std::memset(no.message, 0xff, sizeof no.message);
          (void)shm::SendPacket(s, &no, sizeof no, {});
        }).code() == absl::StatusCode::kUnknown);
  CHECK_FALSE(with_file(file(0, "", 0, true)).ok());
  CHECK_FALSE(with_file(file(1 << 20, "", 0, true)).ok());
  CHECK_FALSE(with_file(file(1 << 20, "", 0, false)).ok());  // unsealed: it could shrink

  // A right one, then the same with random damage.
  std::vector<char> good(1 << 20, 0);
  auto* h = reinterpret_cast<shm::SegmentHeader*>(good.data());
  const std::vector<ShmEdgeSpec> edges = {EdgeOf("[4]", 2), EdgeOf("[?]", 1)};
  h->magic = shm::kSegmentMagic;
  h->version = shm::kSegmentVersion;
  h->edges = 2;
  h->bytes = shm::ComputeLayout(edges)->bytes;
  for (int i = 0; i < 2; ++i) reinterpret_cast<shm::EdgeEntry*>(good.data() + sizeof(shm::SegmentHeader))[i] = shm::EntryOf(edges[i]);
  const size_t used = sizeof(shm::SegmentHeader) + 2 * sizeof(shm::EdgeEntry);
  CHECK(with_file(file(1 << 20, good.data(), used, true)).ok());
  CHECK_FALSE(with_file(file(h->bytes - 4096, good.data(), used, true)).ok());
  std::mt19937_64 rng(11);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<char> bad(good.begin(), good.begin() + used);
    for (int k = 0; k < 3; ++k) {
      const size_t at = k == 0 ? rng() % 64 : sizeof(shm::SegmentHeader) + rng() % 120;
      bad[at] = static_cast<char>(rng());
    }
    if (!with_file(file(1 << 20, bad.data(), used, true)).ok()) ++refused;
  }
  CHECK(refused > 20);
  close(listener);
}

TEST_CASE("hub: descriptors are given back") {
  const auto count = [] {
    int n = 0;
    for (int fd = 0; fd < 4096; ++fd) n += fcntl(fd, F_GETFD) != -1 ? 1 : 0;
    return n;
  };
  const int before = count();
  {
    Process w, r;
    for (int i = 0; i < 50; ++i) {
      const std::string key = std::to_string(i);
      auto a = *w.hub->Export(key, {EdgeOf("[?]", 2)}, 1);
      auto b = *r.hub->Import(w.hub->address(), key, Soon());
      const bool reader_first = i % 2 == 0;
      (reader_first ? b : a).reset();
      auto& left = reader_first ? a : b;
      REQUIRE(Await((reader_first ? w : r).bell.get(), [&] { return left->is_closed(); }));
    }
  }
  CHECK(count() == before);
}

}  // namespace
}  // namespace weft
