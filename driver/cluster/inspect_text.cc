#include "driver/cluster/inspect_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/plan/plan.h"

namespace weft {

std::string InspectText(const v1::InspectReply& reply, const std::string& graph) {
  std::vector<std::string> lines;
  for (const v1::WorkerView& view : reply.view()) {
    if (!graph.empty() && !view.graph().empty() && view.graph() != graph) continue;
    if (!view.problem().empty()) lines.push_back(absl::StrCat(view.worker(), ": ", view.problem()));
    for (const v1::LaneView& lane : view.lane()) {
      if (lane.state() == "idle" || lane.op().empty()) continue;
      const std::string where = absl::StrCat(view.worker(), " ", LaneName(lane.lane(), lane.index()));
      if (lane.state() == "waiting") {
        lines.push_back(absl::StrFormat("%s: %s of execution %d waits for %s, for %.1f s", where, lane.op(), lane.execution(),
                                        lane.waits_for().empty() ? "something unnamed" : lane.waits_for(), lane.since_s()));
      } else {
        lines.push_back(absl::StrFormat("%s: %s of execution %d has been running for %.1f s", where, lane.op(),
                                        lane.execution(), lane.since_s()));
      }
    }
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace weft
