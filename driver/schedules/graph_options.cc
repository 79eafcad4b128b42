#include "driver/schedules/graph_options.h"

#include <algorithm>
#include <set>

namespace weft {
namespace {

constexpr int32_t kMostLanes = 8;

int32_t Lanes(const PipelineSchedule& s) {
  std::vector<std::set<int32_t>> peers(s.workers);
  for (int32_t stage = 0; stage + 1 < s.stages(); ++stage) {
    const int32_t a = s.worker_of[stage], b = s.worker_of[stage + 1];
    if (a == b) continue;
    peers[a].insert(b);
    peers[b].insert(a);
  }
  size_t most = 1;
  for (const auto& p : peers) most = std::max(most, p.size());
  return static_cast<int32_t>(std::min<size_t>(most, kMostLanes));
}

}  // namespace

void SetPipelineOptions(const PipelineSchedule& schedule, v1::Graph* graph) {
  v1::Options* options = graph->mutable_options();
  options->set_overlap(v1::ON);
  options->set_max_in_flight(1);
  options->set_prefetch_depth(0);
  options->set_send_lanes(Lanes(schedule));
  options->set_recv_lanes(Lanes(schedule));
}

}  // namespace weft
