#include "driver/simulate/slowdown.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr Nanos kEndOfTime = std::numeric_limits<Nanos>::max();

bool OnLane(const PlanIndex& index, const PlanOp& op, LaneKind lane, v1::Transport transport, const std::string& node) {
  if (op.lane != lane) return false;
  if (!node.empty() && (op.kind != v1::COMPUTE || index.node_of(op).name != node)) return false;
  if (transport == v1::TRANSPORT_UNSPECIFIED) return true;
  if (op.edge >= 0) return index.edge_of(op).transport == transport;
  return op.kind == v1::COLLECTIVE && index.group_of(op).transport == transport;
}

}  // namespace

absl::Status Slowdown::Check(const std::vector<Contention>& contention) {
  if (contention.size() > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("the costs have ", contention.size(), " contention entries: at most ", kMax));
  }
  for (size_t i = 0; i < contention.size(); ++i) {
    if (contention[i].factor >= kOne && contention[i].factor <= 1000 * kOne) continue;
    return absl::InvalidArgumentError(absl::StrCat("contention[", i, "].factor: ", contention[i].factor, " millionths: ", kOne, " to ",
                                                   1000 * kOne, " work"));
  }
  return absl::OkStatus();
}

Slowdown::Slowdown(const PlanIndex& index, const std::vector<Contention>& contention, const std::vector<int32_t>& unit_ops,
                   const std::vector<int32_t>& unit_ops_at)
    : index_(index), unit_ops_(unit_ops), unit_ops_at_(unit_ops_at), slowed_by_(index.num_ops()), slows_(index.num_ops()) {
  for (size_t i = 0; i < contention.size(); ++i) {
    const Contention& c = contention[i];
    factors_.push_back(c.factor);
    for (const PlanOp& op : index.plan().ops) {
      if (OnLane(index, op, c.slowed, c.slowed_transport, c.node)) slowed_by_[op.id] |= uint64_t{1} << i;
      if (OnLane(index, op, c.beside, c.beside_transport, "")) slows_[op.id] |= uint64_t{1} << i;
    }
  }
  active_.assign(index.plan().workers.size(), std::vector<int32_t>(contention.size(), 0));
  ops_on_.resize(index.plan().workers.size());
  running_.resize(index.num_units());
}

int64_t Slowdown::FactorOf(int32_t unit) const {
  int64_t factor = kOne;
  ForEachOp(unit, [&](int32_t op) {
    const std::vector<int32_t>& active = active_[index_.op(op).worker];
    for (size_t i = 0; i < factors_.size(); ++i) {
      const uint64_t bit = uint64_t{1} << i;
      // Not by itself.
      if ((slowed_by_[op] & bit) != 0 && active[i] > ((slows_[op] & bit) != 0 ? 1 : 0)) factor = std::max(factor, factors_[i]);
    }
  });
  return factor;
}

void Slowdown::Retime(int32_t unit, Nanos now) {
  Running& r = running_[unit];
  const int64_t factor = FactorOf(unit);
  if (r.at >= 0 && factor == r.factor) return;
  // `work` counts in millionths of a nanosecond, of which kOne * kOne / factor are done in a nanosecond.
  r.work = std::max<__int128>(0, r.work - static_cast<__int128>(now - r.last) * kOne * kOne / r.factor);
  r.last = now;
  r.factor = factor;
  const __int128 per = static_cast<__int128>(kOne) * kOne;
  const __int128 left = (r.work * factor + per - 1) / per;
  r.at = left > kEndOfTime - now ? kEndOfTime : now + static_cast<Nanos>(left);
  ++r.version;
  changed_.push_back({r.at, unit, r.start, r.version});
}

void Slowdown::RetimeAround(int32_t unit, Nanos now) {
  ForEachOp(unit, [&](int32_t op) {
    if (slows_[op] == 0) return;
    for (const int32_t other : ops_on_[index_.op(op).worker]) {
      if ((slowed_by_[other] & slows_[op]) != 0 && index_.unit_of(other) != unit) Retime(index_.unit_of(other), now);
    }
  });
}

void Slowdown::Start(int32_t unit, Nanos now, Nanos cost) {
  changed_.clear();
  ForEachOp(unit, [&](int32_t op) {
    const int32_t worker = index_.op(op).worker;
    ops_on_[worker].push_back(op);
    for (size_t i = 0; i < factors_.size(); ++i) active_[worker][i] += (slows_[op] >> i) & 1;
  });
  Running& r = running_[unit];
  r.start = r.last = now;
  r.at = -1;
  r.work = static_cast<__int128>(cost) * kOne;
  r.factor = kOne;
  Retime(unit, now);
  RetimeAround(unit, now);
}

void Slowdown::Finish(int32_t unit, Nanos now) {
  changed_.clear();
  ++running_[unit].version;
  ForEachOp(unit, [&](int32_t op) {
    const int32_t worker = index_.op(op).worker;
    std::vector<int32_t>& on = ops_on_[worker];
    on.erase(std::find(on.begin(), on.end(), op));
    for (size_t i = 0; i < factors_.size(); ++i) active_[worker][i] -= (slows_[op] >> i) & 1;
  });
  RetimeAround(unit, now);
}

}  // namespace weft
