#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/clock.h"

namespace weft {

// One futex word in shared memory on which one thread sleeps: a worker's loop, or a session. Peers of the host map it and ring;
// ringing costs one atomic add, and a system call only while the owner sleeps. Thread-safe; any number of ringers.
class Doorbell {
 public:
  // Makes a new one in a memfd.
  static absl::StatusOr<std::unique_ptr<Doorbell>> Create();
  // Maps another process's, from the descriptor it passed. Takes ownership of `fd`.
  static absl::StatusOr<std::unique_ptr<Doorbell>> Attach(int fd);
  // Without shared memory, for tests within one process.
  static std::unique_ptr<Doorbell> InProcess();

  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  void Ring();
  // Take before looking for work; Wait returns at once if it rang since.
  uint32_t Snapshot() const;
  // Sleeps until it rings after `seen` was taken, or until `until` (Clock::Real's time; Event::kUnknown: no limit). Spins up to
  // `spin` first. Returns true when it rang.
  bool Wait(uint32_t seen, Nanos until, Nanos spin);
  // To be passed to peers; -1 for InProcess.
  int fd() const { return fd_; }

 private:
  struct Word {
    std::atomic<uint32_t> rings;
    std::atomic<uint32_t> sleepers;
  };
  Doorbell(int fd, Word* word, bool mapped) : fd_(fd), word_(word), mapped_(mapped) {}

  int fd_;
  Word* word_;
  bool mapped_;
};

}  // namespace weft
