#include "common/session/shm_links.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/shm/recv_port.h"
#include "common/channel/shm/send_port.h"
#include "common/session/client_edges.h"
#include "common/session/shm_spec.h"

namespace weft {
namespace {

class ShmAdmissionLink : public AdmissionLink {
 public:
  ShmAdmissionLink(std::shared_ptr<ShmSegment> to, std::shared_ptr<ShmSegment> from) : to_(std::move(to)), from_(std::move(from)) {}

  void Publish(int64_t execution) override { to_->PublishAdmitted(execution); }
  absl::Status closed() const override {
    const absl::Status status = to_->closed();
    return status.ok() && from_ != nullptr ? from_->closed() : status;
  }
  void Close(const absl::Status& cause) override {
    to_->Close(cause);
    if (from_ != nullptr) from_->Close(cause);
  }

 private:
  const std::shared_ptr<ShmSegment> to_;
  const std::shared_ptr<ShmSegment> from_;  // nullptr for a worker without outputs
};

absl::Status Named(const std::string& worker, const absl::Status& s) {
  return absl::Status(s.code(), absl::StrCat("worker ", worker, ": ", std::string(s.message())));
}

}  // namespace

ShmClientLinks::ShmClientLinks(ShmHub* hub, const Plan* plan, std::string attempt, std::vector<int32_t> workers)
    : hub_(hub), plan_(plan), attempt_(std::move(attempt)), workers_(std::move(workers)) {
  for (const int32_t w : workers_) {
    for (const PlanEdge& e : plan_->edges) {
      if (e.dst_worker != kClient || e.src_worker != w || e.transport != v1::SHM) continue;
      import_keys_.push_back(PlaceKey(attempt_, plan_->workers[w].name, kClientPlace));
      break;
    }
  }
}

ShmClientLinks::~ShmClientLinks() {
  for (const auto& [w, segment] : to_) hub_->Withdraw(PlaceKey(attempt_, kClientPlace, plan_->workers[w].name));
}

absl::Status ShmClientLinks::Export() {
  for (const int32_t w : workers_) {
    std::vector<ShmEdgeSpec> specs;
    for (const PlanEdge& e : plan_->edges) {
      if (e.src_worker == kClient && e.dst_worker == w && e.transport == v1::SHM) specs.push_back(ShmSpecOf(*plan_, e));
    }
    absl::StatusOr<std::shared_ptr<ShmSegment>> segment =
        hub_->Export(PlaceKey(attempt_, kClientPlace, plan_->workers[w].name), std::move(specs), HashAsNumber(plan_->hash));
    if (!segment.ok()) return Named(plan_->workers[w].name, segment.status());
    to_[w] = *std::move(segment);
  }
  return absl::OkStatus();
}

absl::Status ShmClientLinks::Import(const std::vector<std::string>& addresses, Nanos deadline) {
  for (const int32_t w : workers_) {
    const std::string& name = plan_->workers[w].name;
    const std::string key = PlaceKey(attempt_, name, kClientPlace);
    bool wanted = false;
    for (const std::string& k : import_keys_) wanted |= k == key;
    if (!wanted) continue;
    absl::StatusOr<std::shared_ptr<ShmSegment>> segment = hub_->Import(addresses[w], key, deadline);
    if (!segment.ok()) return Named(name, segment.status());
    if ((*segment)->plan_hash() != HashAsNumber(plan_->hash)) {
      return Named(name, absl::FailedPreconditionError("its shared memory is of another plan: compile the graph again"));
    }
    from_[w] = *std::move(segment);
  }
  return absl::OkStatus();
}

void ShmClientLinks::Withdraw() {
  for (const std::string& key : import_keys_) hub_->Withdraw(key);
}

absl::StatusOr<std::unique_ptr<SendPort>> ShmClientLinks::InputPort(const PlanEdge& edge) const {
  const auto it = to_.find(edge.dst_worker);
  if (it == to_.end()) return absl::InternalError(absl::StrCat(EdgeName(*plan_, edge), ": its worker shares no memory here"));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<SendPort> port, ShmSendPort::Create(it->second, edge.id, Clock::Real()));
  return port;
}

absl::StatusOr<std::unique_ptr<RecvPort>> ShmClientLinks::OutputPort(const PlanEdge& edge) const {
  const auto it = from_.find(edge.src_worker);
  if (it == from_.end()) return absl::InternalError(absl::StrCat(EdgeName(*plan_, edge), ": its worker shares no memory here"));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RecvPort> port, ShmRecvPort::Create(it->second, ShmSpecOf(*plan_, edge), Clock::Real()));
  return port;
}

std::unique_ptr<AdmissionLink> ShmClientLinks::Link(int32_t worker) const {
  const auto from = from_.find(worker);
  return std::make_unique<ShmAdmissionLink>(to_.at(worker), from == from_.end() ? nullptr : from->second);
}

}  // namespace weft
