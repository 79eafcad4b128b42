#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/channel/doorbell.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// One non-blocking NCCL communicator and its life: joining under a deadline, calls, and an end that comes whatever the peers do. NCCL does not
// tell of a peer that died on a connected NVLink edge, so liveness comes from outside: whoever learns of a death calls Abort.
//
// Calls are made by one thread at a time (the loop's; during bootstrap the graph's own). Abort, Health and Ended are for any thread.
class NcclComm {
 public:
  struct Options {
    NcclApi* api = nullptr;        // the three outlive it
    CudaDevice* device = nullptr;
    const Clock* clock = nullptr;
    // For messages: "link w0 -> w1", "collective grads".
    std::string label;
    // Workers by rank.
    std::vector<std::string> workers;
    int rank = 0;
    // Most SMs that one of its kernels takes.
    int max_ctas = 16;
    // An end for which no work of this rank is on the device is put aside (CudaDevice::PutAside): ncclCommAbort gives memory back to CUDA. Otherwise,
    // and without this, it begins at once.
    bool close_at_rest = false;
    // Rung when it fails and when it has ended. May be nullptr; outlives it.
    Doorbell* doorbell = nullptr;
    // ncclCommAbort takes about half a second; after so long it counts as hung.
    Nanos abort_limit = 10 * kNanosPerSecond;
    // Called once, by the thread that notices it, when the abort hangs or fails: then memory and streams that it uses are lost, and only
    // a restart of the worker gets them back. May be empty.
    std::function<void(const absl::Status&)> on_hung;
  };

  // InvalidArgument: fewer than two ranks, or no such rank.
  static absl::StatusOr<std::shared_ptr<NcclComm>> Create(Options options);
  // Aborts. Where the end is not put aside it waits for it, at most abort_limit: wait for Ended() before where that matters.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Meets the other ranks, once. Blocks until all have come, `deadline` (Options::clock's time) or Abort. DeadlineExceeded names the other
  // ranks; NCCL does not say which of them is missing.
  absl::Status Join(const NcclId& id, Nanos deadline);

  // One call of NCCL, or one group of calls, on it: `call` returns NCCL's code. Pre: joined and Settled(). Any code but kNcclSuccess and
  // kNcclInProgress ends the communicator; after kNcclInProgress (the first use of a way to a peer) nothing else may be called until
  // Settled(). Errors name the communicator, `what` and the other ranks.
  absl::Status Call(const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call);
  // Whether the last Call is over. True once it has failed.
  bool Settled();

  // Takes over a captured call of it (CaptureNccl), which it frees when it ends: NCCL's abort waits for that. Its number for Replay.
  int AddReplay(CudaGraphExecHandle captured);
  // Puts a captured call on the stream: unlike Call, it is there when this returns. Pre: joined and Settled(). An error ends the communicator, and names it,
  // `what` and the other ranks.
  absl::Status Replay(int number, const std::string& what, CudaStreamHandle stream);

  // Ends it with a first cause. Does not block: ncclCommAbort does, so it runs on a thread of its own. What is under way on the device ends
  // by then. Idempotent.
  void Abort(const absl::Status& cause);
  // The first cause, without asking NCCL; OK while there is none.
  absl::Status cause() const;
  // The same, after asking NCCL for asynchronous errors.
  absl::Status Health();
  // After Abort: NCCL touches no memory any more, or never will again be asked (a failed abort). Transfers that were under way are over.
  bool Ended();
  // Ended, or why not yet: "abort of link w0 -> w1 (w1 is gone), for 0.2 s". Empty while it is not aborted, or once it has ended.
  std::string EndWaitsFor() const;

  // Work of it that may be on the device, for close_at_rest: from before its launch to its end. Used() is for work that is launched again and again
  // without a word, as captured calls are.
  void Begin();
  void End();
  void Used() { Begin(); }

  // Holds `memory` until it has ended: for what a kernel that is not known to be over may touch. For ever when the abort hangs or fails.
  void KeepUntilEnded(std::shared_ptr<void> memory);

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.workers.size()); }
  const Options& options() const { return options_; }
  // The other ranks: "w1", "w1, w2".
  const std::string& others() const { return others_; }

 private:
  struct Core;

  NcclComm(Options options, std::string others);
  // Runs on the aborting thread, or where what was put aside is done.
  static void Finish(const std::shared_ptr<Core>& core);

  const Options options_;
  const std::string others_;
  const std::shared_ptr<Core> core_;  // shared with the aborting thread, which a hung abort never lets go
};

}  // namespace weft
