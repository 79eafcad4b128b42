#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/trace/axis.h"
#include "common/trace/chrome_json.h"
#include "common/trace/svg.h"
#include "common/trace/timeline.h"

namespace weft {
namespace {

v1::TraceEvent* Add(v1::TraceTrack* track, v1::OpKind kind, v1::LaneKind lane, const std::string& name, int64_t execution, Nanos start,
                    Nanos end) {
  v1::TraceEvent* e = track->add_event();
  e->set_op(track->event_size());
  e->set_kind(kind);
  e->set_lane(lane);
  e->set_name(name);
  e->set_execution(execution);
  e->set_start_ns(start);
  e->set_end_ns(end);
  return e;
}

// w0 sends, w10 and w2 receive; times in the workers' own clocks.
std::vector<v1::TraceTrack> Sample() {
  std::vector<v1::TraceTrack> tracks(3);
  tracks[0].set_worker("w10");
  tracks[0].set_clock_offset_ns(1'000'000);
  tracks[0].set_clock_error_ns(300);
  tracks[1].set_worker("w0");
  tracks[1].set_clock_error_ns(100);
  tracks[2].set_worker("w2");
  tracks[2].set_predicted(true);
  for (int64_t k = 0; k < 3; ++k) {
    Add(&tracks[1], v1::SEND, v1::LANE_SEND, "SEND a:0 -> b:0", k, 2'000'000 + k * 1000, 2'000'500 + k * 1000);
    // Ends 200 ns before the send starts, in the driver's clock: within the errors.
    Add(&tracks[0], v1::RECV, v1::LANE_RECV, "RECV a:0 -> b:0", k, 999'000 + k * 1000, 999'800 + k * 1000);
    Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "b", k, 1'000'600 + k * 1000, 1'001'000 + k * 1000);
    Add(&tracks[2], v1::COMPUTE, v1::LANE_COMPUTE, "p", k, 7000 + k * 500, 7400 + k * 500);
  }
  return tracks;
}

const TimelineBar& Find(const TimelinePanel& panel, const std::string& name, int64_t execution) {
  for (const TimelineLane& lane : panel.lanes) {
    for (const TimelineBar& bar : lane.bars) {
      if (bar.name == name && bar.execution == execution) return bar;
    }
  }
  throw std::runtime_error("no bar " + name);
}

// One execution of 2 ms at each of these times, in ms.
Timeline At(const std::vector<Nanos>& starts) {
  std::vector<v1::TraceTrack> tracks(1);
  tracks[0].set_worker("w0");
  for (size_t k = 0; k < starts.size(); ++k) {
    const Nanos start = starts[k] * 1'000'000;
    Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "a", static_cast<int64_t>(k), start, start + 500'000);
    Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "b", static_cast<int64_t>(k), start + 1'000'000, start + 2'000'000);
  }
  return BuildTimeline(tracks);
}

TEST_CASE("timeline: a client's pauses are left out, and said; what stands between executions of a busy graph stays") {
  // Gaps of 1 ms, then of 5000, 1, 300 ms.
  const Timeline t = At({100, 103, 106, 5108, 5111, 5413});
  const int64_t want[] = {0, 3, 6, 9, 12, 15};
  for (int64_t k = 0; k < 6; ++k) {
    CHECK(Find(t.measured, "a", k).start == want[k] * 1'000'000);
    CHECK(Find(t.measured, "b", k).end == want[k] * 1'000'000 + 2'000'000);
  }
  CHECK(t.measured.SecondsPerExecution() == Approx(0.003));
  CHECK(t.measured.notes == std::vector<std::string>{"2 pauses of 5.298 s together, in which no execution was under way, are left out."});
  // 20 ms are ten executions, no more.
  CHECK(At({0, 22, 44}).measured.SecondsPerExecution() == Approx(0.022));
  CHECK(At({0, 22, 44}).measured.notes.empty());
  CHECK(At({0, 3000}).measured.SecondsPerExecution() == Approx(0.002));
  CHECK(At({0, 3000}).measured.notes.size() == 1);
  // Overlapping executions, one of them long: nothing is a pause while it runs.
  std::vector<v1::TraceTrack> tracks(1);
  tracks[0].set_worker("w0");
  for (int64_t k = 0; k < 5; ++k) Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "a", k, k * 200'000'000, k * 200'000'000 + 1'000'000);
  Add(&tracks[0], v1::WRITE, v1::LANE_SEND, "WRITE a:0 -> out", 0, 1'000'000, 900'000'000);
  CHECK(BuildTimeline(tracks).measured.notes.empty());
  CHECK(At({}).measured.empty());
  // Ten times the longest execution that there can be is no number of nanoseconds: a short gap beside it is still none.
  constexpr Nanos kFar = std::numeric_limits<Nanos>::max() / 16 - 1;
  std::vector<v1::TraceTrack> far(2);
  for (int k = 0; k < 2; ++k) {
    far[k].set_worker(k == 0 ? "w0" : "w1");
    far[k].set_clock_offset_ns(k == 0 ? -kFar : kFar);
    Add(&far[k], v1::COMPUTE, v1::LANE_COMPUTE, "a", k, k == 0 ? -kFar : -kFar + 20'000'000, kFar);
  }
  const Timeline longest = BuildTimeline(far);
  CHECK(longest.measured.notes.empty());
  CHECK(Find(longest.measured, "a", 1).start == 2 * kFar + 20'000'000);
}

TEST_CASE("timeline applies clock offsets, starts at 0 and orders lanes") {
  const Timeline t = BuildTimeline(Sample());
  REQUIRE(t.measured.lanes.size() == 3);
  CHECK(t.measured.lanes[0].worker == "w0");
  CHECK(t.measured.lanes[1].worker == "w10");
  CHECK(t.measured.lanes[1].kind == v1::LANE_RECV);
  CHECK(t.measured.lanes[2].kind == v1::LANE_COMPUTE);
  REQUIRE(t.predicted.lanes.size() == 1);
  CHECK(t.predicted.lanes[0].bars[0].start == 0);
  CHECK(t.predicted.lanes[0].bars[2].end == 1400);
  CHECK(t.predicted.SecondsPerExecution() == Approx(500e-9));
  CHECK(t.measured.clock_error == 400);
}

TEST_CASE("a receive never ends before its send starts, within the stated error") {
  const Timeline t = BuildTimeline(Sample());
  for (int64_t k = 0; k < 3; ++k) {
    CHECK(Find(t.measured, "RECV a:0 -> b:0", k).end >= Find(t.measured, "SEND a:0 -> b:0", k).start);
  }
  CHECK(t.measured.notes.empty());
  // The receiver's other ops moved with it: the computation still starts 800 ns after the receive ended.
  CHECK(Find(t.measured, "b", 0).start - Find(t.measured, "RECV a:0 -> b:0", 0).end == 800);
}

TEST_CASE("clocks that contradict each other beyond their error are said, not hidden") {
  auto tracks = Sample();
  tracks[0].set_clock_error_ns(50);
  tracks[1].set_clock_error_ns(50);
  const Timeline t = BuildTimeline(tracks);
  REQUIRE(t.measured.notes.size() == 1);
  CHECK(t.measured.notes[0].find("w0 and w10") != std::string::npos);
  CHECK(Find(t.measured, "SEND a:0 -> b:0", 0).start - Find(t.measured, "RECV a:0 -> b:0", 0).end == 100);
}

TEST_CASE("impossible events are left out and counted") {
  auto tracks = Sample();
  Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "b", 3, 10, 5);
  Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "b", 4, std::numeric_limits<int64_t>::min(), 5);
  Add(&tracks[0], v1::COMPUTE, v1::LANE_COMPUTE, "b", 5, 0, std::numeric_limits<int64_t>::max());
  const Timeline t = BuildTimeline(tracks);
  REQUIRE(t.measured.notes.size() == 1);
  CHECK(t.measured.notes[0].rfind("3 events", 0) == 0);
  int64_t first, count;
  ExecutionRange(t.measured, &first, &count);
  CHECK(first == 0);
  CHECK(count == 3);
}

TEST_CASE("workers are in natural order") {
  std::vector<v1::TraceTrack> tracks;
  for (const char* name : {"w10", "w9", "b", "w1", "w01", "a10b2", "a10b10"}) {
    tracks.emplace_back().set_worker(name);
    Add(&tracks.back(), v1::COMPUTE, v1::LANE_COMPUTE, "x", 0, 0, 1);
  }
  std::vector<std::string> order;
  for (const TimelineLane& lane : BuildTimeline(tracks).measured.lanes) order.push_back(lane.worker);
  CHECK(order == std::vector<std::string>{"a10b2", "a10b10", "b", "w01", "w1", "w9", "w10"});
}

TEST_CASE("selecting executions starts the clock again") {
  const TimelinePanel p = SelectExecutions(BuildTimeline(Sample()).predicted, 1, 1);
  REQUIRE(p.lanes.size() == 1);
  REQUIRE(p.lanes[0].bars.size() == 1);
  CHECK(p.lanes[0].bars[0].start == 0);
  CHECK(p.lanes[0].bars[0].execution == 1);
  CHECK(SelectExecutions(p, 0, 1).empty());
}

TEST_CASE("chrome json: a process per worker, a thread per lane, exact microseconds") {
  auto tracks = Sample();
  tracks[0].mutable_event(0)->set_error(true);
  Add(&tracks[2], v1::COMPUTE, v1::LANE_COMPUTE, "odd \"name\"\n\x01", 3, 9001, 9999);
  const auto json = nlohmann::json::parse(ToChromeJson(BuildTimeline(tracks), "g"));
  CHECK(json["otherData"]["graph"] == "g");
  std::map<int, std::string> processes;
  int ops = 0, arrows = 0, errors = 0;
  for (const auto& e : json["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["ph"] == "s") ++arrows;
    if (e["ph"] != "X") continue;
    ++ops;
    CHECK(e["args"].contains("execution"));
    CHECK(e["args"].contains("op"));
    errors += e["args"].value("error", false);
    if (e["name"] == "odd \"name\"\n\x01") {
      CHECK(e["ts"].get<double>() == Approx(2.001));
      CHECK(e["dur"].get<double>() == Approx(0.998));
    }
  }
  CHECK(ops == 13);
  CHECK(arrows == 3);
  CHECK(errors == 1);
  CHECK(processes.size() == 3);
  CHECK(processes[1] == "w0 (measured)");
}

TEST_CASE("svg: rows, axis, legend and limits") {
  const std::string svg = ToSvg(BuildTimeline(Sample()), {.title = "<overlap> & more", .max_executions = 2});
  CHECK(svg.find("&lt;overlap&gt; &amp; more") != std::string::npos);
  CHECK(svg.find("<overlap>") == std::string::npos);
  CHECK(svg.find(">Predicted<") < svg.find(">Measured<"));
  CHECK(svg.find(">w10<") != std::string::npos);
  CHECK(svg.find(">recv0<") != std::string::npos);
  CHECK(svg.find("execution #1<") != std::string::npos);
  CHECK(svg.find("execution #2<") == std::string::npos);
  CHECK(svg.find("Shown: 2 of 3 executions") != std::string::npos);
  CHECK(svg.find(" µs<") != std::string::npos);
  CHECK(svg.rfind("</svg>\n") == svg.size() - 7);
}

TEST_CASE("svg of nothing says so, of very much stays small") {
  CHECK(ToSvg({}, {.title = "empty"}).find("No op was recorded") != std::string::npos);

  std::vector<v1::TraceTrack> tracks(40);
  for (int w = 0; w < 40; ++w) {
    tracks[w].set_worker(absl::StrCat("w", w));
    for (int i = 0; i < 1000; ++i) Add(&tracks[w], v1::COMPUTE, v1::LANE_COMPUTE, "x", 0, i * 10, i * 10 + 5);
  }
  const std::string svg = ToSvg(BuildTimeline(tracks), {.title = "large", .max_bars = 500});
  CHECK(svg.size() < 500 * 700);
  CHECK(svg.find("Not shown: 16 more workers") != std::string::npos);
  CHECK(svg.find("Shown: 500 ops of one execution") != std::string::npos);
}

TEST_CASE("axis: round steps, at most as many as wanted") {
  const TimeAxis ms = MakeTimeAxis(120'000'000, 12);
  CHECK(ms.unit == "ms");
  CHECK(ms.ticks.size() == 13);
  CHECK(ms.ticks[1].label == "10");
  for (Nanos span = 1; span < 4'000'000'000'000; span = span * 3 + 1) {
    const TimeAxis axis = MakeTimeAxis(span, 12);
    CHECK(axis.ticks.size() >= (span < 12 ? span + 1 : 5));
    CHECK(axis.ticks.size() <= 13);
    CHECK(axis.ticks.back().at <= span);
  }
}

}  // namespace
}  // namespace weft
