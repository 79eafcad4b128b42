#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "common/channel/shm/hub.h"
#include "common/session/session_host.h"
#include "driver/cluster/coordinator.h"
#include "driver/serve/client_service.h"
#include "driver/serve/worker_service.h"

namespace weft {

struct DriverOptions {
  // host:port, [ipv6]:port or unix:/path; port 0: any free one.
  std::string listen = "127.0.0.1:0";
  // Empty: graphs are not kept over a restart.
  std::string state_dir;
  // The join token; needed to listen beyond loopback.
  std::string token;
  // Empty: this host's.
  std::string host_id;
  double heartbeat_interval_s = 1.0;
  double unresponsive_after_s = 3.0;
  CoordinatorTimeouts timeouts;
};

// The whole driver in one object: coordinator, session host, gRPC server, ticker. For main, and for tests that want a real one.
class DriverServer {
 public:
  // InvalidArgument: the address, or one beyond loopback without a token. Unavailable: it cannot be bound. Errors of the state
  // directory and of shared memory.
  static absl::StatusOr<std::unique_ptr<DriverServer>> Start(const DriverOptions& options);
  // Stop, if it was not called.
  ~DriverServer();

  // "host:port" with the port that was got.
  const std::string& address() const { return address_; }
  const std::string& incarnation() const { return incarnation_; }
  Coordinator* coordinator() { return coordinator_.get(); }

  // Ends every call with `why`, every thread, every session. About a second at most. Idempotent.
  void Stop(const absl::Status& why);

 private:
  DriverServer() = default;
  void Tick();

  std::string address_;
  std::string incarnation_;
  std::optional<GraphStore> store_;
  // Each is used by those below it.
  std::unique_ptr<Doorbell> doorbell_;
  std::unique_ptr<ShmHub> hub_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<SessionHost> host_;
  std::unique_ptr<ClientServiceImpl> client_service_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;
  std::unique_ptr<grpc::Server> server_;

  Mutex mu_;
  CondVar wake_;
  bool stop_ticking_ WEFT_GUARDED_BY(mu_) = false;
  std::thread ticker_;
  bool stopped_ = false;
};

}  // namespace weft
