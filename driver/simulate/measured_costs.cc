#include "driver/simulate/measured_costs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "driver/plan/verify_index.h"

namespace weft {
namespace {

constexpr size_t kMostNames = 10;

struct Seen {
  Nanos start = 0;
  Nanos end = 0;
};

// What one thing took, by execution.
class Samples {
 public:
  void Add(int64_t execution, Nanos took) { (execution == 0 ? first_ : later_).push_back(std::max<Nanos>(0, took)); }
  bool empty() const { return first_.empty() && later_.empty(); }
  Nanos Typical() const { return Median(later_.empty() ? first_ : later_); }
  // What the first took longer.
  Nanos First() const { return first_.empty() || later_.empty() ? 0 : std::max<Nanos>(0, Median(first_) - Typical()); }

 private:
  static Nanos Median(std::vector<Nanos> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  }
  std::vector<Nanos> first_, later_;
};

// In one edge or several with one name.
struct EdgeSamples {
  Samples time, read;
  Nanos latency = -1;
};

class Measurer {
 public:
  explicit Measurer(const Plan& plan) : plan_(plan), index_(plan), seen_(plan.ops.size()) {}

  absl::Status Read(const std::vector<v1::TraceTrack>& tracks) {
    std::map<std::string, int32_t> workers;
    for (size_t w = 0; w < plan_.workers.size(); ++w) workers[plan_.workers[w].name] = static_cast<int32_t>(w);
    bool captured = false;
    std::vector<bool> told(plan_.workers.size(), false);
    for (const v1::TraceTrack& track : tracks) {
      const auto it = workers.find(track.worker());
      if (track.predicted() || it == workers.end()) continue;
      for (const v1::TraceEvent& e : track.event()) {
        captured |= e.op() < 0;
        if (e.op() < 0 || e.op() >= static_cast<int32_t>(plan_.ops.size()) || plan_.ops[e.op()].worker != it->second) continue;
        told[it->second] = true;
        if (e.error() || e.execution() < 0) continue;
        seen_[e.op()][e.execution()] = {e.start_ns() + track.clock_offset_ns(), e.end_ns() + track.clock_offset_ns()};
        first_ = std::min(first_, e.execution());
        last_ = std::max(last_, e.execution());
      }
    }
    if (captured) {
      return absl::FailedPreconditionError(
          "the trace has whole captured iterations instead of ops: measure with options.launch STREAM, and use the costs with GRAPH");
    }
    std::vector<std::string> silent;
    std::vector<bool> has_part(plan_.workers.size(), false);
    for (const PlanOp& o : plan_.ops) has_part[o.worker] = true;
    for (size_t w = 0; w < told.size(); ++w) {
      if (has_part[w] && !told[w] && silent.size() < kMostNames) silent.push_back(plan_.workers[w].name);
    }
    if (silent.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("nothing was recorded on worker ", absl::StrJoin(silent, ", "),
                                                      ": compile the graph with its trace on, and execute it at least once"));
  }

  absl::StatusOr<MeasuredCosts> Make() {
    MeasuredCosts out;
    out.costs.set_graph(plan_.graph);
    if (last_ < first_) return absl::FailedPreconditionError("every execution in the trace has failed");
    out.first_execution = first_;
    out.executions = last_ - first_ + 1;
    std::vector<std::string> unseen;
    for (const PlanNode& n : plan_.nodes) {
      const int32_t op = index_.compute()[n.id];
      Samples s;
      for (const auto& [k, e] : seen_[op]) s.Add(k, e.end - e.start);
      if (s.empty()) {
        if (unseen.size() < kMostNames) unseen.push_back(n.name);
        continue;
      }
      v1::NodeCost* c = out.costs.add_node();
      c->set_node(n.name);
      c->set_time_s(ToSeconds(s.Typical()));
      if (s.First() > 0) c->set_first_s(ToSeconds(s.First()));
    }
    if (!unseen.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("no execution in the trace has run node ", absl::StrJoin(unseen, ", "),
                                                        " without an error"));
    }
    AddEdges(&out.costs);
    for (const PlanGroup& g : plan_.groups) {
      Samples s;
      Meet(index_.members()[g.id], &s);
      if (s.empty()) continue;
      v1::CollectiveCost* c = out.costs.add_collective();
      c->set_collective(g.name);
      c->set_time_s(ToSeconds(s.Typical()));
      if (s.First() > 0) c->set_first_s(ToSeconds(s.First()));
    }
    return out;
  }

 private:
  // How long ops took that are issued apart and run together.
  void Meet(const std::vector<int32_t>& ops, Samples* s) const {
    if (ops.empty() || ops[0] < 0) return;
    for (const auto& [k, e] : seen_[ops[0]]) {
      Seen all = e;
      bool whole = true;
      for (const int32_t op : ops) {
        const auto it = op < 0 ? seen_[ops[0]].end() : seen_[op].find(k);
        whole &= op >= 0 && it != seen_[op].end();
        if (!whole) break;
        all.start = std::max(all.start, it->second.start);
        all.end = std::max(all.end, it->second.end);
      }
      if (whole) s->Add(k, all.end - all.start);
    }
  }

  // Since when the op's lane had nothing else to do before it; -1: unknown.
  Nanos LaneFree(int32_t op, int64_t k) const {
    const PlanLane& lane = index_.lanes()[index_.lane_of(op)];
    const int32_t place = index_.place_in_lane(op);
    const int32_t before = place > 0 ? lane.ops[place - 1] : lane.ops.back();
    const int64_t of = place > 0 ? k : k - 1;
    if (of < 0) return 0;
    const auto it = seen_[before].find(of);
    return it == seen_[before].end() ? -1 : it->second.end;
  }

  void AddEdges(v1::Costs* costs) const {
    std::map<std::tuple<std::string, std::string, int32_t>, EdgeSamples> edges;  // sorted, so that equal traces give equal files
    for (const PlanEdge& e : plan_.edges) {
      EdgeSamples& s = edges[{e.src, e.dst, e.src_output}];
      const int32_t out = index_.source()[e.id], in = index_.sink()[e.id];
      if (e.rendezvous) {
        if (out >= 0 && in >= 0) Meet({out, in}, &s.time);
        continue;
      }
      if (out >= 0) {
        for (const auto& [k, w] : seen_[out]) s.time.Add(k, w.end - w.start);
      }
      if (in < 0) continue;
      for (const auto& [k, r] : seen_[in]) {
        s.read.Add(k, r.end - r.start);
        if (out < 0) continue;
        const auto w = seen_[out].find(k);
        const Nanos free = LaneFree(in, k);
        if (w == seen_[out].end() || free < 0 || free > w->second.end) continue;
        const Nanos latency = std::max<Nanos>(0, r.start - w->second.end);
        s.latency = s.latency < 0 ? latency : std::min(s.latency, latency);
      }
    }
    for (const auto& [key, s] : edges) {
      if (s.time.empty() && s.read.empty()) continue;
      v1::EdgeCost* c = costs->add_edge();
      c->set_from(std::get<0>(key));
      c->set_to(std::get<1>(key));
      c->set_output(std::get<2>(key));
      if (!s.time.empty()) c->set_time_s(ToSeconds(s.time.Typical()));
      if (!s.time.empty() && s.time.First() > 0) c->set_first_s(ToSeconds(s.time.First()));
      if (!s.read.empty()) c->set_read_s(ToSeconds(s.read.Typical()));
      if (s.latency > 0) c->set_latency_s(ToSeconds(s.latency));
    }
  }

  const Plan& plan_;
  const PlanIndex index_;
  std::vector<std::unordered_map<int64_t, Seen>> seen_;  // by op: by execution
  int64_t first_ = INT64_MAX, last_ = -1;
};

}  // namespace

absl::StatusOr<MeasuredCosts> CostsFromTrace(const Plan& plan, const std::vector<v1::TraceTrack>& tracks) {
  Measurer m(plan);
  const absl::Status read = m.Read(tracks);
  if (!read.ok()) return read;
  return m.Make();
}

}  // namespace weft
