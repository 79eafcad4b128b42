#include "tests/bench/gpu/hand_ipc.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/library.h"

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
  std::atomic<int> offered;
  std::atomic<int> failed;
  std::atomic<int> ended;  // the receiver has done with the senders' memory
  double period_s;
  char problem[256];
};

class Process {
 public:
  Process(Shared* shared, int64_t rows) : shared_(shared), rows_(rows), bytes_(static_cast<size_t>(rows) * rows * 2) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", getenv("CUDA_MPS_PIPE_DIRECTORY") == nullptr ? "32" : "8", 0);
    auto plugin = LoadCudaPlugin("");
    if (!plugin.ok()) throw std::runtime_error(std::string(plugin.status().message()));
    cuda_ = (*plugin)->cuda;
    kernels_ = (*plugin)->kernels;
    Check(cuda_->SetDevice(0));
    const char* problem = nullptr;
    Check(kernels_->Load(&problem));
    Check(cuda_->HostRegister(shared, (sizeof(Shared) + 4095) / 4096 * 4096));
  }

  void Send(int me, int total) {
    void* memory = nullptr;
    CudaStreamHandle s = nullptr;
    Check(cuda_->Malloc(bytes_ * kSlots, &memory));
    Check(cuda_->StreamCreate(0, &s));
    Check(cuda_->IpcGetHandle(memory, &shared_->handles[me]));
    shared_->offered.fetch_add(1);
    std::vector<CudaEventHandle> events(kAhead);
    for (auto& e : events) Check(cuda_->EventCreate(false, &e));
    for (int k = 0; k < total; ++k) {
      if (k >= kAhead) Await(events[k % kAhead]);
      Shared::Flag* const f = &shared_->flags[me][k % kSlots];
      Check(cuda_->StreamWait32(s, &f->free, 1));
      Check(cuda_->StreamWrite32(s, &f->free, 0));
      Check(kernels_->Fill(DeviceFill::kNumber, me + 1, 0, {nullptr, k}, kDeviceF16, Slot(memory, k), rows_ * rows_, s));
      Check(cuda_->StreamWrite32(s, &f->ready, 1));
      Check(cuda_->EventRecord(events[k % kAhead], s));
    }
    Check(cuda_->StreamSynchronize(s));
    while (shared_->ended.load() == 0 && shared_->failed.load() == 0) usleep(1000);
  }

  void Receive(int warm, int iterations) {
    while (shared_->offered.load() < kSenders) {
      if (shared_->failed.load() != 0) return;
      usleep(1000);
    }
    std::vector<void*> from(kSenders), to(kSenders), product(kSenders);
    for (int i = 0; i < kSenders; ++i) {
      Check(cuda_->IpcOpen(shared_->handles[i], &from[i]));
      Check(cuda_->Malloc(bytes_ * kSlots, &to[i]));
      Check(cuda_->Malloc(bytes_, &product[i]));
    }
    int least = 0, greatest = 0;
    Check(cuda_->StreamPriorityRange(&least, &greatest));
    CudaStreamHandle copies = nullptr, compute = nullptr;
    Check(cuda_->StreamCreate(greatest, &copies));
    Check(cuda_->StreamCreate(0, &compute));
    Check(kernels_->OpenStream(compute));
    std::vector<CudaEventHandle> copied(kSenders * kSlots), computed(kSenders * kSlots), done(kAhead);
    for (auto* events : {&copied, &computed, &done}) {
      for (auto& e : *events) Check(cuda_->EventCreate(false, &e));
    }
    Nanos begin = 0;
    const int total = warm + iterations;
    for (int k = 0; k < total; ++k) {
      if (k >= kAhead) Await(done[k % kAhead]);
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
    Check(cuda_->StreamSynchronize(compute));
    shared_->period_s = ToSeconds(Clock::Real()->Now() - begin) / (iterations - 1);
    for (void* p : from) cuda_->IpcClose(p);
    shared_->ended.store(1);
  }

 private:
  void Check(int code) {
    if (code != kCudaSuccess) throw std::runtime_error(cuda_->ErrorText(code));
  }
  void Await(CudaEventHandle e) {
    while (true) {
      const int code = cuda_->EventQuery(e);
      if (code == kCudaSuccess) return;
      if (code != kCudaNotReady) Check(code);
      if (shared_->failed.load() != 0) throw std::runtime_error("another process failed");
    }
  }
  void* Slot(void* memory, int k) const { return static_cast<char*>(memory) + bytes_ * (k % kSlots); }

  Shared* const shared_;
  const int64_t rows_;
  const size_t bytes_;
  CudaApi* cuda_ = nullptr;
  KernelsApi* kernels_ = nullptr;
};

}  // namespace

double HandIpcPeriod(int64_t rows, int warm, int iterations) {
  const size_t bytes = (sizeof(Shared) + 4095) / 4096 * 4096;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  Shared* const shared = new (memory) Shared();
  for (auto& sender : shared->flags) {
    for (Shared::Flag& f : sender) f.free = 1;
  }
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int i = 0; i <= kSenders; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      try {
        Process process(shared, rows);
        if (i < kSenders) {
          process.Send(i, warm + iterations);
        } else {
          process.Receive(warm, iterations);
        }
        _exit(0);
      } catch (const std::exception& e) {
        if (shared->failed.exchange(1) == 0) std::strncpy(shared->problem, e.what(), sizeof shared->problem - 1);
        _exit(1);
      }
    }
    children.push_back(pid);
  }
  const Nanos deadline = Clock::Real()->Now() + 60 * kNanosPerSecond;
  for (const pid_t pid : children) {
    while (waitpid(pid, nullptr, WNOHANG) == 0) {
      if (Clock::Real()->Now() > deadline) {
        kill(pid, SIGKILL);
        shared->failed.store(1);
      }
      usleep(1000);
    }
  }
  const double period = shared->period_s;
  const std::string problem = shared->failed.load() != 0 ? absl::StrCat("by hand: ", shared->problem[0] != 0 ? shared->problem : "no end within 60 s") : "";
  munmap(memory, bytes);
  if (!problem.empty()) throw std::runtime_error(problem);
  return period;
}

}  // namespace weft::bench
