// The parts of bootstrap that need a communicator. Every worker meets its peers in one order: links by (source, destination), then groups
// by id, so that each meeting finds all of its workers there.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/comm/gloo/gloo_communicator.h"
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

absl::Status GraphLoader::MakeGlooPorts(LoadedGraph*, Nanos) {
  for (const PlanEdge& e : part_.edges) {
    if (e.transport == v1::GLOO) return absl::UnimplementedError(absl::StrCat(EdgeName(part_, e), ": no Gloo ports"));
  }
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeRemotePorts(LoadedGraph*, Nanos) {
  if (env_->driver_host_id != env_->host_id) return absl::UnimplementedError("no remote ports");
  return absl::OkStatus();
}

absl::Status GraphLoader::MakeGroups(LoadedGraph* loaded, Nanos deadline) {
  for (const PlanGroup& g : part_.groups) {
    if (g.transport != v1::GLOO) {
      return absl::UnimplementedError(absl::StrCat("collective ", g.name, ": this worker has no communicator for ", v1::Transport_Name(g.transport)));
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
