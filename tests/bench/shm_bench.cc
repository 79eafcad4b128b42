// The shared-memory channel against what the machine can do, measured in the same run: a round trip of 8 bytes against a bare word
// between two processes, spinning and sleeping, and the bandwidth of sends against memcpy.
//
// Each pair of numbers is to be compared within one run; machines and their load differ.

#include <benchmark/benchmark.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/channel/shm/hub.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"

namespace weft {
namespace {

constexpr Nanos kSpinForever = 3600 * kNanosPerSecond;

// A child process while it lives.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

ShmEdgeSpec EdgeOf(int32_t id, int64_t elements, int slots) {
  ShmEdgeSpec e;
  e.edge = id;
  e.slots = slots;
  e.spec = Spec{v1::I64, Shape::Of({elements})};
  e.bytes = e.spec.MaxBytes();
  e.src_worker = "a";
  e.dst_worker = "b";
  return e;
}

// One direction each way, as two processes of one graph have it.
struct Links {
  std::unique_ptr<Doorbell> bell;
  std::unique_ptr<ShmHub> hub;
  std::unique_ptr<ShmSendPort> send;
  std::unique_ptr<ShmRecvPort> recv;
  int64_t k = 0;

  // `in` and `out` name this end's directions.
  void Open(const std::string& out, const std::string& in, const std::function<std::string(const std::string&)>& exchange) {
    const ShmEdgeSpec e = EdgeOf(1, 1, 2);
    bell = *Doorbell::Create();
    hub = *ShmHub::Create(bell.get());
    auto writer = *hub->Export(out, {e}, 1);
    const std::string address = exchange(hub->address());
    auto reader = *hub->Import(address, in, Clock::Real()->Now() + 30 * kNanosPerSecond);
    send = *ShmSendPort::Create(writer, 1, Clock::Real());
    recv = *ShmRecvPort::Create(reader, e, Clock::Real());
  }
  void Await(const std::function<bool()>& ready, Nanos spin) {
    for (;;) {
      const uint32_t seen = bell->Snapshot();
      if (ready()) return;
      bell->Wait(seen, Event::kUnknown, spin);
    }
  }
  void Send(const Value& v, Nanos spin) {
    Await([&] { return send->Poll(k) == PortState::kReady; }, spin);
    if (!send->Send(k, v, nullptr).ok()) abort();
  }
  void Receive(Nanos spin) {
    Await([&] { return recv->Poll(k) == PortState::kReady; }, spin);
    Value out;
    if (!recv->Recv(k, Tensor(), &out, nullptr).ok() || out.error != nullptr) abort();
    benchmark::DoNotOptimize(*out.tensor.as<int64_t>());
    recv->Release(k);
  }
};

std::string ReadAll(int fd) {
  std::string out;
  char c;
  while (read(fd, &c, 1) == 1 && c != '\n') out.push_back(c);
  return out;
}

void WriteLine(int fd, const std::string& text) {
  const std::string line = text + "\n";
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) abort();
}

// Argument: 1 spins, 0 sleeps at once.
void BM_ShmPingPong8(benchmark::State& state) {
  const Nanos spin = state.range(0) != 0 ? kSpinForever : 0;
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) abort();
  {
    Child child([&] {
      Links l;
      l.Open("b", "a", [&](const std::string& own) {
        WriteLine(back[1], own);
        return ReadAll(there[0]);
      });
      Value v;
      v.tensor = *Tensor::OnHost(v1::I64, {1});
      *v.tensor.as<int64_t>() = 1;
      for (;; ++l.k) {
        l.Receive(spin);
        l.Send(v, spin);
      }
    });
    Links l;
    l.Open("a", "b", [&](const std::string& own) {
      WriteLine(there[1], own);
      return ReadAll(back[0]);
    });
    Value v;
    v.tensor = *Tensor::OnHost(v1::I64, {1});
    *v.tensor.as<int64_t>() = 1;
    for (auto _ : state) {
      l.Send(v, spin);
      l.Receive(spin);
      ++l.k;
    }
  }
  for (const int fd : {there[0], there[1], back[0], back[1]}) close(fd);
}
BENCHMARK(BM_ShmPingPong8)->Arg(1)->Arg(0)->ArgName("spin")->UseRealTime();

// The same with nothing but two words: what the machine can do.
void BM_RawPingPong(benchmark::State& state) {
  const bool spin = state.range(0) != 0;
  struct Words {
    alignas(64) std::atomic<uint32_t> ping{0};
    alignas(64) std::atomic<uint32_t> pong{0};
  };
  void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) abort();
  auto* w = new (p) Words;
  const auto await = [spin](std::atomic<uint32_t>* word, uint32_t n) {
    for (;;) {
      const uint32_t now = word->load(std::memory_order_acquire);
      if (now == n) return;
      if (!spin) syscall(SYS_futex, word, FUTEX_WAIT, now, nullptr, nullptr, 0);
    }
  };
  const auto set = [spin](std::atomic<uint32_t>* word, uint32_t n) {
    word->store(n, std::memory_order_release);
    if (!spin) syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  };
  {
    Child child([&] {
      for (uint32_t n = 1;; ++n) {
        await(&w->ping, n);
        set(&w->pong, n);
      }
    });
    uint32_t n = 0;
    for (auto _ : state) {
      set(&w->ping, ++n);
      await(&w->pong, n);
    }
  }
  munmap(p, 4096);
}
BENCHMARK(BM_RawPingPong)->Arg(1)->Arg(0)->ArgName("spin")->UseRealTime();

// Argument: MiB. A value goes into a slot that was used before, and is read where it lies.
void BM_ShmSend(benchmark::State& state) {
  const int64_t elements = state.range(0) * (1 << 20) / 8;
  auto bell = *Doorbell::Create();
  auto hub = *ShmHub::Create(bell.get());
  const ShmEdgeSpec e = EdgeOf(1, elements, 1);
  auto writer = *hub->Export("k", {e}, 1);
  auto reader = *hub->Import(hub->address(), "k", Clock::Real()->Now() + 30 * kNanosPerSecond);
  auto send = *ShmSendPort::Create(writer, 1, Clock::Real());
  auto recv = *ShmRecvPort::Create(reader, e, Clock::Real());
  Value v;
  v.tensor = *Tensor::OnHost(v1::I64, {elements});
  std::memset(v.tensor.data(), 1, v.tensor.bytes());
  int64_t k = 0;
  const auto one = [&] {
    Value out;
    if (!send->Send(k, v, nullptr).ok() || !recv->Recv(k, Tensor(), &out, nullptr).ok() || out.error != nullptr) abort();
    benchmark::DoNotOptimize(out.tensor.data());
    recv->Release(k++);
  };
  one();  // the slot's pages exist from now on
  for (auto _ : state) one();
  state.SetBytesProcessed(state.iterations() * elements * 8);
}
BENCHMARK(BM_ShmSend)->Arg(1)->Arg(64)->ArgName("MiB")->UseRealTime();

void BM_Memcpy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0)) << 20;
  std::vector<char> from(bytes, 1), to(bytes, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}
BENCHMARK(BM_Memcpy)->Arg(1)->Arg(64)->ArgName("MiB")->UseRealTime();

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
