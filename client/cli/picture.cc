#include "client/cli/picture.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/console.h"
#include "common/base/status_macros.h"
#include "common/trace/chrome_json.h"
#include "common/trace/svg.h"

namespace weft {

absl::Status WriteTimeline(const Timeline& timeline, const std::string& graph, const std::string& file) {
  if (absl::EndsWith(file, ".json")) return WriteFile(file, ToChromeJson(timeline, graph));
  SvgOptions options;
  options.title = absl::StrCat("Graph ", graph);
  return WriteFile(file, ToSvg(timeline, options));
}

absl::StatusOr<Timeline> WriteTrace(Client* client, const std::string& graph, int executions, const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<v1::TraceTrack> tracks, client->GetTrace(graph, executions));
  Timeline timeline = BuildTimeline(tracks);
  if (timeline.measured.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("graph \"", graph, "\" has no recorded op: execute it first, and compile it with --trace on"));
  }
  WEFT_RETURN_IF_ERROR(WriteTimeline(timeline, graph, file));
  return timeline;
}

}  // namespace weft
