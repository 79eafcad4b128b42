#include "worker/run/arena.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t RoundUp(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

size_t Arena::BytesFor(const Plan& part) {
  const bool status = UsesStatusWords(part);
  size_t total = 0;
  const auto add = [&](const Spec& spec, int slots) {
    if (!spec.shape.HasDynamic()) total += RoundUp(BufferSize(spec.MaxBytes(), status)) * static_cast<size_t>(slots);
  };
  for (const PlanOp& op : part.ops) {
    if (op.worker != part.part_of) continue;
    switch (op.kind) {
      case v1::COMPUTE:
        for (const Spec& spec : FindNode(part, op.node)->outputs) add(spec, op.slots);
        break;
      case v1::READ:
      case v1::RECV:
        add(FindEdge(part, op.edge)->spec, op.slots);
        break;
      case v1::COLLECTIVE:
        add(FindGroup(part, op.group)->output, op.slots);
        break;
      default:
        break;
    }
  }
  return total;
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
