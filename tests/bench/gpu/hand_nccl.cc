#include "tests/bench/gpu/hand_nccl.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/device/cuda/api/device_dtype.h"
#include "tests/bench/gpu/bare.h"

namespace weft::bench {
namespace {

constexpr int kSenders = 3;
constexpr size_t kSlots = 2;
constexpr size_t kAhead = 4;

std::vector<CudaEventHandle> Events(const BareProcess& p, size_t n) {
  std::vector<CudaEventHandle> events(n);
  for (CudaEventHandle& e : events) e = p.NewEvent();
  return events;
}

class Hand {
 public:
  Hand(BareProcess* p, int64_t rows) : p_(p), cuda_(p->cuda()), rows_(rows), bytes_(static_cast<size_t>(rows * rows) * 2) {}

  void Send(size_t total) {
    char* const memory = static_cast<char*>(p_->Allocate(bytes_ * kSlots));
    const CudaStreamHandle compute = p_->NewStream(false), sends = p_->NewStream(true);
    const std::vector<CudaEventHandle> made = Events(*p_, kSlots), sent = Events(*p_, kSlots), done = Events(*p_, kAhead);
    const NcclCommHandle comm = p_->Join(p_->rank(), 0);
    for (size_t k = 0; k < total; ++k) {
      if (k >= kAhead) p_->Await(done[k % kAhead]);
      const size_t slot = k % kSlots;
      char* const value = memory + bytes_ * slot;
      if (k >= kSlots) p_->Check(cuda_->StreamWaitEvent(compute, sent[slot]));
      p_->Check(p_->kernels()->Fill(DeviceFill::kNumber, p_->rank() + 1, 0, {nullptr, 0}, kDeviceF16, value, rows_ * rows_, compute));
      p_->Check(cuda_->EventRecord(made[slot], compute));
      p_->Check(cuda_->StreamWaitEvent(sends, made[slot]));
      p_->Finish(comm, p_->nccl()->Send(value, bytes_, kNcclUint8, 1, comm, sends));
      p_->Check(cuda_->EventRecord(sent[slot], sends));
      p_->Check(cuda_->EventRecord(done[k % kAhead], sends));
    }
    p_->AwaitAll(sends);
  }

  double Receive(size_t warm, size_t iterations) {
    std::vector<NcclCommHandle> comms;
    std::vector<char*> to, product;
    for (int i = 0; i < kSenders; ++i) {
      comms.push_back(p_->Join(i, 1));
      to.push_back(static_cast<char*>(p_->Allocate(bytes_ * kSlots)));
      product.push_back(static_cast<char*>(p_->Allocate(bytes_)));
    }
    const CudaStreamHandle receives = p_->NewStream(true), compute = p_->NewStream(false);
    p_->Check(p_->kernels()->OpenStream(compute));
    const std::vector<CudaEventHandle> came = Events(*p_, kSenders * kSlots), used = Events(*p_, kSenders * kSlots);
    const std::vector<CudaEventHandle> done = Events(*p_, kAhead);
    Nanos begin = 0;
    const size_t total = warm + iterations;
    for (size_t k = 0; k < total; ++k) {
      if (k >= kAhead) p_->Await(done[k % kAhead]);
      if (k == warm + kAhead) begin = Clock::Real()->Now();  // iteration `warm` is done
      for (size_t i = 0; i < kSenders; ++i) {
        const size_t slot = i * kSlots + k % kSlots;
        char* const value = to[i] + bytes_ * (k % kSlots);
        if (k >= kSlots) p_->Check(cuda_->StreamWaitEvent(receives, used[slot]));
        p_->Finish(comms[i], p_->nccl()->Recv(value, bytes_, kNcclUint8, 0, comms[i], receives));
        p_->Check(cuda_->EventRecord(came[slot], receives));
        p_->Check(cuda_->StreamWaitEvent(compute, came[slot]));
        p_->Check(p_->kernels()->Matmul(kDeviceF16, DevicePrecision::kFp32, value, value, product[i], rows_, rows_, rows_, compute));
        p_->Check(cuda_->EventRecord(used[slot], compute));
      }
      p_->Check(cuda_->EventRecord(done[k % kAhead], compute));
    }
    p_->AwaitAll(compute);
    const double period = ToSeconds(Clock::Real()->Now() - begin) / static_cast<double>(iterations - 1);
    // F16[2] of 1.0 as one F32, and so on: what was received, not the products, which may be infinite.
    const uint16_t halves[kSenders] = {0x3c00, 0x4000, 0x4200};
    for (int i = 0; i < kSenders; ++i) {
      const uint32_t bits = halves[i] | static_cast<uint32_t>(halves[i]) << 16;
      float both = 0;
      std::memcpy(&both, &bits, sizeof both);
      for (size_t s = 0; s < kSlots; ++s) {
        p_->CheckElements(to[static_cast<size_t>(i)] + bytes_ * s, rows_ * rows_ / 2, both, absl::StrCat("by hand, sender ", i));
      }
    }
    return period;
  }

 private:
  BareProcess* const p_;
  CudaApi* const cuda_;
  const int64_t rows_;
  const size_t bytes_;
};

}  // namespace

double HandNcclPeriod(int64_t rows, int warm, int iterations) {
  if (rows % 2 != 0 || iterations <= static_cast<int>(kAhead)) {
    throw std::runtime_error("by hand: an even number of rows, and more than 4 iterations");
  }
  Common<double> period;
  RunBare(kSenders + 1, 45, [&](BareProcess& p) {
    Hand hand(&p, rows);
    if (p.rank() < kSenders) {
      hand.Send(static_cast<size_t>(warm + iterations));
    } else {
      *period.get() = hand.Receive(static_cast<size_t>(warm), static_cast<size_t>(iterations));
    }
  });
  return *period.get();
}

}  // namespace weft::bench
