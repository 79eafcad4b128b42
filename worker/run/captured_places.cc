#include "worker/run/captured_places.h"

#include "common/base/status_macros.h"
#include "common/channel/ipc/announcement.h"
#include "worker/run/arena.h"

namespace weft {

absl::Status PresetPlaces(const Plan& part, const std::function<absl::StatusOr<void*>(const PlanEdge& edge, uint64_t message)>& slot) {
  const ArenaLayout layout(part);
  for (const PlanOp& op : part.ops) {
    if (op.worker != part.part_of || op.kind != v1::WRITE) continue;
    const PlanEdge& e = *FindEdge(part, op.edge);
    if (e.transport != v1::IPC) continue;
    for (int v = 0; v < e.slots; ++v) {
      uint64_t offset = 0, status_offset = IpcAnnouncement::kNoStatus;
      if (!op.args.empty() && !e.control) {
        WEFT_ASSIGN_OR_RETURN(offset, layout.OffsetOf(op.args[0], v));
        if (UsesStatusWords(part)) status_offset = offset + StatusOffset(e.bytes);
      }
      WEFT_ASSIGN_OR_RETURN(void* const at, slot(e, static_cast<uint64_t>(v) + 1));
      PresetAnnouncement(e.spec, offset, status_offset, at);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
