#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/channel/remote/remote_link.h"
#include "common/channel/shm/hub.h"
#include "common/session/session_core.h"
#include "common/session/session_host.h"
#include "common/session/shm_links.h"
#include "driver/cluster/graph_end.h"

namespace weft {

// The driver's own end of one graph: shared memory to the workers of its host, data streams to those of others. See GraphEnd.
class DriverEnd : public GraphEnd {
 public:
  // `host` and `hub` outlive it. `host_id` is the driver's.
  DriverEnd(SessionHost* host, ShmHub* hub, Doorbell* doorbell, const std::string& host_id, GraphEndArgs args);
  ~DriverEnd() override;

  absl::Status Prepare() override;
  void Connect(std::vector<v1::PeerAddress> peers, Nanos deadline, std::function<void(absl::Status)> done) override;
  void Start() override;
  void Fail(const absl::Status& cause) override;
  void Drain(std::function<void()> done) override;
  void Progress(int32_t worker, int64_t completed) override;
  Counts counts() const override;
  void Pause(std::function<void(int64_t admitted)> done) override { core_->Pause(std::move(done)); }
  void Resume() override { core_->Resume(); }
  std::vector<ExecutionTime> Times(int64_t first) const override;
  v1::WorkerView View() const override;
  std::shared_ptr<Session> session() override { return core_; }

  // The link on which a worker of another host gets and gives its edges; the Data call feeds it. NotFound when that worker needs none,
  // AlreadyExists when it has one, or what the graph failed with.
  absl::StatusOr<std::shared_ptr<RemoteLink>> AttachRemote(const std::string& worker, std::shared_ptr<MessagePipe> pipe);

 private:
  void DoConnect(const std::vector<v1::PeerAddress>& peers, Nanos deadline, const std::function<void(absl::Status)>& done);
  absl::StatusOr<SessionPorts> MakePorts(const std::vector<v1::PeerAddress>& peers, Nanos deadline);
  absl::Status AwaitRemote(Nanos deadline);

  SessionHost* const host_;
  Doorbell* const doorbell_;
  const GraphEndArgs args_;
  std::vector<int32_t> local_;   // plan indices
  std::vector<int32_t> remote_;  // workers with a data stream
  std::shared_ptr<SessionCore> core_;
  absl::Status created_;
  std::unique_ptr<ShmClientLinks> shm_;

  mutable Mutex mu_;
  CondVar attached_;
  absl::Status failed_ WEFT_GUARDED_BY(mu_);
  std::map<int32_t, std::shared_ptr<RemoteLink>> links_ WEFT_GUARDED_BY(mu_);
  std::thread connecting_ WEFT_GUARDED_BY(mu_);
};

}  // namespace weft
