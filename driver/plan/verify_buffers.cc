#include "driver/plan/verify_rules.h"

namespace weft {
namespace {

// The waits of one producer, by lane: which ops of the lane are known to be done in execution k - n (n: the producer's slots) when the
// producer is issued in execution k. Lanes run in order, so a wait for one op covers those before it in the same execution, and all of
// the lane in executions before that.
class Covered {
 public:
  explicit Covered(const PlanIndex& index) : index_(index), lanes_(index.lanes().size()) {}

  void Set(const PlanOp& producer) {
    ++stamp_;
    producer_ = &producer;
    for (const PlanWait& w : producer.waits) Add(w.op, w.distance);
  }

  bool Has(int32_t reader) const {
    // On the producer's own lane all of execution k stands before k + 1.
    if (index_.lane_of(reader) == index_.lane_of(producer_->id)) return true;
    const Lane& l = lanes_[index_.lane_of(reader)];
    return l.stamp == stamp_ && (l.all || index_.place_in_lane(reader) <= l.place);
  }

 private:
  struct Lane {
    int64_t stamp = 0;
    int32_t place = -1;  // up to this place
    bool all = false;
  };

  void Add(int32_t op, int32_t distance) {
    if (distance > producer_->slots) return;
    Lane& l = lanes_[index_.lane_of(op)];
    if (l.stamp != stamp_) l = {stamp_, -1, false};
    if (distance < producer_->slots) {
      l.all = true;
    } else {
      l.place = std::max(l.place, index_.place_in_lane(op));
    }
  }

  const PlanIndex& index_;
  std::vector<Lane> lanes_;
  const PlanOp* producer_ = nullptr;
  int64_t stamp_ = 0;
};

}  // namespace

// A value rotates through `slots` buffers: execution k writes the one that execution k - slots wrote, so all readers of k - slots must be
// done before the producer is issued. The buffers of a READ that does not copy are the edge's slots, which WRITE takes by credit: nothing to show there, save that
// both ends count the same number (V7).
void CheckBuffers(const PlanIndex& index, Findings* f) {
  Covered covered(index);
  for (const PlanOp& o : index.plan().ops) {
    const bool copies = o.kind == v1::READ && ReadCopies(index.plan(), index.edge_of(o));
    if (o.kind != v1::COMPUTE && o.kind != v1::RECV && o.kind != v1::COLLECTIVE && !copies) continue;
    const PlanIndex::Range takers = index.takers(o.id);
    if (takers.empty()) continue;
    covered.Set(o);
    for (const int32_t r : takers) {
      if (covered.Has(r)) continue;
      f->Add("V5", index.Name(o.id), " writes a buffer that ", index.Name(r), " may still read: it has ", o.slots,
             o.slots == 1 ? " slot" : " slots", " and must wait for that op (BUFFER) at a distance of 1",
             o.slots == 1 ? "" : absl::StrCat(" to ", o.slots));
    }
  }
}

std::optional<uint64_t> CheckedBytes(const Spec& spec) {
  if (spec.shape.dims.size() > kMaxRank) return std::nullopt;
  uint64_t bytes = SizeOf(spec.dtype);
  bool dynamic = false, zero = false;
  for (const Dim& d : spec.shape.dims) {
    if (d.kind == Dim::kDynamic) {
      dynamic = true;
      continue;
    }
    if (d.size < 0 || static_cast<uint64_t>(d.size) > kMaxTensorBytes) return std::nullopt;
    zero |= d.size == 0;
  }
  for (const Dim& d : spec.shape.dims) {
    if (zero || d.kind == Dim::kDynamic) continue;
    if (bytes > kMaxTensorBytes / static_cast<uint64_t>(d.size)) return std::nullopt;
    bytes *= static_cast<uint64_t>(d.size);
  }
  return dynamic || zero ? 0 : bytes;
}

}  // namespace weft
