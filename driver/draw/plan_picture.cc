#include "driver/draw/plan_picture.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/trace/chrome_json.h"
#include "common/trace/svg.h"
#include "driver/simulate/bytes_over_time.h"
#include "driver/simulate/timeline.h"

namespace weft {

std::string PlanPicture(const Plan& plan, const SimResult& result, const std::string& file, const PlanPictureOptions& options) {
  const Timeline timeline = BuildTimeline(PredictedTimeline(plan, result));
  if (absl::EndsWith(file, ".json")) return ToChromeJson(timeline, plan.graph);
  SvgOptions svg;
  svg.title = absl::StrCat("Graph ", plan.graph);
  std::vector<int32_t> source(plan.edges.size(), -1);
  for (const PlanOp& op : plan.ops) {
    if (op.kind == v1::SEND || op.kind == v1::WRITE) source[op.edge] = op.id;
  }
  for (const PlanOp& op : plan.ops) {
    if ((op.kind == v1::RECV || op.kind == v1::READ) && source[op.edge] >= 0) svg.arrows.push_back({source[op.edge], op.id});
  }
  if (options.bytes) {
    const std::vector<WorkerBytes> bytes = BytesOverTime(plan, result);
    for (size_t w = 0; w < bytes.size(); ++w) {
      SvgCurve curve{plan.workers[w].name, {}};
      for (const BytesPoint& p : bytes[w].curve) curve.points.push_back({p.at, p.bytes});
      svg.curves.push_back(std::move(curve));
    }
  }
  return ToSvg(timeline, svg);
}

}  // namespace weft
