#include "driver/schedules/svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

constexpr double kWidth = 1240;
constexpr double kLeft = 60;
constexpr double kRight = 20;
constexpr double kRow = 24;
constexpr double kGap = 4;
constexpr double kTop = 64;
constexpr double kCharWidth = 6.4;
constexpr int32_t kMostWorkers = 64;
constexpr int64_t kMostBoxes = 20000;

std::string Num(double v) {
  std::string s = absl::StrFormat("%.2f", v);
  while (s.back() == '0') s.pop_back();
  if (s.back() == '.') s.pop_back();
  return s;
}

// Hue by kind, lightness by the stage's place on its worker.
std::string Colour(Pass pass, int32_t chunk) {
  const int hue = pass == Pass::kForward      ? 205
                  : pass == Pass::kInputGrad  ? 155
                  : pass == Pass::kWeightGrad ? 45
                  : pass == Pass::kBackward   ? 135
                                              : 280;
  const int light = std::max(45, 78 - 13 * chunk);
  return absl::StrCat("hsl(", hue, ",60%,", light, "%)");
}

class Picture {
 public:
  explicit Picture(const PipelinePlan& plan) : plan_(plan), s_(plan.schedule) {
    shown_ = std::min(s_.workers, kMostWorkers);
    end_ = static_cast<double>(std::max<Ticks>(1, plan.times.makespan));
    chunk_.resize(s_.stages());
    std::vector<int32_t> next(s_.workers, 0);
    for (int32_t s = 0; s < s_.stages(); ++s) chunk_[s] = next[s_.worker_of[s]]++;
  }

  std::string Render() {
    Axis();
    for (int32_t w = 0; w < shown_; ++w) Row(w);
    double y = kTop + shown_ * (kRow + kGap) + 18;
    if (shown_ < s_.workers) Text(kLeft, y, absl::StrCat("Shown: the first ", shown_, " of ", s_.workers, " workers.")), y += 16;
    if (left_out_) Text(kLeft, y, absl::StrCat("Shown: the first ", boxes_, " of ", CountOps(s_), " passes.")), y += 16;
    const std::string title =
        absl::StrCat(s_.name, ", ", s_.workers, " workers, ", s_.microbatches, " microbatches: makespan ", Short(plan_.makespan), Unit(),
                     ", span ", Short(plan_.span), Unit(), ", bubble ", absl::StrFormat("%.1f %%", 100 * plan_.bubble_global),
                     " (of the span ", absl::StrFormat("%.1f %%", 100 * plan_.bubble_span), ")");
    const std::string head = absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", Num(y + 8), "\" viewBox=\"0 0 ", kWidth, " ",
        Num(y + 8), "\" role=\"img\" aria-label=\"", title,
        "\">\n<style>text{font:11px sans-serif;fill:#222}.t{font-size:14px}.g{stroke:#ddd}rect{stroke:#fff;stroke-width:.5}</style>\n",
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text class=\"t\" x=\"", kLeft, "\" y=\"20\">", title, "</text>\n");
    return absl::StrCat(head, Legend(), body_, "</svg>\n");
  }

 private:
  std::string Unit() const { return plan_.has_unit ? " s" : ""; }
  static std::string Short(double v) { return absl::StrFormat("%.6g", v); }
  double X(Ticks t) const { return kLeft + (kWidth - kLeft - kRight) * static_cast<double>(t) / end_; }

  void Text(double x, double y, const std::string& text) {
    absl::StrAppend(&body_, "<text x=\"", Num(x), "\" y=\"", Num(y), "\">", text, "</text>\n");
  }

  std::string Legend() const {
    std::string out;
    double x = kLeft;
    for (const auto& [pass, name] : {std::pair{Pass::kForward, "F forward"},
                                     {Pass::kInputGrad, "I input gradient"},
                                     {Pass::kWeightGrad, "W weight gradient"},
                                     {Pass::kBackward, "B both gradients"},
                                     {Pass::kPair, "F and B at once"}}) {
      const bool used = std::any_of(s_.orders.begin(), s_.orders.end(), [p = pass](const auto& order) {
        return std::any_of(order.begin(), order.end(), [p](const PipelineOp& op) { return op.pass == p; });
      });
      if (!used) continue;
      absl::StrAppend(&out, "<rect x=\"", Num(x), "\" y=\"28\" width=\"12\" height=\"12\" fill=\"", Colour(pass, 0), "\"/><text x=\"",
                      Num(x + 16), "\" y=\"38\">", name, "</text>\n");
      x += 140;
    }
    return out;
  }

  // About ten marks at steps of 1, 2 or 5 times a power of ten.
  void Axis() {
    const double total = plan_.costs.ToUnits(static_cast<Ticks>(end_));
    double step = std::pow(10, std::floor(std::log10(total / 10)));
    if (total / step > 50) {
      step *= 5;
    } else if (total / step > 20) {
      step *= 2;
    }
    const double bottom = kTop + shown_ * (kRow + kGap);
    for (int i = 0; i * step <= total * (1 + 1e-9); ++i) {
      const double x = kLeft + (kWidth - kLeft - kRight) * (i * step / total);
      absl::StrAppend(&body_, "<line class=\"g\" x1=\"", Num(x), "\" y1=\"", Num(kTop - 6), "\" x2=\"", Num(x), "\" y2=\"", Num(bottom),
                      "\"/>");
      Text(x + 2, kTop - 8, absl::StrCat(Short(i * step), i == 0 ? Unit() : ""));
    }
  }

  void Row(int32_t w) {
    const double y = kTop + w * (kRow + kGap);
    Text(16, y + kRow / 2 + 4, absl::StrCat("w", w));
    for (size_t i = 0; i < s_.orders[w].size(); ++i) {
      if (boxes_ >= kMostBoxes) {
        left_out_ = true;
        return;
      }
      ++boxes_;
      const PipelineOp& op = s_.orders[w][i];
      const Ticks start = plan_.times.start[w][i], end = start + plan_.costs.Of(op);
      const double x = X(start), width = X(end) - x;
      absl::StrAppend(&body_, "<rect x=\"", Num(x), "\" y=\"", Num(y), "\" width=\"", Num(width), "\" height=\"", Num(kRow), "\" fill=\"",
                      Colour(op.pass, chunk_[op.stage]), "\"><title>", PassName(s_, op), " ", Short(plan_.costs.ToUnits(start)), " to ",
                      Short(plan_.costs.ToUnits(end)), "</title></rect>");
      for (const std::string& text : {PassName(s_, op), op.pass == Pass::kPair ? absl::StrCat(op.microbatch, "|", op.back_microbatch)
                                                                               : absl::StrCat(op.microbatch)}) {
        if (static_cast<double>(text.size()) * kCharWidth + 2 > width) continue;
        Text(x + (width - static_cast<double>(text.size()) * kCharWidth) / 2, y + kRow / 2 + 4, text);
        break;
      }
      body_ += '\n';
    }
  }

  const PipelinePlan& plan_;
  const PipelineSchedule& s_;
  int32_t shown_ = 0;
  double end_ = 1;
  std::vector<int32_t> chunk_;  // by stage: its place among those of its worker
  std::string body_;
  int64_t boxes_ = 0;
  bool left_out_ = false;
};

}  // namespace

std::string PipelineSvg(const PipelinePlan& plan) { return Picture(plan).Render(); }

}  // namespace weft
