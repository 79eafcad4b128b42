#pragma once

#include <string>

#include "driver/cluster/coordinator.h"
#include "weft/v1/client_service.grpc.pb.h"

namespace weft {

// What clients ask of the driver, over gRPC. Waits end when the client goes away.
class ClientServiceImpl : public v1::ClientService::Service {
 public:
  // `coordinator` outlives the server. `token`: the join token, or "".
  ClientServiceImpl(Coordinator* coordinator, std::string token) : coordinator_(coordinator), token_(std::move(token)) {}

  grpc::Status Compile(grpc::ServerContext* context, grpc::ServerReader<v1::CompileRequest>* reader, v1::CompileReply* reply) override;
  grpc::Status Execute(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ExecuteReply, v1::ExecuteRequest>* stream) override;
  grpc::Status Teardown(grpc::ServerContext* context, const v1::TeardownRequest* request, v1::TeardownReply* reply) override;
  grpc::Status ListGraphs(grpc::ServerContext* context, const v1::ListGraphsRequest* request, v1::ListGraphsReply* reply) override;
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request, v1::ListWorkersReply* reply) override;
  grpc::Status Inspect(grpc::ServerContext* context, const v1::InspectRequest* request, v1::InspectReply* reply) override;
  grpc::Status GetPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                       grpc::ServerWriter<v1::PlanChunk>* writer) override;
  grpc::Status Replan(grpc::ServerContext* context, grpc::ServerReader<v1::ReplanRequest>* reader, v1::ReplanReply* reply) override;
  grpc::Status GetTrace(grpc::ServerContext* context, const v1::GetTraceRequest* request,
                        grpc::ServerWriter<v1::TraceReply>* writer) override;

 private:
  // What befell a graph, as an answer: "unavailable" would say that it is the driver who cannot be reached.
  absl::Status Answer(const absl::Status& status) const;

  Coordinator* const coordinator_;
  const std::string token_;
};

}  // namespace weft
