#pragma once

// A group of ranks that run collectives with each other. Siblings: gloo, nccl, fake. (Point-to-point edges over the same libraries
// are ports: common/channel.)

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel/port.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct CollectiveCall {
  v1::CollectiveOp op = v1::ALL_REDUCE;
  v1::ReduceOp reduce = v1::SUM;
  int root_rank = 0;
  int64_t execution = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Issues this rank's part without blocking; ranks issue the same calls in the same order. Headers are compared first: ranks that
  // differ in dtype, shape, execution or call make an error on every rank that names the ranks. A rank whose input carries an error
  // still takes part, and then every rank's result is the error of the lowest such rank. `out` is filled by the time the event is
  // ready: its tensor is `buffer` cut to the result's dims. Both must live until then.
  // Errors (of the call, not of the value): Unavailable (peer gone), Aborted.
  virtual absl::StatusOr<EventRef> Run(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out,
                                       Stream* stream) = 0;

  // This rank's part within a captured iteration (options.launch GRAPH): put on `stream`, which is being captured, or run there once, when
  // it is not, so that nothing is connected during a capture. Ranks make the same calls in the same order. `in` and `buffer` are device
  // memory of the planned shapes; errors are told by status words alone, combined by maximum. Fills out->tensor. Unimplemented where it
  // cannot.
  virtual absl::Status Capture(const CollectiveCall& call, const Value& in, const Tensor& buffer, Value* out, Stream* stream) {
    return absl::UnimplementedError("this communicator takes no part in captured iterations: use NCCL");
  }

  // Ends everything under way with `cause` and refuses what comes later. From any thread; idempotent; the first cause stays.
  virtual void Abort(const absl::Status& cause) = 0;

  // First asynchronous error, OK while there is none.
  virtual absl::Status Health() const = 0;
};

}  // namespace weft
