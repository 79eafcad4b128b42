#include "tests/bench/gpu/bare_edges.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/device/cuda/api/device_dtype.h"
#include "tests/bench/gpu/bare.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

constexpr double kLimit = 30;    // seconds for all processes of one kind of measurement
constexpr int kMostSizes = 32;
constexpr int kSlots = 2;        // values that lie ready, as weft's buffers with prefetch depth 1
constexpr int kAhead = 8;        // transfers enqueued and not over
constexpr double kRepeatFor = 0.5;  // seconds of repetitions of a chain, at most kMostChains of them
constexpr int kMostChains = 200;

struct Results {
  double seconds[kMostSizes];
  std::atomic<int> go;
  CudaIpcHandle handle;
};

// Two processes that run `body`, which sets the times that it has measured.
BareTimes Measure(const std::vector<uint64_t>& sizes, const std::function<void(BareProcess*, Results*)>& body) {
  BareTimes out;
  if (sizes.empty()) return out;
  if (sizes.size() > kMostSizes) throw std::runtime_error(absl::StrCat("at most ", kMostSizes, " sizes"));
  Common<Results> results;
  try {
    RunBare(2, kLimit, [&](BareProcess& p) { body(&p, results.get()); });
  } catch (const std::exception& e) {
    out.problem = e.what();
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (results->seconds[i] != 0) out.seconds[sizes[i]] = results->seconds[i];
  }
  return out;
}

// So many that the first and the last do not count, and not for long where all goes through sockets.
int TransfersOf(uint64_t bytes) {
  const uint64_t all = GpuDevice() != "cuda" ? 32 << 20 : SharesGpu(2) ? uint64_t{512} << 20 : uint64_t{8} << 30;
  return static_cast<int>(std::clamp<uint64_t>(all / bytes, SharesGpu(2) ? 4 : 8, 64));
}

float SlotValue(int slot) { return static_cast<float>(3 + slot); }

// Slots of a size, each full of its own value at the sender and of none at the receiver.
class Slots {
 public:
  Slots(BareProcess* p, uint64_t most) : p_(p), memory_(static_cast<char*>(p->Allocate(kSlots * most))), most_(most) {}

  void* memory() const { return memory_; }
  void* at(int i) const { return memory_ + most_ * static_cast<uint64_t>(i % kSlots); }
  void Fill(uint64_t bytes, bool sender, CudaStreamHandle s) const {
    for (int i = 0; i < kSlots; ++i) {
      const float value = sender ? SlotValue(i) : -1;
      p_->Check(p_->kernels()->Fill(DeviceFill::kNumber, value, 0, {nullptr, 0}, kDeviceF32, at(i), static_cast<int64_t>(bytes / 4), s));
    }
    p_->AwaitAll(s);
  }
  void CheckCame(uint64_t bytes, const char* how) const {
    for (int i = 0; i < kSlots; ++i) {
      p_->CheckElements(at(i), static_cast<int64_t>(bytes / 4), SlotValue(i), absl::StrCat("bare ", how, " of ", bytes, " bytes"));
    }
  }

 private:
  BareProcess* const p_;
  char* const memory_;
  const uint64_t most_;
};

// Seconds of each of n transfers by the device's clock, after some that do not count.
double Steadily(BareProcess* p, CudaStreamHandle s, int n, const std::function<void(int)>& transfer) {
  constexpr int kWarm = 4;
  const CudaEventHandle begin = p->NewEvent(true), end = p->NewEvent(true);
  std::vector<CudaEventHandle> over;
  for (int i = 0; i < kAhead; ++i) over.push_back(p->NewEvent());
  for (int i = 0; i < kWarm + n; ++i) {
    if (i >= kAhead) p->Await(over[static_cast<size_t>(i % kAhead)]);
    transfer(i);
    p->Check(p->cuda()->EventRecord(over[static_cast<size_t>(i % kAhead)], s));
    if (i + 1 == kWarm) p->Check(p->cuda()->EventRecord(begin, s));
  }
  p->Check(p->cuda()->EventRecord(end, s));
  p->Await(end);
  float ms = 0;
  p->Check(p->cuda()->EventElapsed(begin, end, &ms));
  over.push_back(begin);
  over.push_back(end);
  for (const CudaEventHandle e : over) p->Check(p->cuda()->EventDestroy(e));
  return ms * 1e-3 / n;
}

int Rounds() { return SharesGpu(2) ? 3 : 5; }

// A chain of hops on one process. Hop h (from 1) goes to process h % 2, which doubles the value; process 0 has it first and last.
class Chain {
 public:
  Chain(BareProcess* p, NcclCommHandle in, NcclCommHandle out)
      : p_(p), in_(in), out_(out), compute_(p->NewStream(false)), send_(p->NewStream(true)), recv_(p->NewStream(true)) {}

  void SetBytes(uint64_t bytes) {
    bytes_ = bytes;
    n_ = static_cast<int64_t>(bytes / 4);
    if (got_ == nullptr) {
      got_ = p_->Allocate(1 << 20);
      value_ = p_->Allocate(1 << 20);
    }
    if (bytes > 1 << 20) throw std::runtime_error("a chain's values have at most 1 MiB");
  }
  CudaStreamHandle compute() const { return compute_; }
  void* value() const { return value_; }
  int64_t n() const { return n_; }

  // On the one stream `s`, in order. Also for a capture of it.
  void InOrder(int hops, CudaStreamHandle s) {
    for (int h = 1; h <= hops; ++h) {
      if (h % 2 == p_->rank()) {
        p_->Finish(in_, Recv(s));
        Kernel(s);
      } else {
        p_->Finish(out_, Send(s));
      }
    }
  }

  // Receives, sends and kernels on a stream each, and a launch of either direction does not wait for one of the other: as weft's lanes.
  void OnLanes(int hops) {
    const int each = hops / 2;
    while (static_cast<int>(computed_.size()) <= each) {
      computed_.push_back(p_->NewEvent());
      came_.push_back(p_->NewEvent());
    }
    int received = 0, sent = 0, values = 0;
    bool receiving = false, sending = false;
    if (p_->rank() == 0) Computed(values++);
    while (received < each || sent < each || sending) {
      if (receiving && p_->Settled(in_)) {
        receiving = false;
        p_->Check(p_->cuda()->EventRecord(came_[static_cast<size_t>(received)], recv_));
        p_->Check(p_->cuda()->StreamWaitEvent(compute_, came_[static_cast<size_t>(received)]));
        Kernel(compute_);
        Computed(values++);
        ++received;
      }
      if (!receiving && received < each) {
        p_->CheckNccl(in_, Recv(recv_));
        receiving = true;
      }
      if (sending && p_->Settled(out_)) sending = false;
      if (!sending && sent < each && values > sent) {
        p_->Check(p_->cuda()->StreamWaitEvent(send_, computed_[static_cast<size_t>(sent)]));
        p_->CheckNccl(out_, Send(send_));
        sending = true;
        ++sent;
      }
      p_->CheckOpen();
    }
  }
  // What is left of the chain is on these.
  void AwaitLanes() {
    p_->AwaitAll(compute_);
    p_->AwaitAll(send_);
  }

 private:
  int Recv(CudaStreamHandle s) { return p_->nccl()->Recv(got_, bytes_, kNcclUint8, 0, in_, s); }
  int Send(CudaStreamHandle s) { return p_->nccl()->Send(value_, bytes_, kNcclUint8, 1, out_, s); }
  void Kernel(CudaStreamHandle s) { p_->Check(p_->kernels()->Scale(kDeviceF32, got_, 2.0, value_, n_, s)); }
  void Computed(int value) { p_->Check(p_->cuda()->EventRecord(computed_[static_cast<size_t>(value)], compute_)); }

  BareProcess* const p_;
  const NcclCommHandle in_, out_;
  const CudaStreamHandle compute_, send_, recv_;
  uint64_t bytes_ = 0;
  int64_t n_ = 0;
  void* got_ = nullptr;
  void* value_ = nullptr;
  std::vector<CudaEventHandle> computed_, came_;
};

// Seconds of the chain, the median of several; `run` enqueues this process's part and waits for it. The same number of times at both ends.
double ChainSeconds(BareProcess* p, Results* r, Chain* chain, int hops, const std::function<void()>& run) {
  std::vector<double> times;
  const Nanos began = Clock::Real()->Now();
  for (int i = 0;; ++i) {
    if (p->rank() == 0) r->go = i < 3 || (i < kMostChains && ToSeconds(Clock::Real()->Now() - began) < kRepeatFor);
    p->Meet();
    const bool go = r->go != 0;
    p->Meet();
    if (!go) break;
    const Nanos begin = Clock::Real()->Now();
    // Another value each time, by which it is told that it was this chain that brought it.
    const float first = static_cast<float>(i + 1);
    if (p->rank() == 0) {
      p->Check(p->kernels()->Fill(DeviceFill::kNumber, first, 0, {nullptr, 0}, kDeviceF32, chain->value(), chain->n(), chain->compute()));
    }
    run();
    times.push_back(ToSeconds(Clock::Real()->Now() - begin));
    if (p->rank() == 0) p->CheckElements(chain->value(), chain->n(), std::ldexp(first, hops), absl::StrCat("bare chain of ", hops, " hops"));
  }
  times.erase(times.begin());
  return Median(times);
}

}  // namespace

BareTimes BareNcclTransfers(const std::vector<uint64_t>& sizes) {
  return Measure(sizes, [&](BareProcess* p, Results* results) {
    const bool sender = p->rank() == 0;
    const CudaStreamHandle s = p->NewStream(true);
    const Slots slots(p, *std::max_element(sizes.begin(), sizes.end()));
    const NcclCommHandle comm = p->Join(0, p->rank());
    for (size_t k = 0; k < sizes.size(); ++k) {
      const uint64_t bytes = sizes[k];
      slots.Fill(bytes, sender, s);
      std::vector<double> times;
      for (int round = 0; round < Rounds(); ++round) {
        times.push_back(Steadily(p, s, TransfersOf(bytes), [&](int i) {
          NcclApi* const nccl = p->nccl();
          p->Finish(comm, sender ? nccl->Send(slots.at(i), bytes, kNcclUint8, 1, comm, s) : nccl->Recv(slots.at(i), bytes, kNcclUint8, 0, comm, s));
        }));
        p->Meet();
      }
      if (sender) continue;
      slots.CheckCame(bytes, "ncclSend");
      results->seconds[k] = Median(times);
    }
  });
}

BareTimes BareIpcCopies(const std::vector<uint64_t>& sizes) {
  return Measure(sizes, [&](BareProcess* p, Results* results) {
    const bool sender = p->rank() == 0;
    const CudaStreamHandle s = p->NewStream(true);
    const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
    const Slots slots(p, most);
    void* from = nullptr;
    if (sender) p->Check(p->cuda()->IpcGetHandle(slots.memory(), &results->handle));
    p->Meet();
    if (!sender) p->Check(p->cuda()->IpcOpen(results->handle, &from));
    for (size_t k = 0; k < sizes.size(); ++k) {
      const uint64_t bytes = sizes[k];
      slots.Fill(bytes, sender, s);
      p->Meet();
      if (!sender) {
        std::vector<double> times;
        for (int round = 0; round < Rounds(); ++round) {
          times.push_back(Steadily(p, s, TransfersOf(bytes), [&](int i) {
            const auto* const there = static_cast<const char*>(from) + most * static_cast<uint64_t>(i % kSlots);
            p->Check(p->cuda()->MemcpyAsync(slots.at(i), there, bytes, s));
          }));
        }
        slots.CheckCame(bytes, "copy");
        results->seconds[k] = Median(times);
      }
      p->Meet();
    }
    if (!sender) p->Check(p->cuda()->IpcClose(from));
  });
}

BareTimes BareNcclHops(const std::vector<uint64_t>& sizes, bool captured, int few, int many) {
  return Measure(sizes, [&](BareProcess* p, Results* results) {
    const NcclCommHandle there = p->Join(0, p->rank()), back = p->Join(1, 1 - p->rank());
    Chain chain(p, p->rank() == 0 ? back : there, p->rank() == 0 ? there : back);
    const CudaStreamHandle s = chain.compute();
    CudaApi* const cuda = p->cuda();
    for (size_t k = 0; k < sizes.size(); ++k) {
      chain.SetBytes(sizes[k]);
      // Connects, and is where what is loaded late is loaded.
      chain.InOrder(2, s);
      p->AwaitAll(s);
      const auto hop = [&](const std::function<double(int)>& seconds) { return (seconds(many) - seconds(few)) / (many - few); };
      double best = 0;
      if (captured) {
        best = hop([&](int hops) {
          CudaGraphHandle graph = nullptr;
          CudaGraphExecHandle exec = nullptr;
          p->Check(cuda->BeginCapture(s));
          chain.InOrder(hops, s);
          p->Check(cuda->EndCapture(s, &graph));
          p->Check(cuda->GraphInstantiate(graph, &exec));
          p->Check(cuda->GraphUpload(exec, s));
          p->AwaitAll(s);
          const double t = ChainSeconds(p, results, &chain, hops, [&] {
            p->Check(cuda->GraphLaunch(exec, s));
            p->AwaitAll(s);
          });
          p->Check(cuda->GraphExecDestroy(exec));
          p->Check(cuda->GraphDestroy(graph));
          return t;
        });
      } else {
        const double one = hop([&](int hops) {
          return ChainSeconds(p, results, &chain, hops, [&] {
            chain.InOrder(hops, s);
            p->AwaitAll(s);
          });
        });
        const double lanes = hop([&](int hops) {
          return ChainSeconds(p, results, &chain, hops, [&] {
            chain.OnLanes(hops);
            chain.AwaitLanes();
          });
        });
        best = std::min(one, lanes);
      }
      if (p->rank() == 0) results->seconds[k] = best;
    }
  });
}

}  // namespace weft::bench
