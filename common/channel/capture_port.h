#pragma once

// The other face of an edge's two ends, for GPU workers whose iterations are captured (options.launch GRAPH). A transfer is captured once
// for each variant, in its place among the ops; execution k then launches variant k % slots. What a host has to do for a transfer it does
// around the launch of the iteration: before it, what comes from hosts is taken; after it, what goes to hosts is given away.
//
// Executions of one worker run one after another on its device, and at most `slots` of them are launched and not done: no two of one
// variant.
//
// Made of a port that has carried the trial message and nothing else (SendPort::ForCapture, RecvPort::ForCapture), and used by one thread.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel/port.h"

namespace weft {

class CaptureSendPort {
 public:
  virtual ~CaptureSendPort() = default;

  // While `variant` is captured, ahead of the op that makes the value, on its stream: what must have happened before the value's buffer is
  // written.
  virtual absl::Status CaptureReuse(int variant, Stream* stream) { return absl::OkStatus(); }
  // In the transfer's place. The value's tensor is of the edge's shape; errors are told by its status word alone. Pre: `stream` waits for
  // the value.
  virtual absl::Status Capture(int variant, const Value& value, Stream* stream) = 0;

  // Around launches, executions in order. Whether Announce(execution) may be called: the receiver has room for it.
  virtual PortState Poll(int64_t execution) = 0;
  // Execution will be launched. Of the edges between two GPU workers only one does this, for all of them.
  virtual absl::Status Announce(int64_t execution) = 0;
  // The launch is done: sends what the device has left for the host. `error_of` says what a status word stands for; never nullptr for a
  // word but 0. True when it was an error.
  virtual absl::StatusOr<bool> Finish(int64_t execution, const std::function<TaskErrorRef(uint64_t word)>& error_of) { return false; }

  // Ends every wait of the device for the other end, for good. Called when the edge is closed, and before the port goes.
  virtual void Release() {}
  // What Poll waits for, as SendPort::WaitsFor.
  virtual std::string WaitsFor() const = 0;
  virtual absl::Status closed() const = 0;
};

class CaptureRecvPort {
 public:
  virtual ~CaptureRecvPort() = default;

  // In the transfer's place: the value comes into `buffer`, which is of the edge's shape, and its status word into out->status where that
  // is set. Fills out->tensor. Or lets both point to where they lie already, in memory that the device reads and that holds them until the
  // launch is done.
  virtual absl::Status Capture(int variant, const Tensor& buffer, Value* out, Stream* stream) = 0;

  // Around launches, executions in order. Whether Take(execution) may be called: a value, or an announcement, has come.
  virtual PortState Poll(int64_t execution) = 0;
  // Before the launch. `word_of` turns an error that came in the value's place into its status word. An error of Take is one of the edge
  // and ends the graph.
  virtual absl::Status Take(int64_t execution, const std::function<uint64_t(const TaskErrorRef&)>& word_of) = 0;
  // The launch is done.
  virtual void Finish(int64_t execution) {}

  virtual void Release() {}
  virtual std::string WaitsFor() const = 0;
  virtual absl::Status closed() const = 0;
  // For an edge between two GPUs: whether the value of `variant` is not there, or has been taken already, as far as the host can see.
  virtual bool MayWait(int variant) const { return false; }
};

}  // namespace weft
