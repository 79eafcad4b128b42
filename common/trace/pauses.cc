#include "common/trace/pauses.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/parse.h"

namespace weft {
namespace {

constexpr Nanos kLeast = 10'000'000;
constexpr Nanos kExecutions = 10;

Nanos Median(std::vector<Nanos> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void CutPauses(TimelinePanel* panel) {
  std::map<int64_t, std::pair<Nanos, Nanos>> executions;
  for (const TimelineLane& lane : panel->lanes) {
    for (const TimelineBar& bar : lane.bars) {
      auto& [start, end] = executions.try_emplace(bar.execution, bar.start, bar.end).first->second;
      start = std::min(start, bar.start);
      end = std::max(end, bar.end);
    }
  }
  std::vector<std::pair<Nanos, Nanos>> spans;
  std::vector<Nanos> lengths;
  for (const auto& [execution, span] : executions) {
    spans.push_back(span);
    lengths.push_back(span.second - span.first);
  }
  std::sort(spans.begin(), spans.end());
  constexpr Nanos kMost = std::numeric_limits<Nanos>::max();
  const Nanos typical = Median(lengths);
  const Nanos longest = std::max(kLeast, typical > kMost / kExecutions ? kMost : kExecutions * typical);
  struct Gap {
    Nanos end, length;
  };
  std::vector<Gap> pauses;
  std::vector<Nanos> short_ones;
  Nanos busy_until = spans.empty() ? 0 : spans[0].second;
  for (const auto& [start, end] : spans) {
    if (start > busy_until) {
      if (start - busy_until > longest) {
        pauses.push_back({start, start - busy_until});
      } else {
        short_ones.push_back(start - busy_until);
      }
    }
    busy_until = std::max(busy_until, end);
  }
  if (pauses.empty()) return;
  const Nanos kept = Median(short_ones);
  Nanos cut = 0;
  for (Gap& p : pauses) {
    cut += p.length - kept;
    p.length = cut;  // of it and all before
  }
  // No bar lies in a pause or across one.
  for (TimelineLane& lane : panel->lanes) {
    for (TimelineBar& bar : lane.bars) {
      const auto after = std::upper_bound(pauses.begin(), pauses.end(), bar.start, [](Nanos at, const Gap& p) { return at < p.end; });
      const Nanos back = after == pauses.begin() ? 0 : std::prev(after)->length;
      bar.start -= back;
      bar.end -= back;
    }
  }
  panel->notes.push_back(absl::StrCat(pauses.size() == 1 ? "A pause" : absl::StrCat(pauses.size(), " pauses"), " of ", FormatSeconds(ToSeconds(cut)),
                                      pauses.size() == 1 ? "" : " together", ", in which no execution was under way, ", pauses.size() == 1 ? "is" : "are", " left out."));
}

}  // namespace weft
