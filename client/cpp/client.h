#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/session.h"
#include "weft/v1/client_service.pb.h"
#include "weft/v1/graph.pb.h"
#include "weft/v1/plan.pb.h"

namespace weft {

// A connection to a driver. Thread-safe. Errors of all calls: the driver's status with its message; Unavailable when the driver
// cannot be reached (names the address), DeadlineExceeded when it does not answer in time, Cancelled after CancelAll.
class Client {
 public:
  struct CompileOptions {
    // Keep recorded op times, for GetTrace.
    bool trace = true;
    // Seconds, for compiling and connecting the workers.
    double timeout_s = 300;
    // A serialized v1::Costs, by which `order: COST` and `overlap: AUTO` decide; empty: none.
    std::string costs;
  };
  struct ReplanOptions {
    // A serialized v1::Costs; empty: from the trace of the last executions.
    std::string costs;
    // Executions on which each of the two plans is measured, and how long each may take, in seconds.
    int executions = 20;
    double timeout_s = 60;
  };

  // `address` is "host:port", "[::1]:port" or "unix:/path". Asks the driver once, so that an address at which nobody or somebody else
  // listens is an error here. Sessions must be destroyed before their client.
  // `token` is the join token of a driver that has one; every call carries it. Unauthenticated: it is missing or another.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address, double timeout_s = 5, const std::string& token = "");
  // A second connection to the same driver with the same token, which CancelAll of this one does not touch.
  absl::StatusOr<std::unique_ptr<Client>> Reconnect(double timeout_s = 5) const;
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::string& address() const;

  // Ready to run when it returns. InvalidArgument lists every problem of the graph; AlreadyExists: the name is taken.
  absl::StatusOr<v1::CompileReply> Compile(const v1::Graph& graph, const CompileOptions& options);
  absl::StatusOr<std::unique_ptr<ClientSession>> OpenSession(const SessionOptions& options);
  // Finds a faster order for a graph that others execute meanwhile, and keeps it if it is measured to be faster. NotFound;
  // FailedPrecondition: the graph is not ready, or cannot change; DeadlineExceeded: too few executions were run.
  absl::StatusOr<v1::ReplanReply> Replan(const std::string& graph, const ReplanOptions& options);
  // Lets executions in flight finish for up to `drain_timeout_s` seconds. NotFound: no such graph.
  absl::Status Teardown(const std::string& graph, double drain_timeout_s = 10);

  absl::StatusOr<v1::ListGraphsReply> ListGraphs(double timeout_s = 30);
  absl::StatusOr<v1::ListWorkersReply> ListWorkers(double timeout_s = 10);
  // Of one graph, or of all when the name is empty.
  absl::StatusOr<v1::InspectReply> Inspect(const std::string& graph);
  absl::StatusOr<v1::Plan> GetPlan(const std::string& graph);
  // The predicted timeline and the recorded ones of the last `executions` executions (0: all that are kept).
  absl::StatusOr<std::vector<v1::TraceTrack>> GetTrace(const std::string& graph, int executions);

  // Ends every call in progress, sessions included, and every later one with Cancelled. For Ctrl-C. Any thread.
  void CancelAll();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
