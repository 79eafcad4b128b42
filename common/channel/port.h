#pragma once

// The two ends of one edge, as the loop sees them. Siblings: shm, remote, gloo, fake (local edges have no ports: the consumer reads
// the producer's value). All calls are made by the loop's thread (the session's, at the client's end), and none blocks.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel/header.h"
#include "common/device/cuda/api/kernels_api.h"
#include "common/device/device.h"
#include "common/device/event.h"
#include "common/tensor/tensor.h"

namespace weft {

// A tensor or the error in its place, with the event after which either may be looked at.
struct Value {
  Tensor tensor;
  EventRef event;
  TaskErrorRef error;
  // On a device whose plan has status words: where this value's word lies, in device memory owned like the tensor's; otherwise nullptr.
  // It is read only where the value reaches a host (DESIGN: errors that only the device knows).
  DeviceStatus* status = nullptr;
  // On a GPU: the tensor lies in page-locked host memory, which the device has written by the time of the event.
  bool on_host = false;
};

enum class PortState {
  kReady,    // the next op may be issued
  kWaiting,  // no credit, or nothing has come; the doorbell rings when that changes
  kClosed,   // never again: closed() says why
};

class CaptureSendPort;  // capture_port.h
class CaptureRecvPort;

class SendPort {
 public:
  virtual ~SendPort() = default;
  // May Send(execution) be called? Executions come in order, from 0.
  virtual PortState Poll(int64_t execution) = 0;
  // Issues the transfer of `value`, whose event is ready or can be waited for by `stream`'s device. A value with an error travels as
  // a header alone, in the place of the payload. When the event is ready, the channel reads the tensor no more.
  // Pre: Poll(execution) == kReady. Errors: OutOfRange (value exceeds what the edge reserves), Unavailable (peer gone).
  virtual absl::StatusOr<EventRef> Send(int64_t execution, const Value& value, Stream* stream) = 0;
  // What Poll waits for, in words: "w3 to release execution 4 (2 of 2 slots taken)".
  virtual std::string WaitsFor() const = 0;
  virtual absl::Status closed() const = 0;

  // For a value that a device brings, so that it is written once: memory of at least `bytes` in which the payload of the `ahead`-th next
  // Send may be made before that Send is given a tensor that lies there; nullptr where the channel has none to lend. Pre: PollAhead.
  virtual absl::StatusOr<void*> Reserve(int ahead, size_t bytes) { return nullptr; }
  // As Poll, for the `ahead`-th next Send; only such channels answer kReady to ahead > 0 that lend memory.
  virtual PortState PollAhead(int64_t execution, int ahead) { return ahead == 0 ? Poll(execution) : PortState::kWaiting; }
  // Ready when the receiver has released the message last sent, or the channel is closed. nullptr where a channel cannot tell.
  virtual EventRef Released() { return nullptr; }

  // This end as captured iterations use it; the port itself lives on below it and is not used any more. Pre: the trial message is all that
  // was sent. Unimplemented where a channel takes no part in captured iterations.
  virtual absl::StatusOr<std::shared_ptr<CaptureSendPort>> ForCapture() {
    return absl::UnimplementedError("this channel takes no part in captured iterations");
  }
};

class RecvPort {
 public:
  virtual ~RecvPort() = default;
  // May Recv(execution) be called? For buffered channels: a message has come. Executions come in order, from 0.
  virtual PortState Poll(int64_t execution) = 0;
  // Issues the receive into `buffer` (device memory of the edge's reserved bytes), or, on a channel with ZeroCopy(), points into the
  // channel's own memory, which stays valid until Release(execution). `*out` is filled by the time the event is ready, and must
  // live until then; where `out->status` is set at the call, the value's status word is put there too. A message that does not fit the edge
  // fills out->error (naming the edge) and never fails the port. Pre: Poll(execution) == kReady.
  virtual absl::StatusOr<EventRef> Recv(int64_t execution, const Tensor& buffer, Value* out, Stream* stream) = 0;
  // The loop has seen the event of Recv(execution) ready; in order. A port that copies gives its channel's slot back now.
  virtual void Arrived(int64_t execution) {}
  // The value of `execution` is read no more: gives its slot back to the sender. In order.
  virtual void Release(int64_t execution) = 0;
  virtual bool ZeroCopy() const = 0;
  // What Poll waits for: "w0 to write execution 5".
  virtual std::string WaitsFor() const = 0;
  virtual absl::Status closed() const = 0;

  // Where the payload of the `ahead`-th next Recv will lie, `bytes` of it, if it is always the same place; nullptr where a channel cannot
  // tell.
  virtual absl::StatusOr<const void*> Place(int ahead, size_t bytes) { return nullptr; }
  // As SendPort::ForCapture.
  virtual absl::StatusOr<std::shared_ptr<CaptureRecvPort>> ForCapture() {
    return absl::UnimplementedError("this channel takes no part in captured iterations");
  }
};

}  // namespace weft
