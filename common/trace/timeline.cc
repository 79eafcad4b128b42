#include "common/trace/timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/parse.h"
#include "common/trace/pauses.h"

namespace weft {
namespace {

// Far beyond any uptime in nanoseconds, and sums of a few of them do not overflow.
constexpr Nanos kMaxTime = std::numeric_limits<Nanos>::max() / 16;

// "w2" before "w10".
bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (absl::ascii_isdigit(a[i]) && absl::ascii_isdigit(b[j])) {
      size_t ie = i, je = j;
      while (ie < a.size() && absl::ascii_isdigit(a[ie])) ++ie;
      while (je < b.size() && absl::ascii_isdigit(b[je])) ++je;
      while (i < ie && a[i] == '0') ++i;
      while (j < je && b[j] == '0') ++j;
      if (ie - i != je - j) return ie - i < je - j;
      const int c = a.compare(i, ie - i, b, j, je - j);
      if (c != 0) return c < 0;
      i = ie;
      j = je;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "w01" and "w1" are different workers
}

// A value enters a worker, is worked on, and leaves it: the order in which its lanes are read from top to bottom.
int LaneRank(v1::LaneKind kind) {
  switch (kind) {
    case v1::LANE_RECV: return 0;
    case v1::LANE_COMPUTE: return 1;
    case v1::LANE_SEND: return 2;
    case v1::LANE_COPY: return 3;
    case v1::LANE_COLLECTIVE: return 4;
    default: return 5;
  }
}

struct WorkerTrack {
  Nanos error = 0;
  Nanos shift = 0;
  std::map<std::pair<int, int32_t>, TimelineLane> lanes;  // by LaneRank and index
};

struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const { return NaturalLess(a, b); }
};
using Workers = std::map<std::string, WorkerTrack, NaturalOrder>;

// "make0:0 -> square0:0" of "RECV make0:0 -> square0:0"; empty for what is no transfer.
std::string TransferKey(const TimelineBar& bar) {
  const size_t space = bar.name.find(' ');
  if (space == std::string::npos) return "";
  return absl::StrCat(bar.execution, "#", bar.name.substr(space + 1));
}

// Moves clocks against each other within their errors until no receive ends before its send starts, as far as that goes.
void AlignClocks(Workers* workers, std::vector<std::string>* notes) {
  struct Sent {
    std::string worker;
    Nanos start;
  };
  std::unordered_map<std::string, Sent> sends;
  for (auto& [name, track] : *workers) {
    for (auto& [key, lane] : track.lanes) {
      for (const TimelineBar& bar : lane.bars) {
        if (bar.kind == v1::SEND || bar.kind == v1::WRITE) sends[TransferKey(bar)] = {name, bar.start};
      }
    }
  }
  // For each pair of workers, by how much the receiver's clock must go forward against the sender's.
  std::map<std::pair<std::string, std::string>, Nanos> need;
  for (auto& [name, track] : *workers) {
    for (auto& [key, lane] : track.lanes) {
      for (const TimelineBar& bar : lane.bars) {
        if (bar.kind != v1::RECV && bar.kind != v1::READ) continue;
        const auto sent = sends.find(TransferKey(bar));
        if (sent == sends.end() || sent->second.worker == name) continue;
        const Nanos late = sent->second.start - bar.end;
        auto [it, fresh] = need.try_emplace({sent->second.worker, name}, late);
        if (!fresh) it->second = std::max(it->second, late);
      }
    }
  }
  // Each round settles at least one more worker of a chain; a cycle that cannot be met ends at the errors' bounds.
  for (size_t round = 0; round <= workers->size(); ++round) {
    bool moved = false;
    for (const auto& [pair, late] : need) {
      WorkerTrack& src = workers->at(pair.first);
      WorkerTrack& dst = workers->at(pair.second);
      Nanos missing = late + src.shift - dst.shift;
      if (missing <= 0) continue;
      const Nanos forward = std::min(missing, dst.error - dst.shift);
      dst.shift += forward;
      missing -= forward;
      const Nanos back = std::min(missing, src.error + src.shift);
      src.shift -= back;
      moved = moved || forward > 0 || back > 0;
    }
    if (!moved) break;
  }
  for (const auto& [pair, late] : need) {
    const Nanos missing = late + workers->at(pair.first).shift - workers->at(pair.second).shift;
    if (missing > 0) {
      notes->push_back(absl::StrCat("clocks of ", pair.first, " and ", pair.second, " contradict each other by ",
                                    FormatSeconds(ToSeconds(missing)), " more than their stated error"));
    }
  }
}

TimelinePanel BuildPanel(const std::vector<v1::TraceTrack>& tracks, bool predicted) {
  TimelinePanel panel;
  Workers workers;
  int64_t bad = 0;
  for (const v1::TraceTrack& track : tracks) {
    if (track.predicted() != predicted) continue;
    WorkerTrack& w = workers[track.worker()];
    const Nanos offset = predicted ? 0 : track.clock_offset_ns();
    if (!predicted) w.error = std::max(w.error, std::clamp<Nanos>(track.clock_error_ns(), 0, kMaxTime));
    for (const v1::TraceEvent& e : track.event()) {
      const bool sane = e.start_ns() <= e.end_ns() && e.start_ns() > -kMaxTime && e.end_ns() < kMaxTime &&
                        offset > -kMaxTime && offset < kMaxTime && e.execution() >= 0 && e.lane_index() >= 0;
      if (!sane) {
        ++bad;
        continue;
      }
      TimelineLane& lane = w.lanes[{LaneRank(e.lane()), e.lane_index()}];
      lane.worker = track.worker();
      lane.kind = e.lane();
      lane.index = e.lane_index();
      lane.bars.push_back({e.op(), e.name(), e.kind(), e.execution(), e.start_ns() + offset, e.end_ns() + offset, e.error()});
    }
  }
  if (bad > 0) panel.notes.push_back(absl::StrCat(bad, " events with impossible times were left out"));
  if (!predicted) AlignClocks(&workers, &panel.notes);

  Nanos largest = 0, second = 0;
  for (auto& [name, w] : workers) {
    if (w.lanes.empty()) continue;
    if (w.error > largest) {
      second = std::exchange(largest, w.error);
    } else {
      second = std::max(second, w.error);
    }
    for (auto& [key, lane] : w.lanes) {
      for (TimelineBar& bar : lane.bars) {
        bar.start += w.shift;
        bar.end += w.shift;
      }
      std::sort(lane.bars.begin(), lane.bars.end(), [](const TimelineBar& a, const TimelineBar& b) {
        return std::tie(a.start, a.op, a.execution) < std::tie(b.start, b.op, b.execution);
      });
      panel.lanes.push_back(std::move(lane));
    }
  }
  panel.clock_error = largest + second;
  if (!predicted) CutPauses(&panel);
  return SelectExecutions(panel, 0, std::numeric_limits<int64_t>::max());
}

}  // namespace

Timeline BuildTimeline(const std::vector<v1::TraceTrack>& tracks) {
  return {BuildPanel(tracks, true), BuildPanel(tracks, false)};
}

TimelinePanel SelectExecutions(const TimelinePanel& panel, int64_t first, int64_t count) {
  TimelinePanel out;
  out.clock_error = panel.clock_error;
  out.notes = panel.notes;
  Nanos origin = std::numeric_limits<Nanos>::max();
  for (const TimelineLane& lane : panel.lanes) {
    TimelineLane kept{lane.worker, lane.kind, lane.index, {}};
    for (const TimelineBar& bar : lane.bars) {
      if (bar.execution < first || bar.execution - first >= count) continue;
      origin = std::min(origin, bar.start);
      kept.bars.push_back(bar);
    }
    if (!kept.bars.empty()) out.lanes.push_back(std::move(kept));
  }
  for (TimelineLane& lane : out.lanes) {
    for (TimelineBar& bar : lane.bars) {
      bar.start -= origin;
      bar.end -= origin;
    }
  }
  return out;
}

void ExecutionRange(const TimelinePanel& panel, int64_t* first, int64_t* count) {
  std::set<int64_t> seen;
  for (const TimelineLane& lane : panel.lanes) {
    for (const TimelineBar& bar : lane.bars) seen.insert(bar.execution);
  }
  *first = seen.empty() ? 0 : *seen.begin();
  *count = static_cast<int64_t>(seen.size());
}

double TimelinePanel::SecondsPerExecution() const {
  std::map<int64_t, Nanos> ends;
  for (const TimelineLane& lane : lanes) {
    for (const TimelineBar& bar : lane.bars) {
      Nanos& end = ends.try_emplace(bar.execution, bar.end).first->second;
      end = std::max(end, bar.end);
    }
  }
  if (ends.size() < 2) return 0;
  return ToSeconds(ends.rbegin()->second - ends.begin()->second) / static_cast<double>(ends.size() - 1);
}

}  // namespace weft
