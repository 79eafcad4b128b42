#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"
#include "weft/v1/client_service.pb.h"

namespace weft {

// What one execution gave.
struct ExecutionResult {
  // Number of the execution in the graph, as its sources saw it.
  int64_t execution = -1;
  // Host tensors by output name. With discard_outputs empty.
  std::map<std::string, Tensor> outputs;
  // Outputs that carry an error instead of a value; the graph stays usable.
  std::map<std::string, v1::TaskError> errors;
  // The driver's monotonic clock at admission and when the last output arrived, in ns.
  int64_t admitted_ns = 0;
  int64_t done_ns = 0;

  bool ok() const { return errors.empty(); }
};

struct SessionOptions {
  std::string graph;
  // What a submit does when the graph's max_in_flight executions are under way; unspecified: as compiled.
  v1::SubmitMode submit = v1::SUBMIT_MODE_UNSPECIFIED;
  // Seconds until an execution must be done; 0: no limit.
  double deadline_s = 0;
  // Only completion is wanted, no output's data.
  bool discard_outputs = false;
  // Seconds that opening may take.
  double open_timeout_s = 30;
};

// A client's use of one compiled graph: submits executions and takes their results, several in flight. Says nothing of how values
// travel, so that a session of the same host may go through shared memory alone. Thread-safe: any thread may submit, wait and cancel.
class ClientSession {
 public:
  // Names one submitted execution within its session. Results must be taken with Wait or given up with Cancel.
  using Handle = int64_t;

  // Cancels what is in flight and joins the session's threads; never blocks on the driver.
  virtual ~ClientSession() = default;

  // What the graph takes, what it gives, and how many executions run at once.
  virtual const std::vector<v1::Input>& inputs() const = 0;
  virtual const std::vector<v1::OutputSpec>& outputs() const = 0;
  virtual int max_in_flight() const = 0;

  // Queues one execution and returns at once. Every graph input is given by name; the tensors are read until the result is there,
  // so their elements must not change before. InvalidArgument names each input that is missing, unknown or does not fit;
  // FailedPrecondition after Close; or why the session ended.
  virtual absl::StatusOr<Handle> Submit(const std::map<std::string, Tensor>& inputs) = 0;

  // Whether Wait would return at once.
  virtual bool Ready(Handle handle) const = 0;

  // Takes the result; the handle is used up then. Waits up to `timeout_s` seconds (infinite: as long as the session lives).
  // DeadlineExceeded: not done yet, the handle stays good. NotFound: no such handle, or used up. Otherwise the execution has no result:
  // the driver's reason for refusing it, or why the session ended.
  virtual absl::StatusOr<ExecutionResult> Wait(Handle handle, double timeout_s) = 0;

  // The first of `handles` that is ready, without taking its result. Errors as Wait's DeadlineExceeded, and InvalidArgument for none.
  virtual absl::StatusOr<Handle> WaitAny(const std::vector<Handle>& handles, double timeout_s) = 0;

  // Gives up a result. The execution still runs to its end. Nothing happens for a handle that is used up.
  virtual void Cancel(Handle handle) = 0;

  // No more submits; waits until all submitted executions are answered. Results not yet taken stay good. DeadlineExceeded when that
  // takes longer, after which the session is cancelled; otherwise why the session ended, OK in the good case.
  virtual absl::Status Close(double timeout_s) = 0;
};

}  // namespace weft
