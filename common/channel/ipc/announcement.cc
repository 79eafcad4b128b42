#include "common/channel/ipc/announcement.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/device/cuda/api/kernels_api.h"

namespace weft {

ShmEdgeSpec AnnouncementEdge(const ShmEdgeSpec& edge) {
  ShmEdgeSpec a = edge;
  a.bytes = sizeof(IpcAnnouncement);
  a.spec = Spec{v1::U8, Shape::Of({static_cast<int64_t>(sizeof(IpcAnnouncement))})};
  a.rendezvous = false;
  a.latency_s = 0;
  a.bandwidth = 0;
  return a;
}

void PresetAnnouncement(const Spec& spec, uint64_t offset, uint64_t status_offset, void* slot) {
  IpcAnnouncement a;
  a.offset = offset;
  a.status_offset = status_offset;
  a.bytes = spec.MaxBytes();
  a.dtype = spec.dtype;
  const Dims dims = spec.shape.MaxDims();
  a.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), a.dims);
  std::memcpy(slot, &a, sizeof a);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

absl::Status CheckAnnouncement(const IpcAnnouncement& a, const ShmEdgeSpec& edge, uint64_t limit, Dims* dims) {
  const auto damaged = [&](const std::string& what) {
    return absl::DataLossError(absl::StrCat("the announcement of a value is damaged: ", what, "; restart ", edge.src_worker));
  };
  if (a.rank < 0 || a.rank > static_cast<int32_t>(kMaxRank)) return damaged(absl::StrCat("rank ", a.rank));
  dims->assign(a.dims, a.dims + a.rank);
  const absl::StatusOr<int64_t> elements = NumElements(*dims);
  if (!elements.ok()) return damaged(std::string(elements.status().message()));
  if (static_cast<DType>(a.dtype) != edge.spec.dtype || !edge.spec.shape.Admits(*dims)) {
    return absl::OutOfRangeError(absl::StrCat("a value of dtype ", a.dtype, " and shape ", DimsToString(*dims), " came, the edge is declared ",
                                              edge.spec.ToString()));
  }
  if (a.bytes != static_cast<uint64_t>(*elements) * SizeOf(edge.spec.dtype)) return damaged(absl::StrCat(a.bytes, " bytes"));
  if (a.bytes > limit || a.offset > limit - a.bytes) return damaged(absl::StrCat("it lies at ", a.offset, " of ", limit));
  if (a.status_offset != IpcAnnouncement::kNoStatus && (limit < sizeof(DeviceStatus) || a.status_offset > limit - sizeof(DeviceStatus))) {
    return damaged(absl::StrCat("its status word lies at ", a.status_offset, " of ", limit));
  }
  return absl::OkStatus();
}

}  // namespace weft
