#include "common/channel/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kBytes = 4096;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Doorbell>> Doorbell::Create() {
  const int fd = memfd_create("weft-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("no memory file for a doorbell: ", strerror(errno)));
  // Sealed: whoever maps it can rely on its pages.
  if (ftruncate(fd, kBytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int e = errno;
    close(fd);
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a doorbell: ", strerror(e)));
  }
  return Attach(fd);
}

absl::StatusOr<std::unique_ptr<Doorbell>> Doorbell::Attach(int fd) {
  struct stat st;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &st) != 0 || st.st_size < static_cast<off_t>(kBytes) || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    if (fd >= 0) close(fd);
    return absl::InvalidArgumentError("the descriptor passed as a doorbell is none");
  }
  void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    const int e = errno;
    close(fd);
    return absl::ResourceExhaustedError(absl::StrCat("a doorbell cannot be mapped: ", strerror(e)));
  }
  return std::unique_ptr<Doorbell>(new Doorbell(fd, static_cast<Word*>(p), true));
}

std::unique_ptr<Doorbell> Doorbell::InProcess() { return std::unique_ptr<Doorbell>(new Doorbell(-1, new Word{}, false)); }

Doorbell::~Doorbell() {
  if (mapped_) {
    munmap(word_, kBytes);
    close(fd_);
  } else {
    delete word_;
  }
}

// Ring counts, then looks for a sleeper; Wait announces itself, then looks at the count (the kernel does, under its own lock). Both
// in one total order, so at least one sees the other and no ring is lost.
void Doorbell::Ring() {
  word_->rings.fetch_add(1, std::memory_order_seq_cst);
  if (word_->sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &word_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

uint32_t Doorbell::Snapshot() const { return word_->rings.load(std::memory_order_seq_cst); }

bool Doorbell::Wait(uint32_t seen, Nanos until, Nanos spin) {
  const auto rang = [&] { return word_->rings.load(std::memory_order_seq_cst) != seen; };
  if (rang()) return true;
  const Clock* clock = Clock::Real();
  if (spin > 0) {
    Nanos now = clock->Now();
    const Nanos start = now;
    while (now - start < spin && now < until) {
      for (int i = 0; i < 32; ++i) {
        if (rang()) return true;
        Pause();
      }
      now = clock->Now();
    }
  }
  timespec ts;
  const timespec* limit = nullptr;
  if (until != std::numeric_limits<Nanos>::max()) {
    const Nanos at = until < 0 ? 0 : until;
    ts.tv_sec = at / kNanosPerSecond;
    ts.tv_nsec = at % kNanosPerSecond;
    limit = &ts;
  }
  word_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool result = true;
  while (!rang()) {
    // Not the private kind: ringers are other processes.
    if (syscall(SYS_futex, &word_->rings, FUTEX_WAIT_BITSET, seen, limit, nullptr, FUTEX_BITSET_MATCH_ANY) != 0 &&
        errno == ETIMEDOUT) {
      result = rang();
      break;
    }
  }
  word_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

}  // namespace weft
