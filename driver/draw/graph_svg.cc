#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "driver/draw/graph_view.h"

namespace weft {
namespace {

constexpr size_t kMostVertices = 1500;
constexpr double kBoxWidth = 138, kBoxHeight = 34, kColumn = 196, kRow = 46;
constexpr double kLeft = 150, kTop = 76, kBandPad = 12;

std::string Escaped(const std::string& s) {
  std::string clean = s;
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return absl::StrReplaceAll(clean, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Cut(const std::string& s, size_t chars) { return s.size() <= chars ? s : s.substr(0, chars - 1) + "…"; }

const char* ColourOf(v1::Transport t) {
  switch (t) {
    case v1::LOCAL:
      return "#8b96a1";
    case v1::SHM:
      return "#1f77b4";
    case v1::IPC:
      return "#2a9d57";
    case v1::NCCL:
      return "#8a5cc7";
    case v1::GLOO:
      return "#d9822b";
    default:
      return "#c0392b";
  }
}

const char* FillOf(GraphVertex::Kind kind) {
  switch (kind) {
    case GraphVertex::kInput:
    case GraphVertex::kOutput:
      return "#eef3d2";
    case GraphVertex::kCollective:
      return "#f3dfee";
    default:
      return "#e3eef8";
  }
}

class Picture {
 public:
  explicit Picture(const GraphView& view) : view_(view), shown_(std::min(view.vertices.size(), kMostVertices)) { Place(); }

  std::string Render() {
    Bands();
    for (const GraphArc& a : view_.arcs) Arc(a);
    for (size_t v = 0; v < shown_; ++v) Box(v);
    if (shown_ < view_.vertices.size()) {
      Text(16, height_ + 14, "n", absl::StrCat("Shown: the first ", shown_, " of ", view_.vertices.size(), " nodes, inputs and outputs."));
      height_ += 20;
    }
    const std::string size = absl::StrFormat("width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\"", width_, height_ + 10, width_, height_ + 10);
    return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" ", size, " role=\"img\" aria-label=\"Graph ", Escaped(view_.name), "\">\n",
                        "<style>text{font-family:ui-sans-serif,system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1d2733;font-size:11px}"
                        ".t{font-size:17px;font-weight:600}.w{font-size:12px;font-weight:600}.n{fill:#55616d}.s{font-size:9.5px;fill:#55616d}"
                        "path{fill:none;stroke-width:1.4}</style>\n<defs>", Markers(),
                        "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", Head(), body_, "</svg>\n");
  }

 private:
  static std::string Markers() {
    std::string out;
    for (int t = v1::LOCAL; t <= v1::REMOTE; ++t) {
      absl::StrAppend(&out, "<marker id=\"a", t, "\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
                      "<path d=\"M0 0 8 4 0 8z\" style=\"fill:", ColourOf(static_cast<v1::Transport>(t)), "\"/></marker>");
    }
    return out;
  }

  // Bands from top to bottom: the client's, then the workers'; columns by depth; what shares a cell stands below each other.
  void Place() {
    std::map<std::pair<int32_t, int32_t>, int> cell;
    std::vector<int> rows(view_.workers.size() + 1, 0);
    x_.resize(shown_), y_.resize(shown_);
    int32_t columns = 1;
    for (size_t v = 0; v < shown_; ++v) {
      const GraphVertex& g = view_.vertices[v];
      const int row = cell[{g.worker, g.depth}]++;
      y_[v] = row;
      x_[v] = kLeft + g.depth * kColumn;
      rows[g.worker + 1] = std::max(rows[g.worker + 1], row + 1);
      columns = std::max(columns, g.depth + 1);
    }
    double y = kTop;
    for (size_t band = 0; band < rows.size(); ++band) {
      top_.push_back(y);
      if (rows[band] > 0 || band > 0) y += std::max(rows[band], 1) * kRow + kBandPad;
    }
    top_.push_back(y);
    for (size_t v = 0; v < shown_; ++v) y_[v] = top_[view_.vertices[v].worker + 1] + kBandPad / 2 + y_[v] * kRow + (kRow - kBoxHeight) / 2;
    height_ = y + 8;
    width_ = std::max(760.0, kLeft + columns * kColumn);
  }

  void Text(double x, double y, const char* cls, const std::string& text) {
    absl::StrAppend(&body_, absl::StrFormat("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", cls, x, y), Escaped(text), "</text>\n");
  }

  std::string Head() const {
    std::string out = absl::StrCat("<text class=\"t\" x=\"16\" y=\"28\">Graph ", Escaped(view_.name), "</text>\n");
    std::map<int, bool> used;
    for (const GraphArc& a : view_.arcs) used[a.transport] = true;
    double x = 16;
    for (const auto& [t, yes] : used) {
      const v1::Transport transport = static_cast<v1::Transport>(t);
      absl::StrAppend(&out, absl::StrFormat("<path d=\"M%.0f 48h26\" stroke=\"%s\"/><text x=\"%.0f\" y=\"52\">%s</text>\n", x, ColourOf(transport), x + 32,
                                            v1::Transport_Name(transport)));
      x += 100;
    }
    return out;
  }

  void Bands() {
    for (size_t band = 0; band + 1 < top_.size(); ++band) {
      if (top_[band + 1] == top_[band]) continue;
      absl::StrAppend(&body_, absl::StrFormat("<rect x=\"0\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\" fill=\"%s\"/>\n", top_[band], width_,
                                              top_[band + 1] - top_[band], band % 2 == 0 ? "#f6f8fa" : "#ffffff"));
      const std::string name = band == 0 ? "client" : view_.workers[band - 1];
      absl::StrAppend(&body_, "<g><title>", Escaped(name), "</title>");
      Text(16, (top_[band] + top_[band + 1]) / 2 + 4, "w", Cut(name, 20));
      body_ += "</g>\n";
    }
  }

  void Arc(const GraphArc& a) {
    if (static_cast<size_t>(a.from) >= shown_ || static_cast<size_t>(a.to) >= shown_) return;
    const double x1 = x_[a.from] + kBoxWidth, y1 = y_[a.from] + kBoxHeight / 2, x2 = x_[a.to] - 1, y2 = y_[a.to] + kBoxHeight / 2;
    const double bend = std::max(28.0, (x2 - x1) / 2);
    absl::StrAppend(&body_, "<g><title>", Escaped(absl::StrCat(view_.vertices[a.from].name, " -> ", view_.vertices[a.to].name, ": ",
                                                               v1::Transport_Name(a.transport), a.control ? ", control" : ", ", a.what)),
                    "</title>", absl::StrFormat("<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" stroke=\"%s\"%s marker-end=\"url(#a%d)\"/></g>\n", x1,
                                                y1, x1 + bend, y1, x2 - bend, y2, x2, y2, ColourOf(a.transport),
                                                a.control ? " stroke-dasharray=\"4 3\"" : "", static_cast<int>(a.transport)));
  }

  void Box(size_t v) {
    const GraphVertex& g = view_.vertices[v];
    absl::StrAppend(&body_, "<g><title>", Escaped(absl::StrCat(g.name, ": ", g.what)), "</title>",
                    absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" rx=\"%d\" fill=\"%s\" stroke=\"#5b6b7a\"/>", x_[v], y_[v],
                                    kBoxWidth, kBoxHeight, g.kind == GraphVertex::kNode ? 3 : 15, FillOf(g.kind)));
    Text(x_[v] + 8, y_[v] + 14, "", Cut(g.name, 21));
    Text(x_[v] + 8, y_[v] + 27, "s", Cut(g.what, 25));
    body_ += "</g>\n";
  }

  const GraphView& view_;
  const size_t shown_;
  std::vector<double> x_, y_;  // by vertex
  std::vector<double> top_;    // by band
  double width_ = 0, height_ = 0;
  std::string body_;
};

}  // namespace

std::string GraphToSvg(const GraphView& view) { return Picture(view).Render(); }

}  // namespace weft
