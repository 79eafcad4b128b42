#pragma once

#include <string>

#include "driver/cluster/coordinator.h"
#include "weft/v1/worker_service.grpc.pb.h"

namespace weft {

// What workers ask of the driver, over gRPC: each call has a thread of the server's to read on, and one of its own to write.
class WorkerServiceImpl : public v1::WorkerService::Service {
 public:
  // `coordinator` outlives the server. `token`: the join token, or "".
  WorkerServiceImpl(Coordinator* coordinator, std::string token) : coordinator_(coordinator), token_(std::move(token)) {}

  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::DriverMessage, v1::WorkerMessage>* stream) override;
  grpc::Status Data(grpc::ServerContext* context, grpc::ServerReaderWriter<v1::DataMessage, v1::DataMessage>* stream) override;
  grpc::Status StoreSet(grpc::ServerContext* context, const v1::StoreSetRequest* request, v1::StoreSetReply* reply) override;
  grpc::Status StoreGet(grpc::ServerContext* context, const v1::StoreGetRequest* request, v1::StoreGetReply* reply) override;

 private:
  Coordinator* const coordinator_;
  const std::string token_;
};

}  // namespace weft
