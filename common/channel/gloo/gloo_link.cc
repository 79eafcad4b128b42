#include "common/channel/gloo/gloo_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/gloo/engine.h"
#include "common/channel/gloo/recv_port.h"
#include "common/channel/gloo/send_port.h"

namespace weft {

GlooLink::Engine::Engine(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, Doorbell* doorbell)
    : mesh_(std::move(mesh)), plan_hash_(plan_hash), doorbell_(doorbell), thread_([this] { Work(); }) {}

GlooLink::Engine::~Engine() { Stop(); }

EventRef GlooLink::Engine::Post(Job job) {
  auto event = std::make_shared<ManualEvent>();
  MutexLock lock(&mu_);
  if (stop_) {
    job(mesh_->Health());
    event->Set();
    return event;
  }
  items_.push_back({std::move(job), event});
  wake_.NotifyOne();
  return event;
}

void GlooLink::Engine::Stop() {
  mesh_->Abort(absl::CancelledError("closed"));
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void GlooLink::Engine::Work() {
  for (;;) {
    Item item;
    {
      MutexLock lock(&mu_);
      while (items_.empty() && !stop_) wake_.Wait(&mu_);
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    item.job(mesh_->Health());
    item.job = nullptr;  // what it holds is given back before the event says so
    item.event->Set();
    if (doorbell_ != nullptr) doorbell_->Ring();
  }
}

GlooLink::GlooLink(std::shared_ptr<GlooMesh> mesh, uint64_t plan_hash, Doorbell* doorbell)
    : engine_(std::make_shared<Engine>(std::move(mesh), plan_hash, doorbell)) {}

GlooLink::~GlooLink() { engine_->Stop(); }

void GlooLink::Close(const absl::Status& cause) { engine_->mesh().Abort(cause); }
absl::Status GlooLink::Health() const { return engine_->mesh().Health(); }

namespace {

absl::Status CheckGlooEdge(const ShmEdgeSpec& edge, const GlooMesh& mesh, int rank) {
  WEFT_RETURN_IF_ERROR(CheckEdgeSpec(edge));
  if (edge.edge < 0) return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge), ": edge number ", edge.edge));
  if (edge.latency_s > 0 || edge.bandwidth > 0) {
    return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge), ": a gloo edge is a real link; links are emulated on shm edges only"));
  }
  if (mesh.size() != 2 || mesh.rank() != rank) {
    return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge), ": rank ", mesh.rank(), " of ", mesh.size(), " is not its ",
                                                   rank == 0 ? "sending" : "receiving", " end"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SendPort>> GlooLink::NewSendPort(const ShmEdgeSpec& edge) {
  WEFT_RETURN_IF_ERROR(CheckGlooEdge(edge, engine_->mesh(), 0));
  return std::unique_ptr<SendPort>(std::make_unique<GlooSendPort>(engine_, edge));
}

absl::StatusOr<std::unique_ptr<RecvPort>> GlooLink::NewRecvPort(const ShmEdgeSpec& edge) {
  WEFT_RETURN_IF_ERROR(CheckGlooEdge(edge, engine_->mesh(), 1));
  return std::unique_ptr<RecvPort>(std::make_unique<GlooRecvPort>(engine_, edge));
}

}  // namespace weft
