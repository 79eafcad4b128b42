#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/comm/agree.h"
#include "common/comm/communicator.h"
#include "common/comm/gloo/gloo_mesh.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/comm/nccl/nccl_scratch.h"
#include "common/comm/nccl/nccl_work.h"
#include "common/device/cuda/cuda_device.h"

namespace weft {

// Collectives between GPU workers.
//
// Every call begins with an exchange of headers between all ranks (agree.h) over a mesh of connections between the hosts' processes, on a thread
// of its own. When all agree, the loop's thread launches the call on the op's stream, within some Ready() of an event; when they do not, nothing
// moves and every rank concludes the same error. So a rank that fails is a value on all ranks and never a kernel that spins on the others. The
// device waits for the input, not the host.
//
// A value's status word (DeviceStatus) is combined with those of the other ranks by maximum, in the same group of calls: an error that only one
// rank's device knows reaches all.
class NcclCommunicator : public Communicator {
 public:
  struct Options {
    std::shared_ptr<NcclComm> comm;    // joined; serves no one else
    std::shared_ptr<GlooMesh> mesh;    // connected, of the same ranks; serves no one else
    std::shared_ptr<NcclQueue> queue;  // the graph's: collectives of one stream are launched in the order of Run on all communicators
    std::shared_ptr<NcclScratch> scratch;  // the graph's
    GroupInfo group;                   // the same workers
    CudaDevice* device = nullptr;      // outlives it and its events
    Doorbell* doorbell = nullptr;      // rung when headers have been exchanged; may be nullptr; outlives it
  };

  // InvalidArgument names the collective: ranks that do not fit together.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Options options);
  // Aborts; waits for the exchange of headers to end, not for NCCL (NcclComm's destructor does).
  ~NcclCommunicator() override;

  int rank() const override { return options_.comm->rank(); }
  int size() const override { return options_.comm->size(); }
  // `in` and `buffer` are device memory and do not overlap. `out` is complete when the event is ready; out->status, where set at the call, is
  // filled on the device. Values of dtypes that NCCL cannot combine are an error value on every rank.
  absl::StatusOr<EventRef> Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) override;
  absl::Status Capture(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) override;
  void Abort(const absl::Status& cause) override;
  absl::Status Health() const override;

 private:
  class Collective;
  struct Exchange;

  explicit NcclCommunicator(Options options);
  void Work();

  const Options options_;
  uint64_t sequence_ = 0;
  std::deque<std::weak_ptr<Collective>> outstanding_;
  std::vector<std::shared_ptr<void>> captured_;  // what captured calls touch

  Mutex mu_;
  CondVar wake_;
  std::deque<std::shared_ptr<Exchange>> exchanges_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weft
