#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/trace/timeline.h"

namespace weft {

// From one op of an execution to another of the same.
struct SvgArrow {
  int32_t from_op = -1;
  int32_t to_op = -1;
};

// Bytes of a worker over time, below its lanes in the predicted panel; each point holds until the next.
struct SvgCurve {
  std::string worker;
  std::vector<std::pair<Nanos, uint64_t>> points;
};

struct SvgOptions {
  std::string title;
  // At most so many executions are drawn, the first ones of each panel.
  int max_executions = 6;
  // Fewer executions, then fewer ops of the first, when there would be more bars than this; the picture says so.
  int max_bars = 4000;
  // Workers beyond these are left out; the picture says so.
  int max_workers = 24;
  // Pixels.
  int width = 1240;
  std::vector<SvgArrow> arrows;
  std::vector<SvgCurve> curves;
};

// A picture of the timeline for people: one row per lane, grouped by worker; colour stands for the execution, hatching for transfers;
// predicted above measured on the same scale; a time axis with units. Self-contained: no script, no font, no link.
std::string ToSvg(const Timeline& timeline, const SvgOptions& options);

}  // namespace weft
