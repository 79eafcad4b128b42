// The parts of bootstrap that go beyond shared memory. Every worker meets its peers in one order: links by (source, destination), then groups
// by id, so that each meeting finds all of its workers there.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/gloo/gloo_link.h"
#include "common/channel/remote/remote_link.h"
#include "common/comm/gloo/gloo_communicator.h"
#include "common/session/shm_spec.h"
#include "worker/session/data_stream.h"
#include "worker/session/driver_store.h"
#include "worker/session/graph_loader.h"
#include "worker/session/links.h"

namespace weft {

absl::StatusOr<std::shared_ptr<GlooMesh>> GraphLoader::Mesh(const std::string& label, std::vector<int32_t> workers, Nanos deadline) {
  WEFT_RETURN_IF_ERROR(CheckOpen(deadline, absl::StrCat("no time is left to connect ", label)));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooDevice> device, env_->Gloo());
  DriverStore store(stub_, part_.graph, attempt_, env_->token);
  GlooMesh::Options o;
  o.store = &store;
  o.prefix = absl::StrCat(attempt_, "/", label);
  o.label = label;
  o.doorbell = env_->doorbell;
  for (const int32_t w : workers) o.workers.push_back(WorkerName(part_, w));
  const auto self = std::find(workers.begin(), workers.end(), me_);
  if (self == workers.end()) return absl::InvalidArgumentError(absl::StrCat(label, " is not of ", WorkerName(part_, me_)));
  o.rank = static_cast<int>(self - workers.begin());
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, GlooMesh::Create(std::move(device), std::move(o)));
  links_->AddOther([mesh](const absl::Status& cause) { mesh->Abort(cause); }, [mesh] { return mesh->Health(); });
  WEFT_RETURN_IF_ERROR(mesh->Connect(std::max<Nanos>(1, deadline - env_->clock->Now())));
  return mesh;
}

absl::Status GraphLoader::MakeGlooPorts(LoadedGraph* loaded, Nanos deadline) {
  std::map<std::pair<int32_t, int32_t>, std::vector<const PlanEdge*>> pairs;
  for (const PlanEdge& e : part_.edges) {
    if (e.transport == v1::GLOO) pairs[{e.src_worker, e.dst_worker}].push_back(&e);
  }
  for (const auto& [pair, edges] : pairs) {
    const auto [src, dst] = pair;
    const std::string label = absl::StrCat("link ", WorkerName(part_, src), " -> ", WorkerName(part_, dst));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, Mesh(label, {src, dst}, deadline));
    auto link = std::make_shared<GlooLink>(std::move(mesh), HashAsNumber(part_.hash), env_->doorbell);
    links_->AddOther([link](const absl::Status& cause) { link->Close(cause); }, [link] { return link->Health(); });
    for (const PlanEdge* e : edges) {
      if (src == me_) {
        WEFT_ASSIGN_OR_RETURN(loaded->senders[e->id], link->NewSendPort(ShmSpecOf(part_, *e)));
      } else {
        WEFT_ASSIGN_OR_RETURN(loaded->receivers[e->id], link->NewRecvPort(ShmSpecOf(part_, *e)));
      }
    }
  }
  return absl::OkStatus();
}

// The stream is needed by workers that share no memory with the driver (admission comes through it), and for client edges that the graph
// puts on it.
absl::Status GraphLoader::MakeRemotePorts(LoadedGraph* loaded, Nanos deadline) {
  std::vector<const PlanEdge*> edges;
  for (const PlanEdge& e : part_.edges) {
    if (e.transport == v1::REMOTE) edges.push_back(&e);
  }
  if (edges.empty() && registration_->driver_host_id == env_->host_id) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckOpen(deadline, "no time is left to open the data stream to the driver"));
  v1::DataOpen open;
  open.set_graph(part_.graph);
  open.set_attempt(attempt_);
  open.set_worker(registration_->worker_name);
  open.set_incarnation(registration_->incarnation);
  auto stream = std::make_shared<DataStream>(stub_.get(), open, env_->token);
  RemoteLink::Options o;
  o.plan = std::make_shared<const Plan>(part_);
  o.me = me_;
  o.peer = kClient;
  o.doorbell = env_->doorbell;
  std::shared_ptr<RemoteLink> link = RemoteLink::Create(std::move(o), stream->pipe());
  stream->Start(
      [weak = std::weak_ptr<RemoteLink>(link)](const v1::DataMessage& m) {
        if (auto l = weak.lock()) l->OnMessage(m);
      },
      [weak = std::weak_ptr<RemoteLink>(link)](const absl::Status& why) {
        if (auto l = weak.lock()) l->OnClosed(why);
      });
  links_->AddOther([link](const absl::Status& cause) { link->Close(cause); }, [link] { return link->closed(); });
  links_->SetRemote(link, std::shared_ptr<void>(stream.get(), [stub = stub_, stream](void*) {}));
  for (const PlanEdge* e : edges) {
    if (e->src_worker == me_) {
      WEFT_ASSIGN_OR_RETURN(loaded->senders[e->id], link->TakeSendPort(e->id));
    } else {
      WEFT_ASSIGN_OR_RETURN(loaded->receivers[e->id], link->TakeRecvPort(e->id));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeGroups(LoadedGraph* loaded, Nanos deadline) {
  for (const PlanGroup& g : part_.groups) {
    if (g.transport == v1::NCCL) {
      WEFT_RETURN_IF_ERROR(MakeNcclGroup(g, loaded, deadline));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, Mesh(absl::StrCat("collective ", g.name), g.members, deadline));
    GroupInfo info;
    info.id = g.id;
    info.name = g.name;
    info.plan_hash = HashAsNumber(part_.hash);
    for (const int32_t w : g.members) info.workers.push_back(WorkerName(part_, w));
    loaded->groups[g.id] = std::make_unique<GlooCommunicator>(std::move(mesh), std::move(info), env_->doorbell);
  }
  return absl::OkStatus();
}

}  // namespace weft
