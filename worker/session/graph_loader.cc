#include "worker/session/graph_loader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/ipc/announcement.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/session/client_edges.h"
#include "common/session/edge_trial.h"
#include "common/session/shm_spec.h"
#include "worker/session/links.h"

namespace weft {

GraphLoader::GraphLoader(WorkerEnv* env, std::shared_ptr<const Registration> registration, std::shared_ptr<v1::WorkerService::Stub> stub, Plan part,
                         std::string attempt, CancelFlag* cancel)
    : env_(env),
      registration_(std::move(registration)),
      stub_(std::move(stub)),
      part_(std::move(part)),
      attempt_(std::move(attempt)),
      cancel_(cancel),
      me_(part_.part_of),
      links_(std::make_shared<Links>(env->hub)) {
  // Waits deep inside a library end when what they wait on is closed.
  cancel_->OnSet([links = links_](const absl::Status& cause) { links->Close(cause); });
}

GraphLoader::~GraphLoader() {
  cancel_->OnSet(nullptr);
  // What Connect handed over is closed by the graph's own end.
  if (!handed_over_) links_->Close(absl::CancelledError(absl::StrCat("bootstrap of graph ", part_.graph, " was given up")));
}

std::string GraphLoader::Key(int32_t writer, int32_t reader) const {
  const auto place = [this](int32_t w) { return w == kClient ? std::string(kClientPlace) : WorkerName(part_, w); };
  return PlaceKey(attempt_, place(writer), place(reader));
}

absl::Status GraphLoader::CheckOpen(Nanos deadline, const std::string& what) const {
  WEFT_RETURN_IF_ERROR(cancel_->Get());
  WEFT_RETURN_IF_ERROR(links_->Health());
  if (env_->clock->Now() >= deadline) {
    return absl::DeadlineExceededError(absl::StrCat("graph ", part_.graph, " on ", WorkerName(part_, me_), ": ", what));
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::Prepare() {
  if (me_ < 0) return absl::InvalidArgumentError("the plan is not the part of one worker");
  if (WorkerName(part_, me_) != registration_->worker_name) {
    return absl::InvalidArgumentError(absl::StrCat("the plan is for ", WorkerName(part_, me_), ", this worker is ", registration_->worker_name));
  }
  for (const PlanActor& a : part_.actors) {
    if (a.worker != me_) continue;
    absl::StatusOr<std::unique_ptr<Actor>> actor = env_->registry->Make(a.cls, a.config, env_->device);
    if (!actor.ok()) {
      return absl::Status(actor.status().code(), absl::StrCat("actor ", a.name, " (", a.cls, "): ", std::string(actor.status().message())));
    }
    actors_[a.id] = *std::move(actor);
  }
  WEFT_RETURN_IF_ERROR(TakeBudget());
  WEFT_RETURN_IF_ERROR(TakeArena());
  std::map<int32_t, std::vector<ShmEdgeSpec>> out;
  for (const PlanEdge& e : part_.edges) {
    if (e.src_worker == me_ && e.transport == v1::SHM) out[e.dst_worker].push_back(ShmSpecOf(part_, e));
    if (e.src_worker == me_ && e.transport == v1::IPC) out[e.dst_worker].push_back(AnnouncementEdge(ShmSpecOf(part_, e)));
    if (e.src_worker == me_ && e.transport == v1::NCCL && SameHost(e)) out[e.dst_worker].push_back(NcclHeaderSpec(ShmSpecOf(part_, e)));
  }
  for (auto& [peer, edges] : out) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<ShmSegment> segment,
                          env_->hub->Export(Key(me_, peer), std::move(edges), HashAsNumber(part_.hash)));
    links_->AddSegment(segment, Key(me_, peer));
    to_[peer] = std::move(segment);
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::ImportSegments(const v1::Connect& peers, Nanos deadline) {
  std::set<int32_t> from;
  for (const PlanEdge& e : part_.edges) {
    if (e.dst_worker == me_ && (e.transport == v1::SHM || e.transport == v1::IPC)) from.insert(e.src_worker);
    if (e.dst_worker == me_ && e.transport == v1::NCCL && SameHost(e)) from.insert(e.src_worker);
  }
  if (registration_->driver_host_id == env_->host_id) from.insert(kClient);  // it carries admission, also without input edges
  for (const int32_t peer : from) {
    const std::string name = WorkerName(part_, peer);
    const std::string address = peer == kClient ? registration_->driver_shm_address : peers.peer(peer).shm_address();
    if (address.empty()) {
      return absl::UnavailableError(absl::StrCat(name, " has told no address for shared memory: is it still registered?"));
    }
    links_->AddKey(Key(peer, me_));
    absl::StatusOr<std::shared_ptr<ShmSegment>> segment = env_->hub->Import(address, Key(peer, me_), deadline, [&] {
      return CheckOpen(deadline, absl::StrCat("shared memory of ", name, " did not come in time"));
    });
    if (!segment.ok()) {
      WEFT_RETURN_IF_ERROR(cancel_->Get());
      return absl::Status(segment.status().code(), absl::StrCat("shared memory of ", name, ": ", std::string(segment.status().message())));
    }
    if ((*segment)->plan_hash() != HashAsNumber(part_.hash)) {
      return absl::FailedPreconditionError(absl::StrCat(name, " has loaded another plan of graph ", part_.graph, " than ", WorkerName(part_, me_)));
    }
    links_->AddSegment(*segment, "");
    from_[peer] = *std::move(segment);
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeShmPorts(LoadedGraph* loaded) {
  for (const PlanEdge& e : part_.edges) {
    if (e.transport != v1::SHM) continue;
    if (e.src_worker == me_) {
      WEFT_ASSIGN_OR_RETURN(loaded->senders[e.id], ShmSendPort::Create(to_.at(e.dst_worker), e.id, env_->clock));
    }
    if (e.dst_worker == me_) {
      WEFT_ASSIGN_OR_RETURN(loaded->receivers[e.id], ShmRecvPort::Create(from_.at(e.src_worker), ShmSpecOf(part_, e), env_->clock));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedGraph> GraphLoader::Connect(const v1::Connect& peers) {
  if (peers.peer_size() != static_cast<int>(part_.workers.size())) {
    return absl::InvalidArgumentError(absl::StrCat("told of ", peers.peer_size(), " peers, the plan has ", part_.workers.size(), " workers"));
  }
  const double timeout = std::clamp(peers.timeout_s(), 0.1, 3600.0);
  const Nanos deadline = env_->clock->Now() + FromSeconds(timeout);
  LoadedGraph loaded;
  WEFT_RETURN_IF_ERROR(ImportSegments(peers, deadline));
  WEFT_RETURN_IF_ERROR(RegisterSegments());
  WEFT_RETURN_IF_ERROR(MakeShmPorts(&loaded));
  WEFT_RETURN_IF_ERROR(MakeRemotePorts(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(MakeGlooPorts(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(StagePorts(&loaded));
  WEFT_RETURN_IF_ERROR(MakeIpcPorts(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(MakeNcclPorts(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(MakeGroups(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(TryEdges(&loaded, deadline));
  WEFT_RETURN_IF_ERROR(TryGroups(&loaded, deadline));
  loaded.actors = std::move(actors_);
  if (const auto client = from_.find(kClient); client != from_.end()) {
    loaded.admitted = [segment = client->second] { return segment->admitted(); };
  } else {
    loaded.admitted = [links = links_] { return links->RemoteAdmitted(); };
  }
  loaded.close_links = [links = links_](const absl::Status& cause) { links->Close(cause); };
  loaded.link_health = [links = links_] { return links->Health(); };
  loaded.keep = [links = links_](std::shared_ptr<void> what) { links->Keep(std::move(what)); };
  if (env_->cuda != nullptr) loaded.owes = [env = env_] { return (env->quiet != nullptr && env->quiet->InUse()) || env->Owes(); };
  loaded.arena = arena_;
  loaded.plan = part_;
  handed_over_ = true;
  return loaded;
}

// Each edge moves one small checked message, in plan order, which is free of deadlock for blocking transfers too. The message is an error
// value, since that fits every edge; its header carries the plan's hash and the edge, and its text is compared.
absl::Status GraphLoader::TryEdges(LoadedGraph* loaded, Nanos deadline) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, env_->device->NewStream(v1::LANE_SEND));
  for (const PlanOp& op : part_.ops) {
    if (op.worker != me_ || op.edge < 0) continue;
    const absl::Status s = TryEdge(op, loaded, stream.get(), deadline);
    if (s.ok()) continue;
    // NCCL's thread may yet put there what it has been told.
    links_->Keep(stream);
    return s;
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::TryEdge(const PlanOp& op, LoadedGraph* loaded, Stream* stream, Nanos deadline) {
  const PlanEdge& edge = *FindEdge(part_, op.edge);
  const bool sends = op.kind == v1::SEND || op.kind == v1::WRITE;
  const int32_t peer = sends ? edge.dst_worker : edge.src_worker;
  const std::string what = absl::StrCat("trial of ", EdgeName(part_, edge), " did not come to its end; it waits for ",
                                        WorkerName(part_, peer));
  // Sleeps on the doorbell in short rounds: the loop sleeps there too, and a cancel rings nothing.
  const auto pause = [this](uint32_t seen) { env_->doorbell->Wait(seen, env_->clock->Now() + 1'000'000, 0); };
  const auto closed = [&](const absl::Status& s) {
    return absl::Status(s.code(), absl::StrCat("trial of ", EdgeName(part_, edge), ": ", std::string(s.message())));
  };
  SendPort* const sender = sends ? loaded->senders.at(edge.id).get() : nullptr;
  RecvPort* const receiver = sends ? nullptr : loaded->receivers.at(edge.id).get();
  while (true) {
    const uint32_t seen = env_->doorbell->Snapshot();
    const PortState state = sends ? sender->Poll(kTrialExecution) : receiver->Poll(kTrialExecution);
    if (state == PortState::kReady) break;
    if (state == PortState::kClosed) return closed(sends ? sender->closed() : receiver->closed());
    WEFT_RETURN_IF_ERROR(CheckOpen(deadline, what));
    pause(seen);
  }
  // Shared, since a port may fill it until its event is ready; on an early return the ports go first, with `loaded`.
  Value value;
  EventRef event;
  if (sends) {
    value = TrialValue(edge.id);
    WEFT_ASSIGN_OR_RETURN(event, sender->Send(kTrialExecution, value, stream));
  } else {
    WEFT_ASSIGN_OR_RETURN(event, receiver->Recv(kTrialExecution, Tensor(), &value, stream));
  }
  while (!IsReady(event)) {
    const uint32_t seen = env_->doorbell->Snapshot();
    if (IsReady(event)) break;
    absl::Status open = CheckOpen(deadline, what);
    if (!open.ok()) {
      loaded->senders.clear();
      loaded->receivers.clear();
      return open;
    }
    pause(seen);
  }
  if (sends) return absl::OkStatus();
  receiver->Release(kTrialExecution);
  return CheckTrialValue(value, edge.id, EdgeName(part_, edge));
}

}  // namespace weft
