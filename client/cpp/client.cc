#include "client/cpp/client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "client/cpp/calls.h"
#include "client/cpp/chunks.h"
#include "client/cpp/grpc_session.h"
#include "common/base/address.h"
#include "common/base/status_macros.h"
#include "common/base/token_file.h"
#include "weft/v1/client_service.grpc.pb.h"

namespace weft {
namespace {

constexpr double kCallTimeoutS = 30;
// Lists of graphs and workers and views of inspect are single messages.
constexpr int kMaxMessageBytes = 256 << 20;

}  // namespace

struct Client::Impl {
  std::string address;
  std::string token;
  CallSet calls;
  std::unique_ptr<v1::ClientService::Stub> stub;

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Unary(grpc::Status (v1::ClientService::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                              const Request& request, double timeout_s) {
    CallSet::Call call(&calls, timeout_s);
    Reply reply;
    WEFT_RETURN_IF_ERROR(FromGrpc((stub.get()->*method)(call.context(), request, &reply), address));
    return reply;
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address, double timeout_s, const std::string& token) {
  // gRPC ends the process on metadata that it cannot send.
  WEFT_RETURN_IF_ERROR(CheckTokenText("token", token));
  WEFT_RETURN_IF_ERROR(ParseAddress("address", address, 1).status());
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto impl = std::make_unique<Impl>();
  impl->address = address;
  impl->token = token;
  impl->calls.SetToken(token);
  impl->stub = v1::ClientService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
  std::unique_ptr<Client> client(new Client(std::move(impl)));
  WEFT_RETURN_IF_ERROR(client->ListWorkers(timeout_s).status());
  return client;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Reconnect(double timeout_s) const {
  return Connect(impl_->address, timeout_s, impl_->token);
}

const std::string& Client::address() const { return impl_->address; }

absl::StatusOr<v1::CompileReply> Client::Compile(const v1::Graph& graph, const CompileOptions& options) {
  std::string bytes;
  if (graph.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int>::max()) || !graph.SerializeToString(&bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("graph \"", graph.name(), "\" is larger than 2 GiB or holds invalid UTF-8"));
  }
  CallSet::Call call(&impl_->calls, options.timeout_s);
  v1::CompileReply reply;
  auto writer = impl_->stub->Compile(call.context(), &reply);
  for (size_t at = 0; at == 0 || at < bytes.size(); at += kPieceBytes) {
    v1::CompileRequest request;
    request.set_graph_piece(bytes.substr(at, kPieceBytes));
    request.set_trace(options.trace);
    if (!writer->Write(request)) break;  // Finish says why
  }
  for (size_t at = 0; at < options.costs.size(); at += kPieceBytes) {
    v1::CompileRequest request;
    request.set_costs_piece(options.costs.substr(at, kPieceBytes));
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  WEFT_RETURN_IF_ERROR(FromGrpc(writer->Finish(), impl_->address));
  return reply;
}

absl::StatusOr<v1::ReplanReply> Client::Replan(const std::string& graph, const ReplanOptions& options) {
  // Compiling, measuring twice, and twice the executions in flight.
  CallSet::Call call(&impl_->calls, CompileOptions().timeout_s + 4 * options.timeout_s);
  v1::ReplanReply reply;
  auto writer = impl_->stub->Replan(call.context(), &reply);
  for (size_t at = 0; at == 0 || at < options.costs.size(); at += kPieceBytes) {
    v1::ReplanRequest request;
    request.set_graph(graph);
    request.set_measure(options.costs.empty());
    request.set_executions(options.executions);
    request.set_timeout_s(options.timeout_s);
    request.set_costs_piece(options.costs.substr(std::min(at, options.costs.size()), kPieceBytes));
    if (!writer->Write(request)) break;  // Finish says why
  }
  writer->WritesDone();
  WEFT_RETURN_IF_ERROR(FromGrpc(writer->Finish(), impl_->address));
  return reply;
}

absl::StatusOr<std::unique_ptr<ClientSession>> Client::OpenSession(const SessionOptions& options) {
  return GrpcSession::Open(impl_->stub.get(), &impl_->calls, impl_->address, options);
}

absl::Status Client::Teardown(const std::string& graph, double drain_timeout_s) {
  v1::TeardownRequest request;
  request.set_graph(graph);
  request.set_drain_timeout_s(drain_timeout_s);
  return impl_->Unary(&v1::ClientService::Stub::Teardown, request, drain_timeout_s + kCallTimeoutS).status();
}

absl::StatusOr<v1::ListGraphsReply> Client::ListGraphs(double timeout_s) {
  return impl_->Unary(&v1::ClientService::Stub::ListGraphs, v1::ListGraphsRequest(), timeout_s);
}

absl::StatusOr<v1::ListWorkersReply> Client::ListWorkers(double timeout_s) {
  return impl_->Unary(&v1::ClientService::Stub::ListWorkers, v1::ListWorkersRequest(), timeout_s);
}

absl::StatusOr<v1::InspectReply> Client::Inspect(const std::string& graph) {
  v1::InspectRequest request;
  request.set_graph(graph);
  return impl_->Unary(&v1::ClientService::Stub::Inspect, request, kCallTimeoutS);
}

absl::StatusOr<v1::Plan> Client::GetPlan(const std::string& graph) {
  v1::GetPlanRequest request;
  request.set_graph(graph);
  CallSet::Call call(&impl_->calls, 2 * kCallTimeoutS);
  auto reader = impl_->stub->GetPlan(call.context(), request);
  std::string bytes;
  v1::PlanChunk chunk;
  while (reader->Read(&chunk)) bytes += chunk.piece();
  WEFT_RETURN_IF_ERROR(FromGrpc(reader->Finish(), impl_->address));
  v1::Plan plan;
  if (!plan.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("what the driver at ", impl_->address, " sent as the plan of \"", graph, "\" is none"));
  }
  return plan;
}

absl::StatusOr<std::vector<v1::TraceTrack>> Client::GetTrace(const std::string& graph, int executions) {
  v1::GetTraceRequest request;
  request.set_graph(graph);
  request.set_executions(executions);
  CallSet::Call call(&impl_->calls, 2 * kCallTimeoutS);
  auto reader = impl_->stub->GetTrace(call.context(), request);
  std::vector<v1::TraceTrack> tracks;
  v1::TraceReply reply;
  while (reader->Read(&reply)) tracks.insert(tracks.end(), reply.track().begin(), reply.track().end());
  WEFT_RETURN_IF_ERROR(FromGrpc(reader->Finish(), impl_->address));
  return tracks;
}

void Client::CancelAll() { impl_->calls.CancelAll(); }

}  // namespace weft
