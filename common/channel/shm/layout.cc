#include "common/channel/shm/layout.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft::shm {
namespace {

template <size_t N>
void Put(char (&field)[N], const std::string& text) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

absl::StatusOr<Layout> ComputeLayout(const std::vector<ShmEdgeSpec>& edges) {
  if (edges.size() > kMaxEdges) {
    return absl::ResourceExhaustedError(absl::StrCat(edges.size(), " edges between two workers: at most ", kMaxEdges));
  }
  Layout layout;
  layout.edges.resize(edges.size());
  uint64_t at = sizeof(SegmentHeader) + edges.size() * sizeof(EdgeEntry);
  const auto take = [&](uint64_t bytes, uint64_t align) {
    at = RoundUp(at, align);
    const uint64_t here = at;
    at += bytes;
    return here;
  };
  const auto check = [&](size_t i) {
    if (at <= kMaxSegmentBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the slots up to ", EdgeLabel(edges[i]), " take more than ", kMaxSegmentBytes, " bytes: lower the number in flight"));
  };
  for (size_t i = 0; i < edges.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckEdgeSpec(edges[i]));
    EdgePlace& p = layout.edges[i];
    p.ring = take(sizeof(EdgeRing), kLine);
    p.controls = take(sizeof(SlotControl) * edges[i].slots, kLine);
    p.stride = RoundUp(edges[i].bytes, edges[i].bytes >= kPage ? kPage : kLine);
    WEFT_RETURN_IF_ERROR(check(i));
  }
  // Payloads of a page and more lie on page borders, so that they can be registered for DMA; small ones share pages.
  for (const bool large : {false, true}) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if ((edges[i].bytes >= kPage) != large) continue;
      EdgePlace& p = layout.edges[i];
      p.payloads = take(p.stride * edges[i].slots, large ? kPage : kLine);  // below 2^57
      WEFT_RETURN_IF_ERROR(check(i));
    }
  }
  layout.bytes = RoundUp(at, kPage);
  return layout;
}

EdgeEntry EntryOf(const ShmEdgeSpec& spec) {
  EdgeEntry e = {};
  e.edge = spec.edge;
  e.slots = spec.slots;
  e.bytes = spec.bytes;
  e.latency_s = spec.latency_s;
  e.bandwidth = spec.bandwidth;
  e.dtype = static_cast<uint8_t>(spec.spec.dtype);
  e.rank = static_cast<uint8_t>(std::min<size_t>(spec.spec.shape.dims.size(), kMaxRank));
  for (int i = 0; i < e.rank; ++i) {
    e.dims[i] = spec.spec.shape.dims[i].size;
    e.dim_kinds[i] = spec.spec.shape.dims[i].kind;
  }
  e.rendezvous = spec.rendezvous ? 1 : 0;
  Put(e.name, spec.name);
  Put(e.src_worker, spec.src_worker);
  Put(e.dst_worker, spec.dst_worker);
  return e;
}

absl::StatusOr<ShmEdgeSpec> SpecOf(const EdgeEntry& e) {
  ShmEdgeSpec s;
  s.edge = e.edge;
  s.slots = e.slots;
  s.bytes = e.bytes;
  s.latency_s = e.latency_s;
  s.bandwidth = e.bandwidth;
  s.rendezvous = e.rendezvous != 0;
  s.name = SafeText(e.name, sizeof e.name);
  s.src_worker = SafeText(e.src_worker, sizeof e.src_worker);
  s.dst_worker = SafeText(e.dst_worker, sizeof e.dst_worker);
  s.spec.dtype = static_cast<DType>(e.dtype);
  const auto bad = [&](const std::string& why) { return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(s), ": ", why)); };
  if (e.dtype != 0 && SizeOf(s.spec.dtype) == 0) return bad(absl::StrCat("dtype ", static_cast<int>(e.dtype), " does not exist"));
  if (e.rank > kMaxRank) return bad(absl::StrCat("rank ", static_cast<int>(e.rank), ": at most ", kMaxRank));
  for (int i = 0; i < e.rank; ++i) {
    const bool sane = e.dim_kinds[i] <= Dim::kDynamic && e.dims[i] >= 0 && e.dims[i] <= static_cast<int64_t>(kMaxTensorBytes);
    if (!sane) return bad(absl::StrCat("dimension ", i, " is damaged"));
    s.spec.shape.dims.push_back({static_cast<Dim::Kind>(e.dim_kinds[i]), e.dims[i]});
  }
  WEFT_RETURN_IF_ERROR(CheckEdgeSpec(s));
  return s;
}

}  // namespace weft::shm
