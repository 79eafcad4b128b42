#pragma once

#include "absl/status/status.h"
#include "weft/v1/worker_service.pb.h"

namespace weft {

// The way down to one worker. Real: a queue with a writer thread over gRPC (driver/serve); in tests: a list.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Queues `message`, in order. Never blocks, whatever the worker does; silently nothing once the link is closed. Any thread.
  virtual void Send(v1::DriverMessage message) = 0;
  // Ends the worker's stream with `why` after what is queued. Idempotent. Any thread.
  virtual void Close(const absl::Status& why) = 0;
};

}  // namespace weft
