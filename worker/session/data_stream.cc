#include "worker/session/data_stream.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace weft {

class DataStream::Queue : public MessagePipe {
 public:
  grpc::ClientContext* context() { return &context_; }

  void Send(v1::DataMessage message) override {
    MutexLock lock(&mu_);
    if (closed_) return;
    messages_.push_back(std::move(message));
    cv_.NotifyOne();
  }
  void Close(const absl::Status&) override {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    context_.TryCancel();
    cv_.NotifyAll();
  }
  // The next message; false after Close.
  bool Next(v1::DataMessage* m) {
    MutexLock lock(&mu_);
    while (messages_.empty() && !closed_) cv_.Wait(&mu_);
    if (closed_) return false;
    *m = std::move(messages_.front());
    messages_.pop_front();
    return true;
  }

 private:
  grpc::ClientContext context_;
  Mutex mu_;
  CondVar cv_;
  std::deque<v1::DataMessage> messages_ WEFT_GUARDED_BY(mu_);
  bool closed_ WEFT_GUARDED_BY(mu_) = false;
};

DataStream::DataStream(v1::WorkerService::Stub* stub, const v1::DataOpen& open, const std::string& token)
    : queue_(std::make_shared<Queue>()) {
  if (!token.empty()) queue_->context()->AddMetadata("weft-token", token);
  stream_ = stub->Data(queue_->context());
  v1::DataMessage first;
  *first.mutable_open() = open;
  queue_->Send(std::move(first));
}

DataStream::~DataStream() {
  queue_->Close(absl::CancelledError("the graph was removed"));
  if (reader_.joinable()) reader_.join();
}

std::shared_ptr<MessagePipe> DataStream::pipe() const { return queue_; }

void DataStream::Start(std::function<void(const v1::DataMessage&)> on_message, std::function<void(const absl::Status&)> on_closed) {
  writer_ = std::thread([this] { Write(); });
  reader_ = std::thread([this, on_message = std::move(on_message), on_closed = std::move(on_closed)] {
    v1::DataMessage m;
    while (stream_->Read(&m)) on_message(m);
    queue_->Close(absl::UnavailableError("the driver ended the stream"));
    writer_.join();  // a stream is finished once nobody writes
    const std::string why = stream_->Finish().error_message();
    on_closed(absl::UnavailableError(absl::StrCat("the data stream to the driver ended", why.empty() ? "" : ": ", why)));
  });
}

void DataStream::Write() {
  v1::DataMessage m;
  while (queue_->Next(&m)) {
    if (!stream_->Write(m)) return;  // the reader sees the end too
  }
}

}  // namespace weft
