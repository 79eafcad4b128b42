#include "common/trace/svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/parse.h"
#include "common/plan/plan.h"
#include "common/trace/axis.h"

namespace weft {
namespace {

constexpr double kLeft = 132;   // lane names
constexpr double kRight = 28;
constexpr double kRow = 20;
constexpr double kRowGap = 4;
constexpr double kWorkerGap = 10;
constexpr double kCurve = 30;
constexpr double kCharWidth = 6.8;  // of the bars' text

// Light enough for dark text on them, told apart also by the common colour-blindnesses; the number in the bar says the same again.
constexpr const char* kColors[] = {"#8ecae6", "#ffb703", "#a7c957", "#e29578", "#b8a9e0", "#f4c2d7", "#5fb3a1", "#d6ccc2"};
constexpr int kNumColors = sizeof(kColors) / sizeof(kColors[0]);

std::string Escaped(const std::string& s) {
  std::string clean = s;
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') c = ' ';  // not allowed in XML, not even escaped
  }
  return absl::StrReplaceAll(clean, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Num(double v) {
  std::string s = absl::StrFormat("%.2f", v);
  while (s.back() == '0') s.pop_back();
  if (s.back() == '.') s.pop_back();
  return s;
}

bool IsTransfer(v1::OpKind kind) { return kind != v1::COMPUTE && kind != v1::COLLECTIVE; }

// The longest text about the op that fits the bar; empty when none does.
std::string BarText(const TimelineBar& bar, double width) {
  std::vector<std::string> candidates;
  const std::string number = absl::StrCat("#", bar.execution);
  std::string what = bar.name;
  if (IsTransfer(bar.kind) || bar.kind == v1::COMPUTE) {
    const size_t space = what.find(' ');
    if (space != std::string::npos) what = what.substr(space + 1);
  }
  if (IsTransfer(bar.kind)) {
    const size_t arrow = what.find(" -> ");
    if (arrow != std::string::npos) {
      const std::string from = what.substr(0, arrow), to = what.substr(arrow + 4);
      const std::string from_node = from.substr(0, from.find(':')), to_node = to.substr(0, to.find(':'));
      candidates.push_back(absl::StrCat(from_node, " → ", to_node, " ", number));
      candidates.push_back(absl::StrCat(from_node, " ", number));
      candidates.push_back(from_node);
    }
  } else {
    candidates.push_back(absl::StrCat(what, " ", number));
    candidates.push_back(what);
  }
  candidates.push_back(number);
  for (const std::string& c : candidates) {
    // The arrow is three bytes and one character.
    const size_t chars = c.size() - (c.find("→") != std::string::npos ? 2 : 0);
    if (static_cast<double>(chars) * kCharWidth + 6 <= width) return c;
  }
  return "";
}

class Picture {
 public:
  Picture(const Timeline& timeline, const SvgOptions& options) : options_(options) {
    Choose(timeline);
    span_ = 1;
    for (const Shown* shown : {&predicted_, &measured_}) {
      for (const TimelineLane& lane : shown->panel.lanes) {
        for (const TimelineBar& bar : lane.bars) span_ = std::max(span_, bar.end);
      }
    }
    scale_ = (options_.width - kLeft - kRight) / static_cast<double>(span_);
    axis_ = MakeTimeAxis(span_, 12);
  }

  std::string Render() {
    Header();
    if (predicted_.panel.empty() && measured_.panel.empty()) {
      Text(kLeft, y_ + 20, "plain", "No op was recorded.");
      y_ += 40;
    }
    Panel("Predicted", predicted_, true);
    Panel("Measured", measured_, false);
    for (const std::string& note : notes_) {
      y_ += 16;
      Text(16, y_, "note", note);
    }
    y_ += 18;
    return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", options_.width, "\" height=\"", Num(y_),
                        "\" viewBox=\"0 0 ", options_.width, " ", Num(y_), "\" role=\"img\" aria-label=\"", Escaped(options_.title),
                        "\">\n", Style(), body_, "</svg>\n");
  }

 private:
  struct Shown {
    TimelinePanel panel;
    int64_t first = 0;
    int64_t held = 0;  // executions the whole panel has
    double seconds_per_execution = 0;
  };

  static int64_t Bars(const TimelinePanel& panel) {
    int64_t n = 0;
    for (const TimelineLane& lane : panel.lanes) n += static_cast<int64_t>(lane.bars.size());
    return n;
  }

  // As many executions of both as can be read.
  void Choose(const Timeline& timeline) {
    for (auto [whole, shown] : {std::pair{&timeline.predicted, &predicted_}, std::pair{&timeline.measured, &measured_}}) {
      ExecutionRange(*whole, &shown->first, &shown->held);
      shown->seconds_per_execution = whole->SecondsPerExecution();
      for (const std::string& note : whole->notes) notes_.push_back(note);
    }
    int64_t count = std::max(options_.max_executions, 1);
    if (predicted_.held > 0) count = std::min(count, predicted_.held);
    if (measured_.held > 0) count = std::min(count, measured_.held);
    for (;; --count) {
      predicted_.panel = SelectExecutions(timeline.predicted, predicted_.first, count);
      measured_.panel = SelectExecutions(timeline.measured, measured_.first, count);
      if (count <= 1 || std::max(Bars(predicted_.panel), Bars(measured_.panel)) <= options_.max_bars) break;
    }
    count_ = std::max<int64_t>(count, 1);
    for (TimelinePanel* panel : {&predicted_.panel, &measured_.panel}) {
      LimitWorkers(panel);
      LimitBars(panel);
    }
    const int64_t held = std::max(predicted_.held, measured_.held);
    if (held > count_) {
      notes_.push_back(absl::StrCat("Shown: ", count_, " of ", held, " executions; the JSON form of the trace has them all."));
    }
    if (measured_.panel.clock_error > 0) {
      notes_.push_back(absl::StrCat("The workers' clocks agree to within ",
                                    FormatSeconds(ToSeconds(measured_.panel.clock_error)), "."));
    }
    std::sort(notes_.begin(), notes_.end());
    notes_.erase(std::unique(notes_.begin(), notes_.end()), notes_.end());
  }

  void LimitWorkers(TimelinePanel* panel) {
    std::set<std::string> seen, left_out;
    std::vector<TimelineLane> kept;
    for (TimelineLane& lane : panel->lanes) {
      if (seen.count(lane.worker) == 0 && static_cast<int>(seen.size()) >= options_.max_workers) {
        left_out.insert(lane.worker);
        continue;
      }
      seen.insert(lane.worker);
      kept.push_back(std::move(lane));
    }
    panel->lanes = std::move(kept);
    if (!left_out.empty()) {
      notes_.push_back(absl::StrCat("Not shown: ", left_out.size(), " more workers; the JSON form of the trace has them all."));
    }
  }

  // Cuts the time range so that the first max_bars ops are in it.
  void LimitBars(TimelinePanel* panel) {
    if (Bars(*panel) <= options_.max_bars) return;
    std::vector<Nanos> ends;
    for (const TimelineLane& lane : panel->lanes) {
      for (const TimelineBar& bar : lane.bars) ends.push_back(bar.end);
    }
    std::nth_element(ends.begin(), ends.begin() + options_.max_bars, ends.end());
    const Nanos cut = ends[options_.max_bars];
    for (TimelineLane& lane : panel->lanes) {
      std::erase_if(lane.bars, [cut](const TimelineBar& bar) { return bar.end >= cut; });
    }
    std::erase_if(panel->lanes, [](const TimelineLane& lane) { return lane.bars.empty(); });
    notes_.push_back(absl::StrCat("Shown: ", options_.max_bars, " ops of one execution; the JSON form of the trace has them all."));
  }

  static const char* Style() {
    return "<style>text{font-family:ui-sans-serif,system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1d2733}"
           ".title{font-size:17px;font-weight:600}.panel{font-size:13.5px;font-weight:600}.plain{font-size:12px}"
           ".sub{font-size:12px;fill:#55616d}.worker{font-size:12.5px;font-weight:600}.lane{font-size:11px;fill:#3d4853;text-anchor:end}"
           ".tick{font-size:10.5px;fill:#55616d;text-anchor:middle}.bar{font-size:10.5px;pointer-events:none}"
           ".c{fill:#cfe3d4;stroke:#4b8b5c;stroke-width:1}.a{fill:none;stroke:#37424d;stroke-opacity:.6;stroke-width:1.1}"
           ".note{font-size:11px;fill:#55616d}.g{stroke:#e4e8ec;stroke-width:1}.h{fill:#f6f8fa}"
           ".b{stroke:#2b3640;stroke-opacity:.55;stroke-width:.7}.e{stroke:#c1121f;stroke-width:2}</style>\n"
           "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
           "<rect width=\"6\" height=\"6\" fill=\"#fff\" fill-opacity=\".45\"/>"
           "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#2b3640\" stroke-opacity=\".22\" stroke-width=\"2\"/></pattern>"
           "<marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
           "<path d=\"M0 0 8 4 0 8z\" fill=\"#37424d\"/></marker></defs>\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  }

  void Text(double x, double y, const char* cls, const std::string& text) {
    absl::StrAppend(&body_, "<text class=\"", cls, "\" x=\"", Num(x), "\" y=\"", Num(y), "\">", Escaped(text), "</text>\n");
  }

  void Rect(double x, double y, double w, double h, const std::string& attributes) {
    absl::StrAppend(&body_, "<rect x=\"", Num(x), "\" y=\"", Num(y), "\" width=\"", Num(w), "\" height=\"", Num(h), "\" ",
                    attributes, "/>");
  }

  void Swatch(double x, const std::string& fill, bool hatched, bool error) {
    Rect(x, y_ - 11, 22, 13, absl::StrCat("rx=\"2\" class=\"b", error ? " e" : "", "\" fill=\"", fill, "\""));
    if (hatched) Rect(x, y_ - 11, 22, 13, "rx=\"2\" fill=\"url(#hatch)\"");
  }

  void Header() {
    y_ = 30;
    Text(16, y_, "title", options_.title);
    y_ += 26;
    double x = 16;
    const auto item = [&](const std::string& fill, bool hatched, bool error, const std::string& label) {
      const double width = 28 + static_cast<double>(label.size()) * 6.6 + 20;
      if (x > 16 && x + width > options_.width - kRight) {
        x = 16;
        y_ += 20;
      }
      Swatch(x, fill, hatched, error);
      Text(x + 28, y_, "plain", label);
      x += width;
    };
    item("#c9d1d9", false, false, "computation");
    item("#c9d1d9", true, false, "transfer");
    bool any_error = false;
    for (const TimelinePanel* panel : {&predicted_.panel, &measured_.panel}) {
      for (const TimelineLane& lane : panel->lanes) {
        for (const TimelineBar& bar : lane.bars) any_error = any_error || bar.error;
      }
    }
    if (any_error) item("#c9d1d9", false, true, "failed");
    for (int64_t i = 0; i < count_; ++i) {
      std::string label = absl::StrCat("execution #", measured_.held > 0 ? measured_.first + i : predicted_.first + i);
      if (measured_.held > 0 && predicted_.held > 0 && measured_.first != predicted_.first) {
        absl::StrAppend(&label, " (predicted: #", predicted_.first + i, ")");
      }
      item(kColors[i % kNumColors], false, false, label);
    }
    y_ += 8;
  }

  const SvgCurve* CurveOf(const std::string& worker, bool predicted) const {
    for (const SvgCurve& c : options_.curves) {
      if (predicted && c.worker == worker && !c.points.empty()) return &c;
    }
    return nullptr;
  }

  // Steps from 0 at the row's bottom to the largest number at its top.
  void Curve(const SvgCurve& curve, double y) {
    uint64_t most = 1;
    for (const auto& [at, bytes] : curve.points) most = std::max(most, bytes);
    const auto height = [&](uint64_t bytes) { return y + kCurve - (kCurve - 4) * static_cast<double>(bytes) / static_cast<double>(most); };
    std::string path = absl::StrCat("M", Num(kLeft), " ", Num(y + kCurve));
    Nanos last = 0;
    for (const auto& [at, bytes] : curve.points) {
      if (at > span_) break;
      absl::StrAppend(&path, "H", Num(kLeft + static_cast<double>(at) * scale_), "V", Num(height(bytes)));
      last = at;
    }
    absl::StrAppend(&path, "H", Num(kLeft + static_cast<double>(std::max(last, span_)) * scale_), "V", Num(y + kCurve), "z");
    absl::StrAppend(&body_, "<g><title>", Escaped(curve.worker), ": bytes in use, at most ", FormatBytes(most), "</title><path class=\"c\" d=\"", path,
                    "\"/></g>\n");
    Text(kLeft - 8, y + kCurve / 2 + 4, "lane", absl::StrCat("≤ ", FormatBytes(most)));
  }

  void Arrows(const TimelinePanel& panel, const std::vector<double>& rows) {
    if (options_.arrows.empty()) return;
    std::map<std::pair<int32_t, int64_t>, std::pair<const TimelineBar*, double>> bars;
    for (size_t i = 0; i < panel.lanes.size(); ++i) {
      for (const TimelineBar& bar : panel.lanes[i].bars) bars[{bar.op, bar.execution}] = {&bar, rows[i]};
    }
    for (const SvgArrow& arrow : options_.arrows) {
      for (auto from = bars.lower_bound({arrow.from_op, 0}); from != bars.end() && from->first.first == arrow.from_op; ++from) {
        const auto to = bars.find({arrow.to_op, from->first.second});
        if (to == bars.end()) continue;
        const auto& [a, ya] = from->second;
        const auto& [b, yb] = to->second;
        // Both ends at once: straight, in their middle. Otherwise from the end of the one to the start of the other.
        const bool together = a->start == b->start && a->end == b->end;
        const double middle = kLeft + static_cast<double>(a->start + (a->end - a->start) / 2) * scale_;
        const double x1 = together ? middle : kLeft + static_cast<double>(a->end) * scale_;
        const double x2 = together ? middle : kLeft + static_cast<double>(b->start) * scale_;
        const bool down = yb > ya;
        absl::StrAppend(&body_, "<path class=\"a\" marker-end=\"url(#arrow)\" d=\"M", Num(x1), " ", Num(down ? ya + kRow : ya), "L", Num(x2), " ",
                        Num(down ? yb : yb + kRow), "\"/>\n");
      }
    }
  }

  void Panel(const char* name, const Shown& shown, bool predicted) {
    if (shown.panel.empty()) return;
    y_ += 30;
    Text(16, y_, "panel", name);
    if (shown.seconds_per_execution > 0) {
      Text(kLeft, y_, "sub",
           absl::StrCat(FormatSeconds(shown.seconds_per_execution), " per execution, over ", shown.held, " executions"));
    }
    y_ += 10;
    const double top = y_;
    // Rows first, as backgrounds; then the grid; then the bars above both.
    double y = top;
    std::string worker;
    std::vector<double> rows;
    const auto curve = [&] {
      const SvgCurve* c = CurveOf(worker, predicted);
      if (c == nullptr) return;
      Curve(*c, y);
      y += kCurve + kRowGap;
    };
    for (const TimelineLane& lane : shown.panel.lanes) {
      if (lane.worker != worker) {
        curve();
        if (!worker.empty()) y += kWorkerGap;
        worker = lane.worker;
        std::string label = worker;
        if (label.size() > 10) label = absl::StrCat(label.substr(0, 9), "…");
        absl::StrAppend(&body_, "<g><title>", Escaped(worker), "</title>");
        Text(16, y + kRow - 6, "worker", label);
        absl::StrAppend(&body_, "</g>");
      }
      Rect(kLeft, y, options_.width - kLeft - kRight, kRow, "class=\"h\"");
      Text(kLeft - 8, y + kRow - 6, "lane", LaneName(lane.kind, lane.index));
      rows.push_back(y);
      y += kRow + kRowGap;
    }
    curve();
    const double bottom = y;
    for (const AxisTick& tick : axis_.ticks) {
      const double x = kLeft + static_cast<double>(tick.at) * scale_;
      absl::StrAppend(&body_, "<line class=\"g\" x1=\"", Num(x), "\" y1=\"", Num(top), "\" x2=\"", Num(x), "\" y2=\"", Num(bottom),
                      "\"/>");
      Text(x, bottom + 12, "tick", &tick == &axis_.ticks.back() ? absl::StrCat(tick.label, " ", axis_.unit) : tick.label);
    }
    for (size_t i = 0; i < shown.panel.lanes.size(); ++i) {
      for (const TimelineBar& bar : shown.panel.lanes[i].bars) Bar(bar, rows[i], shown);
    }
    Arrows(shown.panel, rows);
    y_ = bottom + 20;
  }

  void Bar(const TimelineBar& bar, double y, const Shown& shown) {
    const double x = kLeft + static_cast<double>(bar.start) * scale_;
    // An op that takes no time still happened.
    const double w = std::max(static_cast<double>(bar.end - bar.start) * scale_, 1.5);
    const int64_t color = (bar.execution - shown.first) % kNumColors;
    absl::StrAppend(&body_, "<g><title>", Escaped(bar.name), "\nexecution ", bar.execution, ", op ", bar.op, "\n",
                    FormatSeconds(ToSeconds(bar.end - bar.start)), " from ", FormatSeconds(ToSeconds(bar.start)),
                    bar.error ? "\nfailed" : "", "</title>");
    Rect(x, y, w, kRow, absl::StrCat("rx=\"", w > 6 ? 2 : 0, "\" class=\"b\" fill=\"", kColors[color], "\""));
    if (IsTransfer(bar.kind) && w > 3) Rect(x, y, w, kRow, absl::StrCat("rx=\"", w > 6 ? 2 : 0, "\" fill=\"url(#hatch)\""));
    // Inside the bar, where a neighbour does not cover it.
    if (bar.error) Rect(x + 1, y + 1, std::max(w - 2, 1.0), kRow - 2, "fill=\"none\" class=\"e\"");
    const std::string text = BarText(bar, w);
    if (!text.empty()) Text(x + 4, y + kRow - 6.5, "bar", text);
    absl::StrAppend(&body_, "</g>\n");
  }

  const SvgOptions options_;
  Shown predicted_;
  Shown measured_;
  int64_t count_ = 1;
  Nanos span_ = 1;
  double scale_ = 1;
  double y_ = 0;
  TimeAxis axis_;
  std::vector<std::string> notes_;
  std::string body_;
};

}  // namespace

std::string ToSvg(const Timeline& timeline, const SvgOptions& options) { return Picture(timeline, options).Render(); }

}  // namespace weft
