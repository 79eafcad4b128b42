#pragma once

// Edges between GPU workers: all that lead from one worker to another share one communicator of two ranks.

#include <atomic>
#include <deque>
#include <memory>

#include "common/channel/port.h"
#include "common/channel/shm/edge_spec.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/comm/nccl/nccl_scratch.h"
#include "common/comm/nccl/nccl_work.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// One worker's end of the way from worker A (rank 0 of the communicator) to worker B (rank 1).
//
// Ahead of each value goes an announcement through a host port of the same edge (shared memory on one host, a GlooMailbox between hosts):
// dtype, dims and bytes, or the error of a poisoned value. The receiver launches ncclRecv only once it has it, for exactly the announced bytes.
// ncclSend is launched when the send is issued, behind the value on the device, so that what is launched on a stream and on the communicator
// stays in the plan's order whatever is ready first; the announcement of a large value waits on the host until the value is ready, and the
// receiver's kernel with it. Values below kLateBytes are announced at once: there the wait of a small kernel costs less than the host's way.
//
// A poisoned value moves nothing: both ends know so from the announcement, which no CUDA graph could read (with `launch: graph` errors are
// status words alone, and every transfer moves its bytes). So does an empty value, such as that of a control edge; its announcement waits for
// all that is ahead of it on its stream, being the only thing that orders the two ends.
//
// The trial (execution kTrialExecution) is an error value that does move something: kTrialBytes of a pattern, which the receiver checks, so
// that NCCL has connected the two GPUs before execution 0.
//
// What comes and does not fit the edge (another plan, order, dtype, size) fails the link with the reason: the sender checks values before it
// announces them, so the ends are out of step or memory was damaged, and nothing that follows could be trusted. The same goes for two ends that
// disagree on which transfer of the link is next.
//
// Used by one thread, but for Close and Health.
class NcclLink {
 public:
  static constexpr uint64_t kLateBytes = 64 << 10;
  static constexpr size_t kTrialBytes = NcclScratch::kTrialBytes;

  struct Options {
    std::shared_ptr<NcclComm> comm;    // joined; of two ranks, serves no one else
    std::shared_ptr<NcclQueue> queue;  // the graph's, as the next
    std::shared_ptr<NcclScratch> scratch;
    CudaDevice* device = nullptr;      // outlives the link, its ports and events
    uint64_t plan_hash = 0;
    // The sender launches a large value only when the receiver has taken its announcement, and with it the place in its own order: a kernel that
    // waits for its peer holds the GPU, which costs most where workers share one. Adds the way from host to host to each such transfer.
    bool send_when_taken = false;
    // The receiver takes one large value at a time: its kernel is launched behind that of the value ahead, but its sender is told only when the device is
    // done with that. Where workers share a GPU, data goes through sockets and host memory, and several values at once take longer than one after the
    // other; and where they take turns on it, a sender whose value nobody receives yet would use up a turn each round.
    bool receive_alone = false;
    // Transfers of planned places (PlannedPlaces) are captured once and replayed. Where NCCL moves data by its own threads, captured calls need them in
    // between: for GPUs that reach each other's memory only.
    bool replay = false;
    // Not 0: neither send_when_taken nor receive_alone, and large values are announced before they are ready, since a call of this worker's thread may wait
    // until no kernel runs, and what has been launched must end without it. May be nullptr.
    std::shared_ptr<const std::atomic<int>> at_once;
  };

  // InvalidArgument names the link: not two ranks.
  static absl::StatusOr<std::shared_ptr<NcclLink>> Create(Options options);
  ~NcclLink();

  // The end of one edge on this worker, once each: rank 0 sends, rank 1 receives. `tell_ahead`, with receive_alone: the sender is told as soon as the
  // receive is launched behind the one ahead, so that its kernel is on the GPU before what waits for that one fills it; not where the GPU's time is sliced,
  // nor for an edge whose transfer is to overlap nothing. `header_port` is that of the same end for
  // NcclHeaderSpec(edge), buffers, and gives what has come at once. Ports share the link and are destroyed by the thread that uses them.
  // InvalidArgument names the edge: another end, an emulated link, a shape without bounds.
  static absl::StatusOr<std::unique_ptr<SendPort>> NewSendPort(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge,
                                                               std::unique_ptr<SendPort> header_port);
  static absl::StatusOr<std::unique_ptr<RecvPort>> NewRecvPort(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge,
                                                               std::unique_ptr<RecvPort> header_port, bool tell_ahead = false);

  // Ends all transfers with `cause`; their events are ready once NCCL has ended. From any thread, without blocking; the first cause stays.
  void Close(const absl::Status& cause) { options_.comm->Abort(cause); }
  // Why it is closed, after asking NCCL; OK while it works.
  absl::Status Health() { return options_.comm->Health(); }

 private:
  friend class NcclCapture;
  friend class NcclTransfer;
  friend class NcclSendPort;
  friend class NcclRecvPort;

  explicit NcclLink(Options options) : options_(std::move(options)) {}
  NcclComm* comm() const { return options_.comm.get(); }
  NcclQueue& queue() const { return *options_.queue; }
  const std::string& peer() const { return options_.comm->others(); }
  bool AtOnce() const { return options_.at_once != nullptr && options_.at_once->load(std::memory_order_relaxed) > 0; }

  const Options options_;
  bool InTrial() const;
  uint64_t transfers_ = 0;  // posted
  uint64_t launched_ = 0;
};

}  // namespace weft
