#include "client/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "client/cli/exit_code.h"
#include "common/base/mutex.h"

namespace weft {
namespace {

std::atomic<bool> requested = false;
Mutex mu;
std::function<void()> callback WEFT_GUARDED_BY(mu);

}  // namespace

void Interrupt::Install() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, s);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (;;) {
      int got = 0;
      if (sigwait(&signals, &got) != 0) continue;
      if (requested.exchange(true)) _exit(static_cast<int>(ExitCode::kInterrupted));
      MutexLock lock(&mu);
      if (callback) callback();
    }
  }).detach();
}

bool Interrupt::Requested() { return requested.load(); }

Interrupt::Scope::Scope(std::function<void()> c) {
  MutexLock lock(&mu);
  outer_ = std::exchange(callback, std::move(c));
  if (requested.load() && callback) callback();
}

Interrupt::Scope::~Scope() {
  MutexLock lock(&mu);
  callback = std::move(outer_);
}

}  // namespace weft
