#pragma once

// The worker's side of the control plane: dials the driver, registers, obeys commands, reports progress and the first failure of each
// graph, and dials again when the driver is gone. One thread reads (Run's caller), one writes; each graph's bootstrap has its own.

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "weft/v1/worker_service.grpc.pb.h"
#include "worker/run/executor.h"
#include "worker/session/graph_session.h"
#include "worker/session/outbox.h"

namespace weft {

class Agent {
 public:
  struct Options {
    std::string driver;        // host:port
    std::string name;          // empty: the driver picks one
    std::string host_id;
    std::string device = "cpu";
    std::string data_address = "127.0.0.1";
    std::string token;         // join token, empty: none
    // How long a name that is taken, or a driver that refuses for now, is tried again before Run gives up.
    Nanos refused_timeout = 15 * kNanosPerSecond;
  };

  // `env` (devices, hub, clock) outlives the agent; the executor, whose callbacks lead here, ends after Run and before the agent.
  Agent(Options options, WorkerEnv* env);
  ~Agent();

  // Until Stop: OK. Otherwise why the driver refuses this worker for good (PermissionDenied, InvalidArgument, AlreadyExists). No graph of this agent is in
  // the executor any more, which takes as long as a call in which a bootstrap is.
  absl::Status Run();
  // From any thread but a signal handler. `linger`: what the driver has not been told yet goes first, for at most so long.
  void Stop(Nanos linger = 0);

  // For the executor's options: called on the loop's thread.
  void OnGraphFailed(const std::string& graph, const std::string& attempt, const absl::Status& cause);
  void OnGraphCompleted(const std::string& graph, const std::string& attempt, int64_t completed);

 private:
  using Stub = v1::WorkerService::Stub;

  // Until Stop or a refusal for good.
  absl::Status Serve();
  // One life of the control stream. The status says why it ended.
  absl::Status Session(bool* welcomed);
  void Handle(const v1::DriverMessage& m);
  void WriteLoop(grpc::ClientReaderWriter<v1::WorkerMessage, v1::DriverMessage>* stream);
  v1::WorkerMessage NewMessage() const;
  // Has all of them removed.
  void DropAllGraphs(const absl::Status& cause);
  void Unload(const std::string& graph, const std::string& attempt, bool reply);

  // A graph that is being removed, on a thread of its own: its bootstrap may be inside a call that takes long or never returns, and meanwhile this worker
  // serves others and tells of it.
  struct Closing {
    std::string graph;
    std::unique_ptr<GraphSession> session;  // until done
    absl::Status abort;                     // what the graph ends with where it still runs; OK: it was removed
    std::vector<std::function<void()>> answers;  // to those who asked for it
    std::thread thread;
    bool done = false;
  };
  Closing* BeginClosing(std::map<std::string, std::unique_ptr<GraphSession>>::iterator it, const absl::Status& abort) WEFT_REQUIRES(mu_);
  void Close(Closing* closing);
  // Joins the threads of those that are done, or of all.
  void JoinClosings(bool all);
  bool IsClosing(const std::string& graph) const WEFT_REQUIRES(mu_);

  const Options options_;
  WorkerEnv* const env_;
  const std::string incarnation_;
  Outbox outbox_;
  int64_t opening_ = 0;  // of the outbox, for the driver that is served. Run's thread
  std::atomic<bool> stop_{false};
  std::atomic<Nanos> heartbeat_interval_{kNanosPerSecond};
  std::string name_;  // Run's thread

  Mutex mu_;
  CondVar stopped_;
  grpc::ClientContext* context_ WEFT_GUARDED_BY(mu_) = nullptr;
  std::map<std::string, std::unique_ptr<GraphSession>> graphs_ WEFT_GUARDED_BY(mu_);
  std::list<Closing> closings_ WEFT_GUARDED_BY(mu_);
  std::shared_ptr<Stub> stub_;                        // Run's thread
  std::shared_ptr<const Registration> registration_;  // Run's thread
};

}  // namespace weft
