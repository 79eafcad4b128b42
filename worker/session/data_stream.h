#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/channel/remote/message_pipe.h"
#include "weft/v1/worker_service.grpc.pb.h"

namespace weft {

// The worker's end of the Data stream of one graph: a reader thread, and a writer thread with a queue so that sending never blocks. The
// queue is an object of its own: whoever sends may let go of it on the reader's thread, which must not end itself.
class DataStream {
 public:
  // Dials at once. The stub outlives the stream.
  DataStream(v1::WorkerService::Stub* stub, const v1::DataOpen& open, const std::string& token);
  // Closes and joins. Not on the reader's thread.
  ~DataStream();

  std::shared_ptr<MessagePipe> pipe() const;
  // `on_message` and `on_closed` (once, last) come on the reader's thread from now on.
  void Start(std::function<void(const v1::DataMessage&)> on_message, std::function<void(const absl::Status&)> on_closed);

 private:
  class Queue;
  void Write();

  const std::shared_ptr<Queue> queue_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DataMessage, v1::DataMessage>> stream_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace weft
