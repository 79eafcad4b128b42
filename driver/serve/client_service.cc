#include "driver/serve/client_service.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "driver/serve/execute_session.h"
#include "driver/serve/rpc.h"
#include "driver/simulate/measured_costs.h"
#include "driver/simulate/timeline.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kMaxGraphBytes = size_t{1} << 30;
// About 100 bytes each on the wire.
constexpr int kEventsPerReply = 10'000;
constexpr int64_t kPredictedEvents = 200'000;
constexpr double kDefaultDrainS = 10;
constexpr size_t kMaxCostBytes = size_t{1} << 30;
// Executions whose times a session keeps; of which costs are measured when the client does not say.
constexpr int kMostMeasured = 2048;
constexpr int kDefaultMeasured = 20;

absl::Status AddCosts(const std::string& piece, std::string* bytes) {
  if (bytes->size() + piece.size() > kMaxCostBytes) {
    return absl::ResourceExhaustedError("the costs are larger than 1 GiB, the most that a driver takes");
  }
  *bytes += piece;
  return absl::OkStatus();
}

// False when the client is gone.
bool WriteTrack(const v1::TraceTrack& track, grpc::ServerWriter<v1::TraceReply>* writer) {
  int begin = 0;
  do {
    v1::TraceReply reply;
    v1::TraceTrack* piece = reply.add_track();
    piece->set_worker(track.worker());
    piece->set_predicted(track.predicted());
    piece->set_clock_offset_ns(track.clock_offset_ns());
    piece->set_clock_error_ns(track.clock_error_ns());
    const int end = std::min(track.event_size(), begin + kEventsPerReply);
    for (int i = begin; i < end; ++i) *piece->add_event() = track.event(i);
    if (!writer->Write(reply)) return false;
    begin = end;
  } while (begin < track.event_size());
  return true;
}

}  // namespace

absl::Status ClientServiceImpl::Answer(const absl::Status& status) const {
  return absl::IsUnavailable(status) && !coordinator_->shut_down() ? absl::FailedPreconditionError(status.message()) : status;
}

grpc::Status ClientServiceImpl::Compile(grpc::ServerContext* context, grpc::ServerReader<v1::CompileRequest>* reader,
                                        v1::CompileReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  std::string bytes;
  std::string cost_bytes;
  bool trace = false;
  v1::CompileRequest request;
  while (reader->Read(&request)) {
    trace |= request.trace();
    if (bytes.size() + request.graph_piece().size() > kMaxGraphBytes) {
      return ToGrpc(absl::ResourceExhaustedError("the graph is larger than 1 GiB, the most that a driver takes"));
    }
    bytes += request.graph_piece();
    if (const absl::Status s = AddCosts(request.costs_piece(), &cost_bytes); !s.ok()) return ToGrpc(s);
  }
  if (context->IsCancelled()) return ToGrpc(absl::CancelledError("the client went away"));
  v1::Graph graph;
  if (!graph.ParseFromString(bytes)) return ToGrpc(absl::InvalidArgumentError("the pieces do not make up a serialized graph"));
  bytes = std::string();
  v1::Costs costs;
  if (!costs.ParseFromString(cost_bytes)) return ToGrpc(absl::InvalidArgumentError("the pieces of costs do not make up a serialized Costs"));

  using Result = absl::StatusOr<v1::CompileReply>;
  const auto promise = std::make_shared<Promise<Result>>();
  const std::string attempt =
      coordinator_->Compile(graph, trace, [promise](Result r) { promise->Set(std::move(r)); }, cost_bytes.empty() ? nullptr : &costs);
  if (!WaitFor(promise.get(), *context)) {
    coordinator_->CancelCompile(graph.name(), attempt);
    return ToGrpc(absl::CancelledError("the client went away"));
  }
  Result result = promise->Take();
  if (!result.ok()) {
    spdlog::warn("graph {} was not compiled: {}", graph.name(), std::string(result.status().message()));
    return ToGrpc(Answer(result.status()));
  }
  *reply = *std::move(result);
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::Execute(grpc::ServerContext* context, ExecuteStream* stream) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  return ToGrpc(RunExecuteSession(coordinator_, context, stream));
}

grpc::Status ClientServiceImpl::Teardown(grpc::ServerContext* context, const v1::TeardownRequest* request, v1::TeardownReply*) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  const double drain_s = request->has_drain_timeout_s() ? request->drain_timeout_s() : kDefaultDrainS;
  if (!std::isfinite(drain_s) || drain_s < 0) {
    return ToGrpc(absl::InvalidArgumentError(absl::StrCat("drain_timeout_s is ", drain_s, ": a number of seconds from 0 on")));
  }
  const auto promise = std::make_shared<Promise<absl::Status>>();
  coordinator_->Teardown(request->graph(), drain_s, [promise](absl::Status s) { promise->Set(std::move(s)); });
  // Goes on without the client.
  if (!WaitFor(promise.get(), *context)) return ToGrpc(absl::CancelledError("the client went away"));
  return ToGrpc(Answer(promise->Take()));
}

grpc::Status ClientServiceImpl::ListGraphs(grpc::ServerContext* context, const v1::ListGraphsRequest*, v1::ListGraphsReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  *reply = coordinator_->ListGraphs();
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*, v1::ListWorkersReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  *reply = coordinator_->ListWorkers();
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::Inspect(grpc::ServerContext* context, const v1::InspectRequest* request, v1::InspectReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  const auto promise = std::make_shared<Promise<v1::InspectReply>>();
  const absl::Status asked =
      coordinator_->Inspect(request->graph(), [promise](v1::InspectReply r) { promise->Set(std::move(r)); });
  if (!asked.ok()) return ToGrpc(asked);
  if (!WaitFor(promise.get(), *context)) return ToGrpc(absl::CancelledError("the client went away"));
  *reply = promise->Take();
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::GetPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                                        grpc::ServerWriter<v1::PlanChunk>* writer) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  const absl::StatusOr<std::shared_ptr<const Plan>> plan = coordinator_->PlanOf(request->graph());
  if (!plan.ok()) return ToGrpc(plan.status());
  const std::string bytes = PlanToProto(**plan).SerializeAsString();
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    v1::PlanChunk chunk;
    chunk.set_piece(bytes.substr(at, kPieceBytes));
    if (!writer->Write(chunk)) break;
  }
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::Replan(grpc::ServerContext* context, grpc::ServerReader<v1::ReplanRequest>* reader, v1::ReplanReply* reply) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  v1::ReplanRequest first, request;
  std::string bytes;
  bool any = false;
  while (reader->Read(&request)) {
    if (!std::exchange(any, true)) first = request;
    if (const absl::Status s = AddCosts(request.costs_piece(), &bytes); !s.ok()) return ToGrpc(s);
  }
  if (context->IsCancelled()) return ToGrpc(absl::CancelledError("the client went away"));
  if (!std::isfinite(first.timeout_s()) || first.timeout_s() < 0 || first.executions() < 0 || first.executions() > kMostMeasured) {
    return ToGrpc(absl::InvalidArgumentError(absl::StrCat("executions is ", first.executions(), " and timeout_s ", first.timeout_s(),
                                                          ": from 0 to ", kMostMeasured, ", and a number of seconds from 0 on")));
  }
  v1::Costs costs;
  if (first.measure()) {
    if (!bytes.empty()) return ToGrpc(absl::InvalidArgumentError("costs are either given or measured, not both"));
    const absl::StatusOr<std::shared_ptr<const Plan>> plan = coordinator_->PlanOf(first.graph());
    if (!plan.ok()) return ToGrpc(plan.status());
    const auto traced = std::make_shared<Promise<std::vector<v1::TraceTrack>>>();
    const absl::Status asked = coordinator_->Trace(
        first.graph(), first.executions() > 0 ? first.executions() : kDefaultMeasured,
        [traced](std::vector<v1::TraceTrack> tracks, std::map<std::string, std::string>) { traced->Set(std::move(tracks)); });
    if (!asked.ok()) return ToGrpc(asked);
    if (!WaitFor(traced.get(), *context)) return ToGrpc(absl::CancelledError("the client went away"));
    absl::StatusOr<MeasuredCosts> measured = CostsFromTrace(**plan, traced->Take());
    if (!measured.ok()) return ToGrpc(measured.status());
    costs = std::move(measured->costs);
  } else if (bytes.empty()) {
    return ToGrpc(absl::InvalidArgumentError("no costs are given: give some, or have them measured"));
  } else if (!costs.ParseFromString(bytes)) {
    return ToGrpc(absl::InvalidArgumentError("the pieces of costs do not make up a serialized Costs"));
  }
  using Result = absl::StatusOr<v1::ReplanReply>;
  const auto promise = std::make_shared<Promise<Result>>();
  const std::weak_ptr<ReplanRecord> asked = coordinator_->Replan(
      first.graph(), costs, first.executions(), first.timeout_s(), [promise](Result r) { promise->Set(std::move(r)); });
  if (!WaitFor(promise.get(), *context)) {
    coordinator_->CancelReplan(first.graph(), asked);
    return ToGrpc(absl::CancelledError("the client went away"));
  }
  Result result = promise->Take();
  if (!result.ok()) return ToGrpc(Answer(result.status()));
  *reply = *std::move(result);
  return grpc::Status::OK;
}

grpc::Status ClientServiceImpl::GetTrace(grpc::ServerContext* context, const v1::GetTraceRequest* request,
                                         grpc::ServerWriter<v1::TraceReply>* writer) {
  if (const absl::Status s = CheckToken(*context, token_); !s.ok()) return ToGrpc(s);
  if (request->executions() < 0) return ToGrpc(absl::InvalidArgumentError("executions is negative: 0 means all that are kept"));
  const absl::StatusOr<std::shared_ptr<const Plan>> plan = coordinator_->PlanOf(request->graph());
  if (!plan.ok()) return ToGrpc(plan.status());
  struct Traced {
    std::vector<v1::TraceTrack> tracks;
    std::map<std::string, std::string> problems;
  };
  const auto promise = std::make_shared<Promise<Traced>>();
  const absl::Status asked = coordinator_->Trace(
      request->graph(), request->executions(), [promise](std::vector<v1::TraceTrack> tracks, std::map<std::string, std::string> problems) {
        promise->Set(Traced{std::move(tracks), std::move(problems)});
      });
  if (!asked.ok()) return ToGrpc(asked);

  // While the workers answer.
  SimOptions options;
  const int64_t most = std::max<int64_t>(1, kPredictedEvents / std::max<int64_t>(1, static_cast<int64_t>((*plan)->ops.size())));
  options.executions = std::min<int64_t>(most, request->executions() > 0 ? request->executions() : 8);
  const absl::StatusOr<SimResult> predicted = Simulate(**plan, CostModel::Default(), options);
  if (predicted.ok()) {
    for (const v1::TraceTrack& track : PredictedTimeline(**plan, *predicted)) {
      if (!WriteTrack(track, writer)) break;
    }
  } else {
    spdlog::warn("graph {}: no predicted timeline: {}", request->graph(), std::string(predicted.status().message()));
  }
  if (!WaitFor(promise.get(), *context)) return ToGrpc(absl::CancelledError("the client went away"));
  const Traced traced = promise->Take();
  for (const auto& [worker, problem] : traced.problems) {
    spdlog::warn("graph {}: no trace of worker {}: {}", request->graph(), worker, problem);
  }
  for (const v1::TraceTrack& track : traced.tracks) {
    if (!WriteTrack(track, writer)) break;
  }
  return grpc::Status::OK;
}

}  // namespace weft
