#include "tests/bench/gpu/bare.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/device/cuda/api/device_dtype.h"
#include "common/device/cuda/environment.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {

struct BareProcess::Board {
  std::atomic<int> failed{0};
  std::atomic<int> done{0};
  std::atomic<int> arrived{0};
  NcclId ids[8];
  std::atomic<int> has_id[8];
  char problem[512];
};

int Gpus() {
  const char* const gpus = getenv("WEFT_TEST_GPUS");
  return gpus == nullptr ? 1 : std::max(1, atoi(gpus));
}

int GpuOrdinal(int i) { return GpuDevice() == "cuda" ? i % Gpus() : 0; }

bool SharesGpu(int workers) { return Gpus() < workers; }

std::shared_ptr<void> MapCommon(size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("no shared memory");
  return std::shared_ptr<void>(p, [bytes](void* m) { munmap(m, bytes); });
}

BareProcess::BareProcess(Board* board, int rank, int size, Nanos deadline) : board_(board), rank_(rank), size_(size), deadline_(deadline) {
  SetCudaEnvironment({.share_gpu = SharesGpu(size), .name = absl::StrCat("bare-", getpid(), "-", rank), .loopback = true});
  plugin_ = &Plugin();
  Check(cuda()->SetDevice(GpuOrdinal(rank)));
  const char* problem = nullptr;
  if (const int code = kernels()->Load(&problem); code != kCudaSuccess) {
    throw std::runtime_error(problem != nullptr ? problem : cuda()->ErrorText(code));
  }
}

BareProcess::~BareProcess() {
  for (const NcclCommHandle c : comms_) nccl()->CommAbort(c);
}

void BareProcess::Check(int code) const {
  if (code != kCudaSuccess) throw std::runtime_error(absl::StrCat("process ", rank_, ": ", cuda()->ErrorText(code)));
}

CudaStreamHandle BareProcess::NewStream(bool transfers) const {
  int least = 0, greatest = 0;
  Check(cuda()->StreamPriorityRange(&least, &greatest));
  CudaStreamHandle s = nullptr;
  Check(cuda()->StreamCreate(transfers ? greatest : 0, &s));
  return s;
}

CudaEventHandle BareProcess::NewEvent(bool timing) const {
  CudaEventHandle e = nullptr;
  Check(cuda()->EventCreate(timing, &e));
  return e;
}

void* BareProcess::Allocate(size_t bytes) const {
  void* p = nullptr;
  Check(cuda()->Malloc(bytes, &p));
  return p;
}

NcclCommHandle BareProcess::Join(int link, int rank) {
  if (nccl() == nullptr) throw std::runtime_error(absl::StrCat("no NCCL: ", plugin_->nccl_problem));
  if (rank == 0) {
    CheckNccl(nullptr, nccl()->GetUniqueId(&board_->ids[link]));
    board_->has_id[link].store(1);
  }
  while (board_->has_id[link].load() == 0) {
    CheckOpen();
    usleep(100);
  }
  NcclCommHandle comm = nullptr;
  // What weft-worker gives its own communicators, unless --nccl-max-ctas says otherwise.
  const int code = nccl()->CommInit(&comm, 2, board_->ids[link], rank, NcclComm::Options().max_ctas);
  CheckNccl(comm, code);
  comms_.push_back(comm);
  Finish(comm, code);
  return comm;
}

void BareProcess::CheckNccl(NcclCommHandle comm, int code) const {
  if (code == kNcclSuccess || code == kNcclInProgress) return;
  const char* const last = nccl()->LastError(comm);
  throw std::runtime_error(absl::StrCat("process ", rank_, ": NCCL says ", nccl()->ErrorText(code), last == nullptr || *last == 0 ? "" : ": ",
                                        last == nullptr ? "" : last));
}

bool BareProcess::Settled(NcclCommHandle comm) const {
  int state = kNcclSuccess;
  CheckNccl(comm, nccl()->GetAsyncError(comm, &state));
  CheckNccl(comm, state);
  return state == kNcclSuccess;
}

void BareProcess::Finish(NcclCommHandle comm, int code) const {
  CheckNccl(comm, code);
  while (!Settled(comm)) CheckOpen();
}

void BareProcess::CheckOpen() const {
  if (board_->failed.load() != 0) throw std::runtime_error("another process failed");
  if (Clock::Real()->Now() > deadline_) throw std::runtime_error(absl::StrCat("process ", rank_, " waits and gets no further"));
  if (GpuDevice() != "cuda") sched_yield();  // the CPU plays the GPU
}

void BareProcess::Await(CudaEventHandle event) const {
  while (true) {
    const int code = cuda()->EventQuery(event);
    if (code == kCudaSuccess) return;
    if (code != kCudaNotReady) Check(code);
    CheckOpen();
  }
}

void BareProcess::AwaitAll(CudaStreamHandle stream) const {
  while (true) {
    const int code = cuda()->StreamQuery(stream);
    if (code == kCudaSuccess) return;
    if (code != kCudaNotReady) Check(code);
    CheckOpen();
  }
}

void BareProcess::Meet() {
  const int all = size_ * ++rounds_;
  board_->arrived.fetch_add(1);
  while (board_->arrived.load() < all) CheckOpen();
}

void BareProcess::CheckElements(const void* p, int64_t n, float want, const std::string& what) const {
  const CudaStreamHandle s = NewStream(true);
  void* host = nullptr;
  Check(cuda()->HostAlloc(2 * sizeof(float), &host));
  const auto* const from = static_cast<const char*>(p);
  auto* const got = static_cast<float*>(host);
  Check(cuda()->MemcpyAsync(got, from, sizeof(float), s));
  Check(cuda()->MemcpyAsync(got + 1, from + (n - 1) * sizeof(float), sizeof(float), s));
  AwaitAll(s);
  const float first = got[0], last = got[1];
  Check(cuda()->HostFree(host));
  Check(cuda()->StreamDestroy(s));
  if (first != want || last != want) throw std::runtime_error(absl::StrCat(what, ": ", first, " and ", last, " came, not ", want));
}

void RunBare(int processes, double seconds, const std::function<void(BareProcess&)>& body) {
  Common<BareProcess::Board> board;
  const Nanos deadline = Clock::Real()->Now() + FromSeconds(seconds);
  std::fflush(stdout);
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = fork();
    if (pid < 0) {
      for (const pid_t child : children) kill(child, SIGKILL);
      for (const pid_t child : children) waitpid(child, nullptr, 0);
      throw std::runtime_error("cannot fork");
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      try {
        // Not taken down after a failure: that could hang.
        auto* const process = new BareProcess(board.get(), i, processes, deadline);
        body(*process);
        process->Meet();
        board->done.fetch_add(1);
        delete process;
      } catch (const std::exception& e) {
        if (board->failed.exchange(1) == 0) std::strncpy(board->problem, e.what(), sizeof board->problem - 1);
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(pid);
  }
  const auto fail = [&](const std::string& why) {
    if (board->done.load() == processes || board->failed.exchange(1) != 0) return;
    std::strncpy(board->problem, why.c_str(), sizeof board->problem - 1);
  };
  // What has failed or is done ends by itself, but not where a call of CUDA or NCCL hangs.
  Nanos kill_at = deadline + 2 * kNanosPerSecond;
  std::vector<bool> ended(children.size(), false);
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    const Nanos now = Clock::Real()->Now();
    if (board->failed.load() != 0 || board->done.load() == processes) kill_at = std::min(kill_at, now + 6 * kNanosPerSecond);
    if (now > kill_at) fail(absl::StrCat("no end within ", seconds, " s"));
    for (size_t i = 0; i < children.size(); ++i) {
      if (ended[i]) continue;
      if (now > kill_at) kill(children[i], SIGKILL);
      int status = 0;
      if (waitpid(children[i], &status, WNOHANG) == 0) continue;
      ended[i] = true;
      if (status != 0) fail(absl::StrCat("process ", i, " ended with status ", status));
    }
    usleep(1000);
  }
  if (board->done.load() == processes) return;
  throw std::runtime_error(absl::StrCat("bare: ", board->problem));
}

}  // namespace weft::bench
