// Several processes. Children are forked while this process has no other thread, and only ever _exit.

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "common/channel/port_conformance.h"
#include "common/channel/shm/hub.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/channel/shm/test_peer.h"

namespace weft {
namespace {

using conformance::Await;
using conformance::EdgeOf;
using conformance::ErrorValue;
using conformance::ValueOf;

Nanos Soon() { return Clock::Real()->Now() + 30 * kNanosPerSecond; }

// A pipe of lines between parent and child.
class Line {
 public:
  Line() { REQUIRE(pipe(fds_) == 0); }
  ~Line() {
    close(fds_[0]);
    close(fds_[1]);
  }
  void Write(const std::string& text) { (void)!write(fds_[1], (text + "\n").data(), text.size() + 1); }
  std::string Read() {
    std::string out;
    char c;
    while (read(fds_[0], &c, 1) == 1 && c != '\n') out.push_back(c);
    return out;
  }

 private:
  int fds_[2];
};

class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  ~Child() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int Wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// What a process has mapped: memory files only, nothing that has a name anywhere.
bool MapsNamedMemory(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  bool segment = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm") != std::string::npos) return true;
    segment |= line.find("/memfd:weft-segment (deleted)") != std::string::npos;
  }
  return !segment;  // then it is not even the process that was meant
}

struct Process {
  std::unique_ptr<Doorbell> bell = *Doorbell::Create();
  std::unique_ptr<ShmHub> hub = *ShmHub::Create(bell.get());
};

std::vector<ShmEdgeSpec> Edges() {
  std::vector<ShmEdgeSpec> edges = {EdgeOf("[?<=3000]", 2), EdgeOf("[?]", 2)};
  edges[1].edge = 6;
  return edges;
}

// Writes `rounds` values over both edges, sleeping for credits. 0: all went.
int WriteAll(Process* p, const std::shared_ptr<ShmSegment>& segment, int64_t rounds) {
  std::unique_ptr<ShmSendPort> ports[2];
  for (int i = 0; i < 2; ++i) {
    auto port = ShmSendPort::Create(segment, 5 + i, Clock::Real());
    if (!port.ok()) return 10;
    ports[i] = *std::move(port);
  }
  for (int64_t k = 0; k < rounds; ++k) {
    for (auto& port : ports) {
      if (!Await(p->bell.get(), [&] { return port->Poll(k) != PortState::kWaiting; })) return 11;
      const Value v = k % 9 == 8 ? ErrorValue(k) : ValueOf({k * 37 % 3001}, k);
      if (!port->Send(k, v, nullptr).ok()) return 12;
    }
  }
  return 0;
}

int ReadAll(Process* p, const std::shared_ptr<ShmSegment>& segment, int64_t rounds) {
  std::unique_ptr<ShmRecvPort> ports[2];
  for (int i = 0; i < 2; ++i) {
    auto port = ShmRecvPort::Create(segment, Edges()[i], Clock::Real());
    if (!port.ok()) return 20;
    ports[i] = *std::move(port);
  }
  for (int64_t k = 0; k < rounds; ++k) {
    for (auto& port : ports) {
      if (!Await(p->bell.get(), [&] { return port->Poll(k) != PortState::kWaiting; })) return 21;
      Value out;
      if (!port->Recv(k, Tensor(), &out, nullptr).ok()) return 22;
      if ((out.error != nullptr) != (k % 9 == 8)) return 23;
      if (out.error == nullptr && !BitEqual(out.tensor, ValueOf({k * 37 % 3001}, k).tensor)) return 24;
      port->Release(k);
    }
  }
  return 0;
}

TEST_CASE("processes: values, errors and growing tensors go from one to another") {
  constexpr int64_t kRounds = 300;
  Line address;
  Child reader([&] {
    Process p;
    auto segment = p.hub->Import(address.Read(), "k", Soon());
    return segment.ok() ? ReadAll(&p, *segment, kRounds) : 30;
  });
  Process p;
  auto segment = *p.hub->Export("k", Edges(), 1);
  address.Write(p.hub->address());
  CHECK(WriteAll(&p, segment, kRounds) == 0);
  CHECK(reader.Wait() == 0);
  // It had all values and went; that is a normal end of the link.
  REQUIRE(Await(p.bell.get(), [&] { return segment->is_closed(); }));
}

TEST_CASE("processes: an emulated link ends at one time for both") {
  ShmEdgeSpec e = EdgeOf("[4]", 2);
  e.rendezvous = true;
  e.latency_s = 3e-3;
  Line address, times;
  Child reader([&] {
    Process p;
    auto segment = p.hub->Import(address.Read(), "k", Soon());
    if (!segment.ok()) return 1;
    auto port = ShmRecvPort::Create(*segment, e, Clock::Real());
    if (!port.ok()) return 2;
    for (int64_t k = 0; k < 10; ++k) {
      if (!Await(p.bell.get(), [&] { return (*port)->Poll(k) == PortState::kReady; })) return 3;
      Value out;
      auto event = (*port)->Recv(k, Tensor(), &out, nullptr);
      if (!event.ok()) return 4;
      if (!Await(p.bell.get(), [&] { return (*event)->ReadyAt() != Event::kUnknown; })) return 5;
      times.Write(std::to_string((*event)->ReadyAt()));
      if (!Await(p.bell.get(), [&] { return IsReady(*event); }, (*event)->ReadyAt())) return 6;
      (*port)->Release(k);
    }
    return 0;
  });
  Process p;
  auto segment = *p.hub->Export("k", {e}, 1);
  address.Write(p.hub->address());
  auto port = *ShmSendPort::Create(segment, 5, Clock::Real());
  for (int64_t k = 0; k < 10; ++k) {
    REQUIRE(Await(p.bell.get(), [&] { return port->Poll(k) == PortState::kReady; }));
    const Nanos start = Clock::Real()->Now();
    const EventRef sent = *port->Send(k, ValueOf({4}, k), nullptr);
    Nanos at = Event::kUnknown;
    REQUIRE(Await(p.bell.get(), [&] { return (at = sent->ReadyAt()) != Event::kUnknown; }));
    const std::string theirs = times.Read();
    if (at != 0) CHECK(std::to_string(at) == theirs);  // 0: it was released meanwhile
    CHECK(std::stoll(theirs) >= start + 3'000'000);
  }
  CHECK(reader.Wait() == 0);
}

// How long after the kill the survivor knows; negative: it does not within the limit.
double NoticeAfterKill(Process* p, ShmSegment* segment, Child* child) {
  const Nanos start = Clock::Real()->Now();
  child->Kill();
  const bool noticed = Await(p->bell.get(), [&] { return segment->is_closed(); });
  return noticed ? ToSeconds(Clock::Real()->Now() - start) : -1;
}

TEST_CASE("processes: kill -9 of either is noticed by the other, and nothing is left") {
  for (const bool kill_writer : {false, true}) {
    Line to_child, from_child;
    Child child([&] {
      Process p;
      if (kill_writer) {
        auto segment = p.hub->Export("k", Edges(), 1);
        if (!segment.ok()) return 1;
        from_child.Write(p.hub->address());
        return WriteAll(&p, *segment, 1'000'000'000);
      }
      auto segment = p.hub->Import(to_child.Read(), "k", Soon());
      if (!segment.ok()) return 2;
      from_child.Write("there");
      return ReadAll(&p, *segment, 1'000'000'000);
    });
    const pid_t pid = child.pid();
    Process p;
    std::shared_ptr<ShmSegment> segment;
    if (kill_writer) {
      segment = *p.hub->Import(from_child.Read(), "k", Soon());
      CHECK(ReadAll(&p, segment, 20) == 0);
    } else {
      segment = *p.hub->Export("k", Edges(), 1);
      to_child.Write(p.hub->address());
      REQUIRE(from_child.Read() == "there");
      CHECK(WriteAll(&p, segment, 20) == 0);
    }
    CHECK_FALSE(MapsNamedMemory(pid));
    const double s = NoticeAfterKill(&p, segment.get(), &child);
    CHECK(s >= 0);
    CHECK(s < 1);
    const std::string why(segment->closed().message());
    CHECK(segment->closed().code() == absl::StatusCode::kUnavailable);
    CHECK(why.find(kill_writer ? "w0" : "w1") != std::string::npos);
    CHECK(why.find(std::to_string(pid)) != std::string::npos);
    // The hub goes on.
    CHECK(p.hub->Export("next", Edges(), 2).ok());
  }
}

TEST_CASE("processes: a killed process's import and export end cleanly") {
  // The reader dies while it waits for an export that then comes.
  Line address, there;
  Child waiting([&] {
    Process p;
    const std::string a = address.Read();
    there.Write("x");
    return p.hub->Import(a, "k", Soon()).ok() ? 0 : 1;
  });
  Process p;
  address.Write(p.hub->address());
  there.Read();
  waiting.Kill();
  auto segment = *p.hub->Export("k", Edges(), 1);
  // Whether it was still counted or not, it is gone before long; either a new segment or this one serves the next.
  if (segment->connected()) REQUIRE(Await(p.bell.get(), [&] { return segment->is_closed(); }));
}

TEST_CASE("processes: an import whose writer is killed ends with its cause") {
  Line address;
  Child writer([&] {
    Process p;
    address.Write(p.hub->address());
    pause();
    return 0;
  });
  const std::string a = address.Read();
  Process p;
  absl::Status status;
  std::thread importer([&] { status = p.hub->Import(a, "never", Soon()).status(); });
  writer.Kill();
  importer.join();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(status.message()).find("never") != std::string::npos);
}

// Kilobytes of shared memory that the kernel holds for all processes of the machine.
int64_t ShmemKb() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("Shmem:", 0) == 0) return std::stoll(line.substr(6));
  }
  return -1;
}

// Bytes that a segment's file takes.
int64_t Taken(ShmSegment* segment) {
  struct stat st = {};
  fstat(ShmTestPeer::Fd(segment), &st);
  return st.st_blocks * 512;
}

constexpr int64_t kMiB = 1 << 20;

TEST_CASE("processes: memory is given back when both are killed") {
  constexpr int64_t kElements = 64 * kMiB;  // 256 MiB a value
  const int64_t before = ShmemKb();
  Line address, filled, taken;
  {
    Child writer([&] {
      Process p;
      auto segment = p.hub->Export("k", Edges(), 1);
      if (!segment.ok()) return 1;
      address.Write(p.hub->address());
      auto port = ShmSendPort::Create(*segment, 6, Clock::Real());
      if (!port.ok()) return 2;
      Value v;
      v.tensor = *Tensor::OnHost(v1::F32, {kElements});
      std::memset(v.tensor.data(), 1, v.tensor.bytes());
      if (!(*port)->Send(0, v, nullptr).ok()) return 3;
      filled.Write(std::to_string(Taken(segment->get())));
      pause();
      return 0;
    });
    Child reader([&] {
      Process p;
      auto segment = p.hub->Import(address.Read(), "k", Soon());
      if (!segment.ok()) return 1;
      auto port = ShmRecvPort::Create(*segment, Edges()[1], Clock::Real());
      if (!port.ok()) return 2;
      if (!Await(p.bell.get(), [&] { return (*port)->Poll(0) == PortState::kReady; })) return 3;
      Value out;
      if (!(*port)->Recv(0, Tensor(), &out, nullptr).ok() || !out.tensor.defined()) return 4;
      taken.Write(BitEqual(out.tensor, out.tensor) ? "read" : "");
      pause();
      return 0;
    });
    CHECK(std::stoll(filled.Read()) >= 256 * kMiB);
    CHECK(taken.Read() == "read");
    writer.Kill();
    reader.Kill();
  }
  // Others use shared memory too, so the figure may be off for a moment.
  bool back = false;
  const Nanos limit = Soon();
  while (!back && Clock::Real()->Now() < limit) {
    back = ShmemKb() < before + 128 * 1024;
    sched_yield();
  }
  CHECK(back);
}

TEST_CASE("processes: memory is given back when a tensor outgrows its slot") {
  Process p;
  auto w = *p.hub->Export("grow", Edges(), 1);
  auto r = *p.hub->Import(p.hub->address(), "grow", Soon());
  auto send = *ShmSendPort::Create(w, 6, Clock::Real());
  auto recv = *ShmRecvPort::Create(r, Edges()[1], Clock::Real());
  int64_t k = 0;
  for (const int64_t mib : {1, 1, 2, 2, 4, 4, 16, 16}) {
    Value v, out;
    v.tensor = *Tensor::OnHost(v1::F32, {mib * kMiB / 4});
    std::memset(v.tensor.data(), 1, v.tensor.bytes());
    REQUIRE(send->Send(k, v, nullptr).ok());
    REQUIRE(recv->Recv(k, Tensor(), &out, nullptr).ok());
    REQUIRE(out.tensor.bytes() == v.tensor.bytes());
    recv->Release(k++);
  }
  CHECK(Taken(w.get()) >= 32 * kMiB);
  CHECK(Taken(w.get()) < 33 * kMiB);  // 46 without recycling
}

}  // namespace
}  // namespace weft
