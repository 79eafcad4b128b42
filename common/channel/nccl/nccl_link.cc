#include "common/channel/nccl/nccl_link.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/channel/nccl/announcement.h"
#include "common/channel/nccl/recv_port.h"
#include "common/channel/nccl/send_port.h"
#include "common/channel/nccl/transfer.h"

namespace weft {

ShmEdgeSpec NcclHeaderSpec(const ShmEdgeSpec& edge) {
  ShmEdgeSpec s = edge;
  s.bytes = sizeof(NcclAnnouncement);
  s.spec.dtype = v1::U8;
  s.spec.shape.dims = {Dim{Dim::kBounded, static_cast<int64_t>(sizeof(NcclAnnouncement))}};
  s.rendezvous = false;
  s.latency_s = 0;
  s.bandwidth = 0;
  return s;
}

void FillTrialPattern(int32_t edge, void* bytes) {
  uint64_t x = static_cast<uint32_t>(edge) + 1;
  auto* const p = static_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < NcclLink::kTrialBytes; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    p[i] = static_cast<unsigned char>(x >> 56);
  }
}

absl::Status CheckTrialPattern(int32_t edge, const void* bytes) {
  unsigned char want[NcclLink::kTrialBytes];
  FillTrialPattern(edge, want);
  const auto* const got = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < NcclLink::kTrialBytes; ++i) {
    if (got[i] == want[i]) continue;
    return absl::DataLossError(absl::StrCat("the trial transfer brought wrong data: byte ", i, " of ", NcclLink::kTrialBytes, " is ", static_cast<int>(got[i]), ", not ",
                                            static_cast<int>(want[i]), "; check the GPUs' link with nvidia-smi topo -m and NCCL's own tests"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<NcclLink>> NcclLink::Create(Options options) {
  const std::string label = options.comm->options().label;
  if (options.comm->size() != 2) return absl::InvalidArgumentError(absl::StrCat(label, ": ", options.comm->size(), " ranks; a link has two"));
  return std::shared_ptr<NcclLink>(new NcclLink(std::move(options)));
}

NcclLink::~NcclLink() {
  Close(absl::CancelledError(absl::StrCat(comm()->options().label, " was closed")));
  comm()->KeepUntilEnded(options_.scratch);  // a kernel of the trial may still be there
}

bool NcclLink::InTrial() const {
  const EventRef last = options_.scratch->last_trial.lock();
  return last != nullptr && !last->Ready();
}

namespace {

absl::Status CheckNcclEdge(const ShmEdgeSpec& edge, const NcclComm& comm, int rank, bool has_port) {
  WEFT_RETURN_IF_ERROR(CheckEdgeSpec(edge));
  const auto bad = [&](const std::string& why) { return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(edge), ": ", why)); };
  if (edge.edge < 0) return bad(absl::StrCat("edge number ", edge.edge));
  if (edge.latency_s > 0 || edge.bandwidth > 0) return bad("an NCCL edge is a real link; links are emulated on shm edges only");
  if (edge.spec.shape.HasDynamic()) return bad(absl::StrCat("its shape ", edge.spec.shape.ToString(), " has no bound, which NCCL cannot carry"));
  if (edge.bytes < edge.spec.MaxBytes()) return bad(absl::StrCat(edge.bytes, " bytes are reserved for ", edge.spec.ToString()));
  if (comm.rank() != rank) return bad(absl::StrCat("rank ", comm.rank(), " is not its ", rank == 0 ? "sending" : "receiving", " end"));
  if (!has_port) return bad("there is no port for its announcements");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SendPort>> NcclLink::NewSendPort(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge,
                                                                std::unique_ptr<SendPort> header_port) {
  WEFT_RETURN_IF_ERROR(CheckNcclEdge(edge, *link->comm(), 0, header_port != nullptr));
  return std::unique_ptr<SendPort>(std::make_unique<NcclSendPort>(link, edge, std::move(header_port)));
}

absl::StatusOr<std::unique_ptr<RecvPort>> NcclLink::NewRecvPort(const std::shared_ptr<NcclLink>& link, const ShmEdgeSpec& edge,
                                                                std::unique_ptr<RecvPort> header_port, bool tell_ahead) {
  WEFT_RETURN_IF_ERROR(CheckNcclEdge(edge, *link->comm(), 1, header_port != nullptr));
  return std::unique_ptr<RecvPort>(std::make_unique<NcclRecvPort>(link, edge, std::move(header_port), tell_ahead));
}

}  // namespace weft
