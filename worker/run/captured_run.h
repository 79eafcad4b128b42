#pragma once

// How one graph runs on a GPU worker with options.launch GRAPH: a whole iteration, transfers included, is captured once for each slot
// number, and execution k is one launch of graph k % slots. Made and driven by GraphRun, whose thread rules hold.
//
// Execution k, in order:
//   1. admitted, and fewer than `slots` launched and not done;
//   2. told: peers on GPUs hear that it will be launched, receivers on hosts have room for what it will give them;
//   3. taken: what it takes from hosts has come (an error becomes the value's status word), peers on GPUs have told the same;
//   4. launched, on the stream of the compute lane; what orders it with other GPUs' iterations is in the graph;
//   5. done, in order: what it gives to hosts is sent, as the value or as the error that its status word stands for.
// Iterations of a worker run one after another on its device, so waits of the plan with a distance hold by themselves.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/channel/capture_port.h"
#include "common/comm/communicator.h"
#include "common/device/cuda/cuda_device.h"
#include "weft/v1/client_service.pb.h"
#include "worker/run/compute_call.h"
#include "worker/run/device_errors.h"
#include "worker/run/program.h"
#include "worker/run/trace_recorder.h"

namespace weft {

class CapturedRun {
 public:
  // What GraphRun has prepared for an op.
  struct Op {
    ComputeCall* call = nullptr;
    Actor* actor = nullptr;
    int method = 0;
    SendPort* sender = nullptr;
    RecvPort* receiver = nullptr;
    Communicator* group = nullptr;
    const std::vector<std::shared_ptr<void>>* buffers = nullptr;  // READ, RECV, COLLECTIVE: one per slot
  };
  // All pointers outlive it.
  struct Options {
    const Clock* clock = nullptr;
    CudaDevice* device = nullptr;
    const Plan* plan = nullptr;  // the part
    const Program* program = nullptr;
    std::vector<Op> ops;          // as in the program
    std::vector<Stream*> lanes;   // as in the program
    TraceRecorder* trace = nullptr;
    std::string worker;
  };

  // Captures all variants, on the calling thread; nothing runs. The device has no other capture of this thread. InvalidArgument,
  // FailedPrecondition and what actors and ports say name the op and what to do.
  static absl::StatusOr<std::unique_ptr<CapturedRun>> Create(Options options);
  // Pre: Quiescent(), or the device is gone.
  ~CapturedRun();

  // Completes and launches what may be. True when anything moved; an error ends the graph.
  absl::StatusOr<bool> Step(int64_t admitted);
  // The graph has failed and its links are closed: ends the device's waits for peers. Nothing is launched or sent any more.
  void Stop();
  // No launch is under way. After Stop this also lets go of the graphs, which a communicator's end waits for.
  bool Quiescent();

  // After Stop: forgets launches that have ended; true when there were any.
  bool Settle();
  bool InFlight() const { return !flights_.empty(); }
  int64_t completed() const { return completed_; }
  int64_t launched() const { return launched_; }
  // Ops done since the start.
  int64_t progress() const { return completed_ * static_cast<int64_t>(options_.program->ops.size()); }
  // One lane: the iteration as a whole.
  void Inspect(int64_t admitted, const absl::Status& failure, v1::WorkerView* view) const;

 private:
  struct Sender {
    int op = -1;
    std::shared_ptr<CaptureSendPort> port;
    bool drives = false;  // takes part around launches; others of its pair of workers do not
    bool told = false;    // of the next execution
  };
  struct Receiver {
    int op = -1;
    std::shared_ptr<CaptureRecvPort> port;
    bool drives = false;
    bool taken = false;
  };
  struct Flight {
    int64_t execution = 0;
    EventRef done;
    EventRef mark;  // when the device began, where it can tell
    Nanos start = 0;
    // Errors that came from hosts, with their words: the words alone do not hold their text.
    std::vector<std::pair<uint64_t, TaskErrorRef>> errors;
  };

  explicit CapturedRun(Options options);
  absl::Status Prepare();
  absl::Status CheckOp(int op);
  absl::Status WarmUp(int op);
  absl::Status Capture(int variant);
  // Between the beginning and the end of a capture.
  absl::Status Walk(int variant, const std::string& what, std::vector<EventRef>* events);
  absl::Status CaptureOp(int op, int variant, Stream* stream, std::vector<std::vector<Value>>* values, std::vector<EventRef>* events);
  absl::Status CaptureCompute(int op, int variant, Stream* stream, std::vector<std::vector<Value>>* values, std::vector<EventRef>* events);
  absl::Status CaptureReceive(int op, int variant, Stream* stream, Value* out);
  absl::Status CaptureSend(int op, int variant, Stream* stream, const std::vector<std::vector<Value>>& values);
  absl::Status CaptureCollective(int op, int variant, Stream* stream, std::vector<std::vector<Value>>* values);
  absl::Status Poison(int op, int variant, Stream* stream);
  DeviceStatus* StatusOf(int op, int variant) const;
  // Whether a transfer to another GPU, or a collective, takes what the op makes.
  bool GoesToGpus(int op) const;

  absl::StatusOr<bool> FinishFront();
  absl::StatusOr<bool> LaunchNext(int64_t admitted);
  absl::Status Launch();
  std::string WaitText(int64_t admitted) const;
  std::string FlightText(const Flight& flight) const;
  std::string Describe(int op) const { return OpName(*options_.plan, *options_.program->ops[op].plan); }
  absl::Status At(int op, int64_t execution, const absl::Status& s) const;
  void DropGraphs();

  const Options options_;
  const DeviceErrors errors_;
  CudaApi* const api_;
  Stream* origin_ = nullptr;
  std::unique_ptr<Stream> beside_;  // for captures: status words beside a method's kernels
  int slots_ = 0;
  std::shared_ptr<void> counter_;  // on the device: the execution's number
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  std::vector<int> sender_of_, receiver_of_;                    // by op: index, or -1
  std::vector<std::vector<CaptureSendPort*>> reuse_;             // by op: the ports that lend its buffers to peers
  std::vector<CudaGraphExecHandle> graphs_;                      // by variant

  std::deque<Flight> flights_;  // launched and not done, oldest first
  std::vector<std::pair<uint64_t, TaskErrorRef>> next_errors_;
  int64_t launched_ = 0;
  int64_t completed_ = 0;
  Nanos since_ = 0;
  bool stopped_ = false;
};

}  // namespace weft
