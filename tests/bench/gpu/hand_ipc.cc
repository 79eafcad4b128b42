#include "tests/bench/gpu/hand_ipc.h"

#include "common/device/cuda/api/device_dtype.h"
#include "tests/bench/gpu/bare.h"

namespace weft::bench {
namespace {

constexpr int kSenders = 3;
constexpr int kSlots = 2;
constexpr int kAhead = 4;

struct Shared {
  struct alignas(64) Flag {
    uint32_t ready;
    uint32_t free;
  };
  Flag flags[kSenders][kSlots];
  CudaIpcHandle handles[kSenders];
  double period_s;
};

class Process {
 public:
  Process(BareProcess* p, const Common<Shared>& shared, int64_t rows)
      : p_(p), cuda_(p->cuda()), kernels_(p->kernels()), shared_(shared.get()), rows_(rows), bytes_(static_cast<size_t>(rows) * rows * 2) {
    Check(cuda_->HostRegister(shared_, shared.bytes()));
  }

  void Send(int me, int total) {
    void* memory = nullptr;
    CudaStreamHandle s = nullptr;
    Check(cuda_->Malloc(bytes_ * kSlots, &memory));
    Check(cuda_->StreamCreate(0, &s));
    Check(cuda_->IpcGetHandle(memory, &shared_->handles[me]));
    p_->Meet();
    std::vector<CudaEventHandle> events(kAhead);
    for (auto& e : events) Check(cuda_->EventCreate(false, &e));
    for (int k = 0; k < total; ++k) {
      if (k >= kAhead) p_->Await(events[k % kAhead]);
      Shared::Flag* const f = &shared_->flags[me][k % kSlots];
      Check(cuda_->StreamWait32(s, &f->free, 1));
      Check(cuda_->StreamWrite32(s, &f->free, 0));
      Check(kernels_->Fill(DeviceFill::kNumber, me + 1, 0, {nullptr, k}, kDeviceF16, Slot(memory, k), rows_ * rows_, s));
      Check(cuda_->StreamWrite32(s, &f->ready, 1));
      Check(cuda_->EventRecord(events[k % kAhead], s));
    }
    p_->AwaitAll(s);
  }

  void Receive(int warm, int iterations) {
    p_->Meet();
    std::vector<void*> from(kSenders), to(kSenders), product(kSenders);
    for (int i = 0; i < kSenders; ++i) {
      Check(cuda_->IpcOpen(shared_->handles[i], &from[i]));
      Check(cuda_->Malloc(bytes_ * kSlots, &to[i]));
      Check(cuda_->Malloc(bytes_, &product[i]));
    }
    const CudaStreamHandle copies = p_->NewStream(true), compute = p_->NewStream(false);
    Check(kernels_->OpenStream(compute));
    std::vector<CudaEventHandle> copied(kSenders * kSlots), computed(kSenders * kSlots), done(kAhead);
    for (auto* events : {&copied, &computed, &done}) {
      for (auto& e : *events) Check(cuda_->EventCreate(false, &e));
    }
    Nanos begin = 0;
    const int total = warm + iterations;
    for (int k = 0; k < total; ++k) {
      if (k >= kAhead) p_->Await(done[k % kAhead]);
      if (k == warm + kAhead) begin = Clock::Real()->Now();  // iteration `warm` is done
      for (int i = 0; i < kSenders; ++i) {
        const int slot = i * kSlots + k % kSlots;
        Shared::Flag* const f = &shared_->flags[i][k % kSlots];
        if (k >= kSlots) Check(cuda_->StreamWaitEvent(copies, computed[slot]));
        Check(cuda_->StreamWait32(copies, &f->ready, 1));
        Check(cuda_->MemcpyAsync(Slot(to[i], k), Slot(from[i], k), bytes_, copies));
        Check(cuda_->StreamWrite32(copies, &f->ready, 0));
        Check(cuda_->StreamWrite32(copies, &f->free, 1));
        Check(cuda_->EventRecord(copied[slot], copies));
        Check(cuda_->StreamWaitEvent(compute, copied[slot]));
        Check(kernels_->Matmul(kDeviceF16, DevicePrecision::kFp32, Slot(to[i], k), Slot(to[i], k), product[i], rows_, rows_, rows_, compute));
        Check(cuda_->EventRecord(computed[slot], compute));
      }
      Check(cuda_->EventRecord(done[k % kAhead], compute));
    }
    p_->AwaitAll(compute);
    shared_->period_s = ToSeconds(Clock::Real()->Now() - begin) / (iterations - 1);
    for (void* memory : from) Check(cuda_->IpcClose(memory));
  }

 private:
  void Check(int code) { p_->Check(code); }
  void* Slot(void* memory, int k) const { return static_cast<char*>(memory) + bytes_ * (k % kSlots); }

  BareProcess* const p_;
  CudaApi* const cuda_;
  KernelsApi* const kernels_;
  Shared* const shared_;
  const int64_t rows_;
  const size_t bytes_;
};

}  // namespace

double HandIpcPeriod(int64_t rows, int warm, int iterations) {
  Common<Shared> shared;
  for (auto& sender : shared->flags) {
    for (Shared::Flag& f : sender) f.free = 1;
  }
  RunBare(kSenders + 1, 30, [&](BareProcess& p) {
    Process process(&p, shared, rows);
    if (p.rank() < kSenders) {
      process.Send(p.rank(), warm + iterations);
    } else {
      process.Receive(warm, iterations);
    }
    p.Meet();  // nobody goes whose memory others have
  });
  return shared->period_s;
}

}  // namespace weft::bench
