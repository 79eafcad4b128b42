#include "worker/run/arena.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t RoundUp(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

ArenaLayout::ArenaLayout(const Plan& part) {
  const bool status = UsesStatusWords(part);
  for (const PlanOp& op : part.ops) {
    if (op.worker != part.part_of) continue;
    Place place;
    place.begin = bytes_;
    place.slots = op.slots;
    const auto add = [&](const Spec& spec) {
      place.outputs.push_back(spec.shape.HasDynamic() ? 0 : RoundUp(BufferSize(spec.MaxBytes(), status)));
      bytes_ += place.outputs.back() * static_cast<size_t>(op.slots);
    };
    switch (op.kind) {
      case v1::COMPUTE:
        for (const Spec& spec : FindNode(part, op.node)->outputs) add(spec);
        break;
      case v1::READ:
      case v1::RECV:
        add(FindEdge(part, op.edge)->spec);
        break;
      case v1::COLLECTIVE:
        add(FindGroup(part, op.group)->output);
        break;
      default:
        continue;
    }
    places_.emplace(op.id, std::move(place));
  }
}

absl::StatusOr<size_t> ArenaLayout::OffsetOf(const PlanValue& value, int slot) const {
  const auto it = places_.find(value.op);
  if (it == places_.end() || slot < 0 || slot >= it->second.slots || value.output < 0 ||
      value.output >= static_cast<int32_t>(it->second.outputs.size()) || it->second.outputs[value.output] == 0) {
    return absl::InvalidArgumentError(absl::StrCat("output ", value.output, " of op ", value.op, " has no planned buffer ", slot));
  }
  // Slot by slot, the outputs of each one after the other.
  const std::vector<size_t>& outputs = it->second.outputs;
  size_t row = 0, before = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    row += outputs[o];
    if (o < static_cast<size_t>(value.output)) before += outputs[o];
  }
  return it->second.begin + row * static_cast<size_t>(slot) + before;
}

std::shared_ptr<Arena> Arena::Over(std::shared_ptr<void> memory, size_t bytes) {
  return std::shared_ptr<Arena>(new Arena(std::move(memory), bytes));
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(Device* device, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, device->Allocate(bytes));
  return Over(std::move(memory), bytes);
}

absl::StatusOr<std::shared_ptr<void>> Arena::Take(size_t bytes) {
  const size_t rounded = RoundUp(bytes);
  if (rounded > bytes_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat("a buffer of ", bytes, " bytes does not fit: ", used_, " of ", bytes_,
                                                     " planned bytes are taken"));
  }
  char* const at = static_cast<char*>(memory_.get()) + used_;
  used_ += rounded;
  return std::shared_ptr<void>(memory_, at);
}

}  // namespace weft
