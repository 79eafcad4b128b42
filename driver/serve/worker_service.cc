#include "driver/serve/worker_service.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "driver/serve/driver_end.h"
#include "driver/serve/rpc.h"
#include "driver/serve/stream_link.h"

namespace weft {

grpc::Status WorkerServiceImpl::Session(grpc::ServerContext* context, SessionStream* stream) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  v1::WorkerMessage message;
  if (!stream->Read(&message)) return ToGrpc(absl::InvalidArgumentError("the stream ended before Register"));
  const auto link = std::make_shared<StreamLink>(context, stream);
  const absl::StatusOr<std::string> name = coordinator_->WorkerJoined(message, link);
  if (!name.ok()) {
    spdlog::warn("a worker was refused: {}", std::string(name.status().message()));
    return ToGrpc(name.status());
  }
  const std::string incarnation = message.incarnation();
  link->Start();
  while (stream->Read(&message)) coordinator_->WorkerSaid(*name, message);
  coordinator_->WorkerLost(*name, incarnation);
  link->Stop();
  return grpc::Status::OK;
}

grpc::Status WorkerServiceImpl::Data(grpc::ServerContext* context, DataStream* stream) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  v1::DataMessage message;
  if (!stream->Read(&message) || !message.has_open()) {
    return ToGrpc(absl::InvalidArgumentError("a data stream's first message must be DataOpen"));
  }
  const v1::DataOpen open = message.open();
  const absl::StatusOr<std::shared_ptr<GraphEnd>> end =
      coordinator_->SessionOfAttempt(open.graph(), open.attempt(), open.worker(), open.incarnation());
  if (!end.ok()) return ToGrpc(end.status());
  auto* const driver_end = dynamic_cast<DriverEnd*>(end->get());
  if (driver_end == nullptr) return ToGrpc(absl::InternalError("this graph's end takes no data streams"));
  const auto pipe = std::make_shared<StreamPipe>(context, stream);
  const absl::StatusOr<std::shared_ptr<RemoteLink>> link = driver_end->AttachRemote(open.worker(), pipe);
  if (!link.ok()) return ToGrpc(link.status());
  pipe->Start();
  while (stream->Read(&message)) (*link)->OnMessage(message);
  (*link)->OnClosed(absl::UnavailableError(absl::StrCat("the data stream of worker ", open.worker(), " closed")));
  pipe->Stop();
  return grpc::Status::OK;
}

grpc::Status WorkerServiceImpl::StoreSet(grpc::ServerContext* context, const v1::StoreSetRequest* request, v1::StoreSetReply*) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  return ToGrpc(coordinator_->store()->Set(request->graph(), request->attempt(), request->key(), request->value()));
}

grpc::Status WorkerServiceImpl::StoreGet(grpc::ServerContext* context, const v1::StoreGetRequest* request, v1::StoreGetReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  if (!std::isfinite(request->timeout_s()) || request->timeout_s() < 0 || request->timeout_s() > 3600) {
    return ToGrpc(absl::InvalidArgumentError(absl::StrCat("timeout_s is ", request->timeout_s(), ": 0 to 3600 seconds")));
  }
  using Values = absl::StatusOr<std::vector<std::string>>;
  const auto promise = std::make_shared<Promise<Values>>();
  const Nanos deadline = Clock::Real()->Now() + FromSeconds(request->timeout_s());
  const int64_t get = coordinator_->store()->Get(request->graph(), request->attempt(),
                                                 std::vector<std::string>(request->key().begin(), request->key().end()), deadline,
                                                 [promise](Values values) { promise->Set(std::move(values)); });
  if (!WaitFor(promise.get(), *context)) {
    coordinator_->store()->Cancel(get);
    return ToGrpc(absl::CancelledError("the caller went away"));
  }
  const Values values = promise->Take();
  if (!values.ok()) return ToGrpc(values.status());
  for (const std::string& value : *values) reply->add_value(value);
  return grpc::Status::OK;
}

}  // namespace weft
