#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <deque>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/channel/remote/message_pipe.h"
#include "driver/cluster/worker_link.h"
#include "weft/v1/worker_service.grpc.pb.h"

namespace weft {

// A queue before one call's stream, and a thread that writes: a peer that does not read blocks that thread and nobody else.
// `Base` says what its users know it as.
template <typename Base, typename Message, typename Stream>
class StreamWriter : public Base {
 public:
  // Both outlive Stop.
  StreamWriter(grpc::ServerContext* context, Stream* stream) : context_(context), stream_(stream) {}

  void Start() {
    thread_ = std::thread([this] { Loop(); });
  }

  void Send(Message message) override {
    MutexLock lock(&mu_);
    if (closed_) return;
    queue_.push_back(std::move(message));
    cv_.NotifyOne();
  }

  // Cancels the call, so that a write that is blocked ends too.
  void Close(const absl::Status& why) override {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    why_ = why;
    queue_.clear();
    if (context_ != nullptr) context_->TryCancel();
    cv_.NotifyAll();
  }

  // Ends the thread; what is queued is dropped, and the stream is not touched any more. By the call's handler.
  void Stop() {
    Close(absl::OkStatus());
    if (thread_.joinable()) thread_.join();
    MutexLock lock(&mu_);
    context_ = nullptr;
  }

 private:
  void Loop() {
    while (true) {
      Message message;
      {
        MutexLock lock(&mu_);
        while (queue_.empty() && !closed_) cv_.Wait(&mu_);
        if (closed_) return;
        message = std::move(queue_.front());
        queue_.pop_front();
      }
      if (!stream_->Write(message)) return;  // the handler's read ends too
    }
  }

  Mutex mu_;
  CondVar cv_;
  grpc::ServerContext* context_ WEFT_GUARDED_BY(mu_);  // nullptr once stopped
  Stream* const stream_;
  std::deque<Message> queue_ WEFT_GUARDED_BY(mu_);
  bool closed_ WEFT_GUARDED_BY(mu_) = false;
  absl::Status why_ WEFT_GUARDED_BY(mu_);
  std::thread thread_;
};

using SessionStream = grpc::ServerReaderWriter<v1::DriverMessage, v1::WorkerMessage>;
using StreamLink = StreamWriter<WorkerLink, v1::DriverMessage, SessionStream>;
using DataStream = grpc::ServerReaderWriter<v1::DataMessage, v1::DataMessage>;
using StreamPipe = StreamWriter<MessagePipe, v1::DataMessage, DataStream>;

}  // namespace weft
