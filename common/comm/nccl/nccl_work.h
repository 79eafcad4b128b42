#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/nccl/nccl_comm.h"
#include "common/device/device.h"
#include "common/device/event.h"

namespace weft {

class NcclQueue;

// A transfer or collective on its way through NCCL, and its event. Used by one thread (the loop's; during bootstrap the graph's own).
//
//   waiting     for its turn: ops of one stream are launched in the order in which they were posted, whatever is ready first, since the
//               plan is free of deadlock only in its own order; and for what it needs (other ranks' headers, the communicator)
//   launched    NCCL has it; at the first use of a way to a peer it takes a while to put it on the stream
//   on device   its CUDA event is recorded
//   over        the device is done, or the communicator has failed and ended. A result is only believed when the communicator was well
//               after the device was done: an abort also makes kernels end.
class NcclWork : public Event, public std::enable_shared_from_this<NcclWork> {
 public:
  ~NcclWork() override;

  bool Ready() const override;
  // From "on device" on.
  bool Queued() const override;
  void MoveOn() override;
  // What a stream can wait for, from "on device" on. The value is filled in by then, but for an error that comes later.
  const Event* OnDevice() const override { return event_.get(); }

  // The port or communicator goes, and whoever waits for the value: Finish is not called any more. What is not launched never will be.
  void Cancel();
  bool over() const { return stage_ == Stage::kOver; }
  // Launched, and NCCL is still connecting.
  bool connecting() const { return stage_ == Stage::kLaunched; }

 protected:
  enum class Turn { kWait, kLaunch, kSkip };

  // `stream` is the op's; it outlives the op's launch (Cancel before it goes). `device` outlives the op.
  NcclWork(std::shared_ptr<NcclComm> comm, CudaDevice* device, Stream* stream);

  // What the op may touch on the device; let go of when it is over, or when the communicator has ended.
  void Hold(std::shared_ptr<void> memory) { held_.push_back(std::move(memory)); }

  NcclComm* comm() const { return comm_.get(); }
  CudaDevice* device() const { return device_; }
  Stream* stream() const { return stream_; }
  // Makes the stream wait for `input`, or says that the host has to.
  bool InputIsOrdered(const EventRef& input) const;

  // At the head of its stream's line, the communicator settled: whether to launch, or that it is over without anything on the device.
  virtual Turn MyTurn() { return Turn::kLaunch; }
  // Puts the work on the stream.
  virtual absl::Status Launch() = 0;
  // A peer has been told of it, and may have launched its part.
  virtual bool Promised() const { return false; }
  // More work behind it, once NCCL has launched.
  virtual absl::Status Launched() { return absl::OkStatus(); }
  // On the host: something besides the device that must have happened.
  virtual bool MayFinish() { return true; }
  // Once, when it is over; fills in the value. `status` is why there is none.
  virtual void Finish(const absl::Status& status) = 0;

 private:
  friend class NcclQueue;
  enum class Stage { kWaiting, kLaunched, kOnDevice, kOver };

  // Launches it if it can be. True when the next op of the stream may follow.
  bool Advance();
  void Settle();
  void CheckDevice();
  void End(const absl::Status& status);

  const std::shared_ptr<NcclComm> comm_;
  CudaDevice* const device_;
  Stream* const stream_;
  std::weak_ptr<NcclQueue> queue_;
  Stage stage_ = Stage::kWaiting;
  bool cancelled_ = false;
  EventRef event_;
  std::vector<std::shared_ptr<void>> held_;
};

// The order in which a graph's ops go to NCCL on one worker: a line for each stream. One thread.
class NcclQueue : public std::enable_shared_from_this<NcclQueue> {
 public:
  // Puts `op` behind the others of its stream, and launches what can be.
  void Post(const std::shared_ptr<NcclWork>& op);
  // `step` is tried at every Pump until it returns true.
  void Later(std::function<bool()> step) { steps_.push_back(std::move(step)); }
  // Launches what can be. Called by every Poll and Ready of what uses the queue.
  void Pump();
  // Whether NCCL has yet to put something on the device whose peer may be waiting for it there: then nothing may be called that waits for the device.
  bool Owes() const;
  // Forgets what is over or cancelled, wherever it stands in its line.
  void Sweep();
  // The event of the last but one op that was put on `stream`; nullptr where there was none. Once it is ready, one op at most is under way there.
  EventRef LastButOne(Stream* stream) const;

 private:
  friend class NcclWork;

  std::map<Stream*, std::deque<std::shared_ptr<NcclWork>>> lines_;
  std::map<Stream*, std::pair<EventRef, EventRef>> on_device_;  // of the last two ops, the later one first
  std::vector<std::function<bool()>> steps_;
  bool pumping_ = false;
};

}  // namespace weft
