#include "driver/serve/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/serve/driver_end.h"
#include "driver/simulate/cost_file.h"
#include "driver/simulate/predict.h"

namespace weft {
namespace {

// How long calls may take to end by themselves when the driver stops; then they are cancelled.
constexpr auto kShutdown = std::chrono::milliseconds(300);
// While something waits for time to pass, and while nothing does.
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kIdleTick = std::chrono::milliseconds(250);
// Until unacknowledged data means that a peer's host is gone; the kernel answers for a process that is stopped.
constexpr int kTcpUserTimeoutMs = 20'000;

std::once_flag plugins_once;

}  // namespace

absl::StatusOr<std::unique_ptr<DriverServer>> DriverServer::Start(const DriverOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Address listen, ParseAddress("listen address", options.listen, 0));
  if (!listen.loopback && options.token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("listening on ", options.listen,
                                                   " lets other hosts in: give a join token (--token-file), or listen on loopback"));
  }
  std::unique_ptr<DriverServer> d(new DriverServer());
  d->incarnation_ = NewIncarnation();
  if (!options.state_dir.empty()) {
    WEFT_ASSIGN_OR_RETURN(GraphStore store, GraphStore::Open(options.state_dir));
    d->store_ = std::move(store);
  }
  WEFT_ASSIGN_OR_RETURN(d->doorbell_, Doorbell::Create());
  WEFT_ASSIGN_OR_RETURN(d->hub_, ShmHub::Create(d->doorbell_.get()));
  WorkerRegistry::Options registry;
  registry.driver_incarnation = d->incarnation_;
  registry.host_id = options.host_id.empty() ? LocalHostId() : options.host_id;
  registry.shm_address = d->hub_->address();
  registry.heartbeat_interval_s = options.heartbeat_interval_s;
  registry.unresponsive_after_s = options.unresponsive_after_s;
  const auto compile = [host_id = registry.host_id](const v1::Graph& graph, const std::vector<WorkerSnapshot>& workers,
                                                    const v1::Costs* costs) -> absl::StatusOr<Plan> {
    Cluster cluster;
    cluster.client_host_id = host_id;
    for (const WorkerSnapshot& w : workers) {
      cluster.workers.push_back({w.name, w.registration.host_id(), w.registration.device()});
    }
    if (costs == nullptr) return weft::Compile(graph, ClassTable::Std(), cluster);
    WEFT_RETURN_IF_ERROR(CheckCostValues("costs", *costs));
    WEFT_ASSIGN_OR_RETURN(Plan plan, weft::Compile(graph, ClassTable::Std(), cluster, nullptr, MakeCostModel(*costs, {})));
    WEFT_RETURN_IF_ERROR(CheckCosts("costs", *costs, plan));
    return plan;
  };
  const auto recompile = [host_id = registry.host_id](const v1::Graph& graph, const Plan& running,
                                                      const v1::Costs& costs) -> absl::StatusOr<Coordinator::Recompiled> {
    if (graph.options().order() != v1::COST) {
      return absl::FailedPreconditionError(absl::StrCat("graph ", graph.name(),
                                                        " runs in the order of its file (options.order PROGRAM), which is not ours to change: compile it "
                                                        "with options { order: COST }"));
    }
    WEFT_RETURN_IF_ERROR(CheckCostValues("costs", costs));
    WEFT_RETURN_IF_ERROR(CheckCosts("costs", costs, running));
    Cluster cluster;
    cluster.client_host_id = host_id;
    for (const PlanWorker& w : running.workers) cluster.workers.push_back({w.name, w.host_id, w.device});
    const CostModel model = MakeCostModel(costs, {});
    Coordinator::Recompiled result;
    WEFT_ASSIGN_OR_RETURN(result.plan, weft::Compile(graph, ClassTable::Std(), cluster, nullptr, model, &running));
    WEFT_ASSIGN_OR_RETURN(const Prediction old, Predict(running, model, {}));
    WEFT_ASSIGN_OR_RETURN(const Prediction next, Predict(result.plan, model, {}));
    result.old_predicted_s = old.period_s;
    result.new_predicted_s = next.period_s;
    return result;
  };
  d->host_ = std::make_unique<SessionHost>(d->doorbell_.get());
  const auto make_end = [host = d->host_.get(), hub = d->hub_.get(), doorbell = d->doorbell_.get(),
                         host_id = registry.host_id](GraphEndArgs args) -> std::shared_ptr<GraphEnd> {
    return std::make_shared<DriverEnd>(host, hub, doorbell, host_id, std::move(args));
  };
  d->coordinator_ = std::make_unique<Coordinator>(Clock::Real(), registry, options.timeouts, compile, make_end,
                                                  d->store_.has_value() ? &*d->store_ : nullptr, recompile);
  WEFT_RETURN_IF_ERROR(d->coordinator_->Recover());
  d->client_service_ = std::make_unique<ClientServiceImpl>(d->coordinator_.get(), options.token);
  d->worker_service_ = std::make_unique<WorkerServiceImpl>(d->coordinator_.get(), options.token);

  // Health and reflection say nothing that needs the token.
  std::call_once(plugins_once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(d->client_service_.get());
  builder.RegisterService(d->worker_service_.get());
  // Two drivers never share a port without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Pings never end a connection, neither by coming too often nor by not being answered; a finite time between them (24 days) is
  // what makes gRPC set TCP_USER_TIMEOUT.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, std::numeric_limits<int>::max() - 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kTcpUserTimeoutMs);
  d->server_ = builder.BuildAndStart();
  if (d->server_ == nullptr || (port == 0 && !listen.is_unix)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": it is in use, or not an address of this host"));
  }
  d->address_ = listen.is_unix ? options.listen : absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  d->ticker_ = std::thread([server = d.get()] { server->Tick(); });
  return d;
}

void DriverServer::Tick() {
  while (true) {
    const bool pending = coordinator_->Tick();
    MutexLock lock(&mu_);
    if (!stop_ticking_) wake_.WaitFor(&mu_, pending ? kTick : kIdleTick);
    if (stop_ticking_) return;
  }
}

void DriverServer::Stop(const absl::Status& why) {
  if (std::exchange(stopped_, true)) return;
  if (coordinator_ != nullptr) {
    coordinator_->Shutdown(why);
    coordinator_->registry()->CloseAll(why);
  }
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdown);
    server_->Wait();
  }
  {
    MutexLock lock(&mu_);
    stop_ticking_ = true;
    wake_.NotifyAll();
  }
  if (ticker_.joinable()) ticker_.join();
  server_.reset();
  if (coordinator_ != nullptr) coordinator_->Tick();  // lets go of sessions that ended last
  // Sessions' callbacks reach into the coordinator: their thread ends first.
  host_.reset();
}

DriverServer::~DriverServer() { Stop(absl::UnavailableError("the driver stopped")); }

}  // namespace weft
