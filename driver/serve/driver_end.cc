#include "driver/serve/driver_end.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// A link by which several ways to one worker look like one.
class RemoteAdmission : public AdmissionLink {
 public:
  explicit RemoteAdmission(std::shared_ptr<RemoteLink> link) : link_(std::move(link)) {}
  void Publish(int64_t execution) override { link_->PublishAdmitted(execution); }
  absl::Status closed() const override { return link_->closed(); }
  void Close(const absl::Status& cause) override { link_->Close(cause); }

 private:
  const std::shared_ptr<RemoteLink> link_;
};

bool HasRemoteEdge(const Plan& plan, int32_t worker) {
  return std::any_of(plan.edges.begin(), plan.edges.end(), [&](const PlanEdge& e) {
    return e.transport == v1::REMOTE && ((e.src_worker == kClient && e.dst_worker == worker) ||
                                         (e.dst_worker == kClient && e.src_worker == worker));
  });
}

}  // namespace

DriverEnd::DriverEnd(SessionHost* host, ShmHub* hub, Doorbell* doorbell, const std::string& host_id, GraphEndArgs args)
    : host_(host), doorbell_(doorbell), args_(std::move(args)) {
  for (const int32_t w : args_.workers) {
    const bool same_host = args_.plan->workers[w].host_id == host_id;
    if (same_host) local_.push_back(w);
    if (!same_host || HasRemoteEdge(*args_.plan, w)) remote_.push_back(w);
  }
  SessionCore::Options options;
  options.doorbell = doorbell;
  options.workers = args_.workers;
  options.on_link_failed = args_.on_failed;
  absl::StatusOr<std::shared_ptr<SessionCore>> core = SessionCore::Create(args_.plan, std::move(options));
  created_ = core.status();
  if (core.ok()) core_ = *std::move(core);
  shm_ = std::make_unique<ShmClientLinks>(hub, args_.plan.get(), args_.attempt, local_);
}

DriverEnd::~DriverEnd() {
  Fail(absl::CancelledError("the graph was removed"));
  std::thread connecting;
  {
    MutexLock lock(&mu_);
    connecting = std::move(connecting_);
  }
  if (connecting.joinable()) connecting.join();
  if (core_ != nullptr) host_->Remove(core_);
}

absl::Status DriverEnd::Prepare() {
  WEFT_RETURN_IF_ERROR(created_);
  WEFT_RETURN_IF_ERROR(shm_->Export());
  host_->Add(core_);
  return absl::OkStatus();
}

void DriverEnd::Connect(std::vector<v1::PeerAddress> peers, Nanos deadline, std::function<void(absl::Status)> done) {
  MutexLock lock(&mu_);
  connecting_ = std::thread([this, peers = std::move(peers), deadline, done = std::move(done)] { DoConnect(peers, deadline, done); });
}

void DriverEnd::DoConnect(const std::vector<v1::PeerAddress>& peers, Nanos deadline, const std::function<void(absl::Status)>& done) {
  absl::StatusOr<SessionPorts> ports = MakePorts(peers, deadline);
  if (!ports.ok()) {
    done(ports.status());
    return;
  }
  core_->Connect(*std::move(ports), deadline, done);
}

absl::StatusOr<SessionPorts> DriverEnd::MakePorts(const std::vector<v1::PeerAddress>& peers, Nanos deadline) {
  std::vector<std::string> addresses;
  for (const v1::PeerAddress& p : peers) addresses.push_back(p.shm_address());
  WEFT_RETURN_IF_ERROR(shm_->Import(addresses, deadline));
  WEFT_RETURN_IF_ERROR(AwaitRemote(deadline));
  std::map<int32_t, std::shared_ptr<RemoteLink>> links;
  {
    MutexLock lock(&mu_);
    links = links_;
  }
  SessionPorts ports;
  for (const ClientEdge& e : core_->edges().inputs) {
    if (e.edge->transport == v1::REMOTE) {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<SendPort> port, links.at(e.edge->dst_worker)->TakeSendPort(e.edge->id));
      ports.inputs.push_back(std::move(port));
    } else {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<SendPort> port, shm_->InputPort(*e.edge));
      ports.inputs.push_back(std::move(port));
    }
  }
  for (const ClientEdge& e : core_->edges().outputs) {
    if (e.edge->transport == v1::REMOTE) {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RecvPort> port, links.at(e.edge->src_worker)->TakeRecvPort(e.edge->id));
      ports.outputs.push_back(std::move(port));
    } else {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RecvPort> port, shm_->OutputPort(*e.edge));
      ports.outputs.push_back(std::move(port));
    }
  }
  for (const int32_t w : local_) ports.links.push_back(shm_->Link(w));
  for (const auto& [w, link] : links) ports.links.push_back(std::make_unique<RemoteAdmission>(link));
  return ports;
}

absl::Status DriverEnd::AwaitRemote(Nanos deadline) {
  MutexLock lock(&mu_);
  while (true) {
    if (!failed_.ok()) return failed_;
    if (links_.size() == remote_.size()) return absl::OkStatus();
    const Nanos left = deadline - Clock::Real()->Now();
    if (left <= 0) break;
    attached_.WaitFor(&mu_, std::chrono::nanoseconds(left));
  }
  std::vector<std::string> missing;
  for (const int32_t w : remote_) {
    if (links_.count(w) == 0) missing.push_back(args_.plan->workers[w].name);
  }
  return absl::DeadlineExceededError(absl::StrCat("no data stream has come from worker ", absl::StrJoin(missing, ", ")));
}

absl::StatusOr<std::shared_ptr<RemoteLink>> DriverEnd::AttachRemote(const std::string& worker, std::shared_ptr<MessagePipe> pipe) {
  MutexLock lock(&mu_);
  if (!failed_.ok()) return absl::AbortedError(std::string(failed_.message()));
  for (const int32_t w : remote_) {
    if (args_.plan->workers[w].name != worker) continue;
    if (links_.count(w) > 0) return absl::AlreadyExistsError(absl::StrCat("worker ", worker, " has a data stream of this graph"));
    RemoteLink::Options options;
    options.plan = args_.plan;
    options.me = kClient;
    options.peer = w;
    options.doorbell = doorbell_;
    std::shared_ptr<RemoteLink> link = RemoteLink::Create(std::move(options), std::move(pipe));
    links_[w] = link;
    attached_.NotifyAll();
    return link;
  }
  return absl::NotFoundError(absl::StrCat("worker ", worker, " needs no data stream: it shares memory with the driver"));
}

void DriverEnd::Start() { core_->Start(); }

void DriverEnd::Fail(const absl::Status& cause) {
  std::map<int32_t, std::shared_ptr<RemoteLink>> links;
  {
    MutexLock lock(&mu_);
    if (failed_.ok()) failed_ = cause;
    links = links_;
    attached_.NotifyAll();
  }
  shm_->Withdraw();
  for (const auto& [w, link] : links) link->Close(cause);
  if (core_ != nullptr) core_->Fail(cause);
}

void DriverEnd::Drain(std::function<void()> done) { core_->Drain(std::move(done)); }

void DriverEnd::Progress(int32_t worker, int64_t completed) { core_->Progress(worker, completed); }

std::vector<GraphEnd::ExecutionTime> DriverEnd::Times(int64_t first) const {
  std::vector<ExecutionTime> times;
  for (const SessionCore::ExecutionTime& t : core_->Times(first)) times.push_back({t.execution, t.admitted, t.done});
  return times;
}

GraphEnd::Counts DriverEnd::counts() const {
  Counts counts;
  if (core_ == nullptr) return counts;
  const SessionCore::Counts c = core_->counts();
  counts.admitted = c.admitted;
  counts.completed = c.completed;
  counts.queued = c.queued;
  return counts;
}

v1::WorkerView DriverEnd::View() const {
  v1::WorkerView view;
  view.set_graph(args_.plan->graph);
  view.set_worker(kClientPlace);
  if (core_ == nullptr) return view;
  const SessionCore::Counts counts = core_->counts();
  view.set_admitted(counts.admitted);
  view.set_completed(counts.completed);
  int writes = 0;
  int reads = 0;
  for (const SessionCore::EdgeView& e : core_->View()) {
    v1::LaneView* lane = view.add_lane();
    lane->set_lane(e.output ? v1::LANE_RECV : v1::LANE_SEND);
    lane->set_index(e.output ? reads++ : writes++);
    lane->set_op(e.op);
    lane->set_execution(e.execution);
    lane->set_state(e.waits_for.empty() ? "idle" : "waiting");
    lane->set_waits_for(e.waits_for);
    lane->set_since_s(e.since_s);
  }
  return view;
}

}  // namespace weft
