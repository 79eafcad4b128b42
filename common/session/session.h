#pragma once

// A client's use of one running graph, without saying how values travel: the driver's session host implements it over shared memory
// and data streams for clients that come through gRPC, and a client process of the same host can run the same code by itself.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/channel/header.h"
#include "common/device/event.h"
#include "common/tensor/shape.h"
#include "common/tensor/tensor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

struct SessionValueSpec {
  std::string name;
  Spec spec;
};

// What a graph takes and gives.
struct SessionSpec {
  std::string graph;
  std::vector<SessionValueSpec> inputs;
  std::vector<SessionValueSpec> outputs;
  // Executions in flight at once.
  int32_t max_in_flight = 1;
  // What a submit that names no mode does, and how long WAIT waits, in seconds.
  v1::SubmitMode submit = v1::WAIT;
  double submit_timeout_s = 60;
};

// One output of one execution: a host tensor of its own, or the error in its place. Both empty where outputs are discarded.
struct SessionOutput {
  Tensor tensor;
  TaskErrorRef error;
};

struct SessionResult {
  // Number of the execution in the graph, as its sources see it.
  int64_t execution = -1;
  std::vector<SessionOutput> outputs;  // in the order of SessionSpec::outputs
  // Monotonic clock when it was admitted and when its last output arrived.
  Nanos admitted = 0;
  Nanos done = 0;
};

struct SessionSubmit {
  // In the order of SessionSpec::inputs; read until the execution is done, so their elements must not change before.
  std::vector<Tensor> inputs;
  v1::SubmitMode mode = v1::SUBMIT_MODE_UNSPECIFIED;
  bool discard_outputs = false;
  // Called when the execution got its number. May be empty.
  std::function<void(int64_t execution)> admitted;
  // Called once: with the result; or with the reason why there is none, which is DeadlineExceeded when WAIT waited too long for a place,
  // or the graph's first cause.
  std::function<void(absl::StatusOr<SessionResult>)> done;
};

// Thread-safe; nothing blocks. Callbacks come on the session's own thread and must not block either.
class Session {
 public:
  using Ticket = int64_t;

  virtual ~Session() = default;
  virtual const SessionSpec& spec() const = 0;

  // Executions are admitted in the order of submits, from whichever client, and their results come in that order.
  // Errors, and then no callback is called: InvalidArgument names the input that does not fit; ResourceExhausted (FAIL_FAST and all
  // places are taken); FailedPrecondition with the graph's first cause, or when it drains.
  virtual absl::StatusOr<Ticket> Submit(SessionSubmit submit) = 0;

  // The result is no longer wanted: callbacks are not called any more, unless one is being called. An execution that was not yet
  // admitted is removed; one that was runs to its end.
  virtual void Forget(Ticket ticket) = 0;

  // Ends everything with `cause`; the first cause stays.
  virtual void Fail(const absl::Status& cause) = 0;
  // That cause; OK while it goes on.
  virtual absl::Status status() const = 0;
};

// Whether `tensors` are what the graph takes: InvalidArgument names the input, what came and what is declared.
absl::Status CheckInputs(const SessionSpec& spec, const std::vector<Tensor>& tensors);

}  // namespace weft
