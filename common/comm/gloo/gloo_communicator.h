#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/comm/agree.h"
#include "common/comm/communicator.h"
#include "common/comm/gloo/gloo_mesh.h"

namespace weft {

// Collectives between CPU workers over TCP. A thread of its own does the waiting; calls are done one after the other.
//
// Every call begins with an exchange of headers between all ranks (agree.h), and moves data only if all agree. Values are combined
// in the order of ranks, by direct exchange over the full mesh instead of gloo's ring: the bytes on the wire are the same, and the
// result depends neither on the number of ranks that happen to be neighbours nor on how a value is cut, so that it is bit for bit
// that of one process that adds the values in order.
class GlooCommunicator : public Communicator {
 public:
  // `mesh` is connected and serves no one else; group.workers are its workers. `doorbell` is rung when an event becomes ready; may
  // be nullptr; outlives the communicator.
  GlooCommunicator(std::shared_ptr<GlooMesh> mesh, GroupInfo group, Doorbell* doorbell);
  // Ends what is under way; every event is ready afterwards.
  ~GlooCommunicator() override;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  // `in` is ready. Its memory and `buffer` do not overlap.
  absl::StatusOr<EventRef> Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) override;
  void Abort(const absl::Status& cause) override;
  absl::Status Health() const override;

 private:
  struct Job {
    CollectiveCall call;
    Value in;
    Tensor buffer;
    Value* out = nullptr;
    std::shared_ptr<ManualEvent> event;
  };

  void Work();
  absl::Status Do(const Job& job);
  absl::Status MoveData(const CollectiveCall& call, const Agreement& agreed, const Job& job);
  // Combines all ranks' part `bytes` long at `at` of each rank's share, for the share of this rank, into `out`.
  absl::Status ReduceShare(const CollectiveCall& call, DType dtype, const char* in, const std::vector<size_t>& starts,
                           const std::vector<size_t>& ends, char* out);

  const std::shared_ptr<GlooMesh> mesh_;
  const GroupInfo group_;
  Doorbell* const doorbell_;
  uint64_t sequence_ = 0;      // of the working thread
  std::vector<char> scratch_;  // of the working thread

  Mutex mu_;
  CondVar wake_;
  std::deque<Job> jobs_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weft
