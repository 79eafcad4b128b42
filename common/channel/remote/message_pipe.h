#pragma once

#include "absl/status/status.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

// An ordered way for messages to one peer. Real: a gRPC stream with a queue and a writer thread; in tests: the other end's OnMessage.
// What comes the other way is handed to RemoteLink::OnMessage by whoever reads.
class MessagePipe {
 public:
  virtual ~MessagePipe() = default;
  // Queues; never blocks. Nothing happens once it is closed. Any thread.
  virtual void Send(v1::DataMessage message) = 0;
  // Ends the stream. Idempotent. Any thread.
  virtual void Close(const absl::Status& why) = 0;
};

}  // namespace weft
