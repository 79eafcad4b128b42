#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/device/cuda/cuda_device.h"
#include "worker/session/deferred_free.h"

namespace weft {

// When memory goes back to CUDA: such calls wait until the device is idle and hold up every other call meanwhile, so they are put aside
// (CudaDevice::PutAside) until nothing of this worker is on the device and nobody is about to put something there. The calls run on a thread of
// this object; for that while the loop leaves the device alone, and still answers. Loading device code waits for the device likewise: a thread that is about to
// do so asks for a Rest. Thread-safe.
class QuietTime {
 public:
  // A call that gives back takes milliseconds, that of a communicator seconds, and there may be hundreds, where graphs have not rested for long: when none
  // ends for so long, one counts as hung. So does a load of device code that takes so long.
  static constexpr Nanos kLimit = 60 * kNanosPerSecond;

  // What they point to outlives it. `doorbell` is the loop's: rung when there is something for Holds to decide. `on_hung` is called once, by the
  // loop's thread, when that is so by `clock`: only a restart of the worker helps then. It may be empty.
  QuietTime(const CudaDevice* device, DeferredFree* deferred, Doorbell* doorbell, const Clock* clock = Clock::Real(),
            std::function<void(const absl::Status&)> on_hung = {});
  // Ends the thread; what is put aside stays so.
  ~QuietTime();
  QuietTime(const QuietTime&) = delete;
  QuietTime& operator=(const QuietTime&) = delete;

  // The loop's thread, once a turn. `at_rest`: nothing of any graph is under way. True: keep off the device in this turn.
  bool Holds(bool at_rest);
  // The loop's thread: no graph is to begin an execution, those begun go on. True while somebody waits for a Rest, so that it comes though clients never
  // pause. Where several workers do so at once, see Executor::PauseGraphs for why they do not wait for each other.
  bool Pauses() const { return pauses_.load(std::memory_order_acquire); }

  // For a thread that puts work on the device which may wait for peers (bootstrap): waits until no memory is being given back, and while the result
  // is held none is. DeadlineExceeded, with WaitText, when that is not over at `deadline` of the clock; or what `cancelled` says, if it is not OK.
  absl::StatusOr<std::shared_ptr<void>> Use(Nanos deadline = std::numeric_limits<Nanos>::max(), const std::function<absl::Status()>& cancelled = {});

  // Whether somebody holds one: what he has put on the device may wait for a peer, and that for what he has yet to put there, so that nothing may be called
  // that waits for the device. The doorbell rings when that is over. Any thread.
  bool InUse() const;

  // For a thread that makes CUDA load code, for `graph`: waits until nothing of this worker is on the device, and while the result is held nothing is put
  // there. DeadlineExceeded, with WaitText, when that is not so at `deadline` of the clock; or what `cancelled` says, if it is not OK. Not while holding a Use.
  absl::StatusOr<std::shared_ptr<void>> Rest(const std::string& graph, Nanos deadline, const std::function<absl::Status()>& cancelled = {});

  // What is waited for while Holds or Pauses says true; any thread. Empty when nothing is.
  std::string WaitText() const;

  // Waits until all that was put aside is given back, at most `timeout`. False when the worker's graphs did not rest for so long. Not while
  // holding a Use; not for the loop's thread.
  bool Await(Nanos timeout);

  // Rings the loop where there is something to give back that could not be before.
  void LookAgain();

 private:
  void Loop();
  void EndRest(std::list<std::string>::iterator who, bool had) WEFT_REQUIRES(mu_);
  // After any change of what it goes by.
  void Tell() WEFT_REQUIRES(mu_);
  std::string TextLocked() const WEFT_REQUIRES(mu_);
  std::string RestsFor() const;

  const CudaDevice* const device_;
  DeferredFree* const deferred_;
  Doorbell* const doorbell_;
  const Clock* const clock_;
  const std::function<void(const absl::Status&)> on_hung_;
  std::atomic<Nanos> since_{0};  // when giving back, or a rest, began
  bool told_hung_ = false;  // loop's thread
  int64_t given_ = 0;       // loop's thread: CudaDevice::Collected when it last looked
  Nanos moved_ = 0;         // loop's thread: when it last found that this had grown
  std::atomic<bool> running_{false};  // giving back; written under mu_
  std::atomic<bool> resting_{false};  // a Rest is granted; written under mu_
  std::atomic<bool> pauses_{false};   // somebody waits for a Rest, and nobody has a Use, which may take long; written under mu_
  mutable Mutex mu_;
  CondVar changed_;
  int users_ WEFT_GUARDED_BY(mu_) = 0;
  std::list<std::string> wanted_ WEFT_GUARDED_BY(mu_);  // graphs that wait for a Rest, in their order, behind that which has it
  bool taken_ WEFT_GUARDED_BY(mu_) = false;             // the first has it
  Nanos pauses_since_ WEFT_GUARDED_BY(mu_) = 0;
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weft
