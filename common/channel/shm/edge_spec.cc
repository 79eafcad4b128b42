#include "common/channel/shm/edge_spec.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Enough for any plan, and keeps every sum of sizes far from overflow.
constexpr int32_t kMaxSlots = 1 << 16;

}  // namespace

absl::Status CheckEdgeSpec(const ShmEdgeSpec& spec) {
  const auto bad = [&](const std::string& why) { return absl::InvalidArgumentError(absl::StrCat(EdgeLabel(spec), ": ", why)); };
  if (spec.slots < 1 || spec.slots > kMaxSlots) return bad(absl::StrCat(spec.slots, " slots: 1 to ", kMaxSlots, " are possible"));
  if (spec.bytes > kMaxTensorBytes) return bad(absl::StrCat(spec.bytes, " bytes a slot: at most 1 TiB is possible"));
  if (spec.spec.shape.dims.size() > kMaxRank) return bad(absl::StrCat("rank ", spec.spec.shape.dims.size(), ": at most ", kMaxRank));
  if (!std::isfinite(spec.latency_s) || spec.latency_s < 0) return bad("the link's latency must be finite and not negative");
  if (!std::isfinite(spec.bandwidth) || spec.bandwidth < 0) return bad("the link's bandwidth must be finite and not negative");
  return absl::OkStatus();
}

std::string EdgeLabel(const ShmEdgeSpec& spec) {
  if (!spec.name.empty()) return spec.name;
  return absl::StrCat("edge ", spec.edge, " (", spec.src_worker, " -> ", spec.dst_worker, ")");
}

Nanos TransferTime(const ShmEdgeSpec& spec, uint64_t bytes) {
  double s = spec.latency_s;
  if (spec.bandwidth > 0) s += static_cast<double>(bytes) / spec.bandwidth;
  return FromSeconds(s);
}

Nanos SaturatingAdd(Nanos a, Nanos b) {
  constexpr Nanos kMax = std::numeric_limits<Nanos>::max();
  if (b > 0 && a > kMax - b) return kMax;
  return a + b;
}

absl::Status CheckSendable(const ShmEdgeSpec& spec, const Value& value) {
  if (value.error != nullptr) return absl::OkStatus();
  const Tensor& t = value.tensor;
  const bool fits = t.dtype() == spec.spec.dtype && spec.spec.shape.Admits(t.dims());
  if (fits && (spec.bytes == 0 ? t.bytes() <= kMaxTensorBytes : t.bytes() <= spec.bytes)) return absl::OkStatus();
  std::string why = fits ? absl::StrCat(", ", t.bytes(), " bytes, ", spec.bytes, " are reserved") : "";
  return absl::OutOfRangeError(absl::StrCat(EdgeLabel(spec), ": the value is ", t.ToString(), ", the edge is declared ",
                                            spec.spec.ToString(), why,
                                            ": declare the producer's output as large as its values become"));
}

TaskErrorRef EdgeError(const ShmEdgeSpec& spec, int64_t execution, const absl::Status& status) {
  auto e = std::make_shared<TaskError>();
  e->worker = spec.dst_worker;
  e->node = EdgeLabel(spec);
  e->execution = execution;
  e->code = status.code();
  e->message = absl::StrCat(EdgeLabel(spec), ": ", std::string(status.message()));
  return e;
}

}  // namespace weft
