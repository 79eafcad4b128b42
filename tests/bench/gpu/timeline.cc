// Predicted against measured: costs are calibrated by one traced run, op by op, and the client's part by a graph that does nothing else; then the simulator
// predicts, and the daemons run, the same graph with overlap off, on, and with several executions in flight.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/plan/plan.h"
#include "driver/simulate/cost_file.h"
#include "driver/simulate/measured_costs.h"
#include "driver/simulate/simulator.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

void Check(const absl::Status& s) {
  if (!s.ok()) throw std::runtime_error(std::string(s.message()));
}

constexpr char kShape[] = "[1048576]";

// CPU worker, GPU worker, CPU worker; two values of 4 MiB an execution go all the way, each with work at every stage.
v1::Graph Make(const std::string& name, v1::Overlap overlap, int in_flight) {
  v1::Graph g;
  g.set_name(name);
  constexpr double kSeconds[] = {0.004, 0.006, 0.003};
  for (int w = 0; w < 3; ++w) {
    v1::Actor* a = g.add_actor();
    a->set_name(absl::StrCat("stage", w));
    a->set_class_("std.Delay");
    a->set_worker(absl::StrCat("w", w));
    a->mutable_config()->set_duration_s(kSeconds[w]);
    a->mutable_config()->set_dtype(v1::F32);
    a->mutable_config()->set_shape(kShape);
  }
  for (int v = 0; v < 2; ++v) {
    for (int w = 0; w < 3; ++w) {
      v1::Node* n = g.add_node();
      n->set_name(absl::StrCat("n", v, "_", w));
      n->set_actor(absl::StrCat("stage", w));
      if (w > 0) n->add_arg()->set_node(absl::StrCat("n", v, "_", w - 1));
    }
  }
  v1::Output* out = g.add_output();
  out->set_name("out");
  out->set_node("n1_2");
  g.mutable_options()->set_overlap(overlap);
  g.mutable_options()->set_max_in_flight(in_flight);
  return g;
}

// Of the graph's ops, from their trace with one execution in flight and overlap off, so that none slows another.
v1::Costs Calibrate(Client* client) {
  const v1::Graph g = Make("timeline", v1::OFF, 1);
  Check(client->Compile(g, Client::CompileOptions()).status());
  {
    SessionOptions options;
    options.graph = g.name();
    options.discard_outputs = true;
    auto session = client->OpenSession(options);
    Check(session.status());
    for (int i = 0; i < 12; ++i) {
      auto h = (*session)->Submit({});
      Check(h.status());
      Check((*session)->Wait(*h, 60).status());
    }
  }
  auto proto = client->GetPlan(g.name());
  Check(proto.status());
  auto plan = PlanFromProto(*proto);
  Check(plan.status());
  auto trace = client->GetTrace(g.name(), 8);
  Check(trace.status());
  Check(client->Teardown(g.name()));
  auto measured = CostsFromTrace(*plan, *trace);
  Check(measured.status());
  return measured->costs;
}

// From the end of an execution's last op to the start of the next one's first: what lies between is not in a plan. By a graph whose only task makes a
// result of that size, one execution at a time.
double Turnaround(Client* client, const std::string& shape) {
  v1::Graph g;
  g.set_name("turnaround");
  v1::Actor* a = g.add_actor();
  a->set_name("nothing");
  a->set_class_("std.Delay");
  a->set_worker("w0");
  a->mutable_config()->set_dtype(v1::F32);
  a->mutable_config()->set_shape(shape);
  a->mutable_config()->set_duration_s(0);
  v1::Node* n = g.add_node();
  n->set_name("n");
  n->set_actor("nothing");
  v1::Output* out = g.add_output();
  out->set_name("out");
  out->set_node("n");
  g.mutable_options()->set_max_in_flight(1);
  Check(client->Compile(g, Client::CompileOptions()).status());
  std::vector<double> periods, spans;
  {
    SessionOptions options;
    options.graph = g.name();
    options.discard_outputs = true;
    auto session = client->OpenSession(options);
    Check(session.status());
    int64_t last = 0;
    for (int i = 0; i < 100; ++i) {
      auto h = (*session)->Submit({});
      Check(h.status());
      auto r = (*session)->Wait(*h, 60);
      Check(r.status());
      if (i > 0) periods.push_back(static_cast<double>(r->done_ns - last) * 1e-9);
      last = r->done_ns;
    }
  }
  auto trace = client->GetTrace(g.name(), 0);
  Check(trace.status());
  Check(client->Teardown(g.name()));
  std::map<int64_t, std::pair<int64_t, int64_t>> ends;
  for (const v1::TraceTrack& t : *trace) {
    for (const v1::TraceEvent& e : t.event()) {
      auto& [first, end] = ends.emplace(e.execution(), std::make_pair(e.start_ns(), e.end_ns())).first->second;
      first = std::min(first, e.start_ns());
      end = std::max(end, e.end_ns());
    }
  }
  for (const auto& [k, span] : ends) spans.push_back(static_cast<double>(span.second - span.first) * 1e-9);
  if (spans.empty()) throw std::runtime_error("turnaround: nothing was traced");
  return std::max(0.0, Median(periods) - Median(spans));
}

// Op by op, milliseconds from the first op's start: predicted, and the median of what a traced run measured. Where the two part is where the model is
// wrong.
void PrintOps(Client* client, const v1::Graph& g, const Plan& plan, const CostModel& model) {
  SimOptions options;
  options.executions = 3;
  auto predicted = Simulate(plan, model, options);
  Check(predicted.status());
  const int64_t k = options.executions - 1;
  std::map<int32_t, std::pair<double, double>> expected;
  for (const SimEvent& e : predicted->events) {
    if (e.execution != k) continue;
    const Nanos zero = predicted->execution_start[static_cast<size_t>(k)];
    expected[e.op] = {ToSeconds(e.start - zero) * 1e3, ToSeconds(e.end - zero) * 1e3};
  }
  Check(client->Compile(g, Client::CompileOptions()).status());
  {
    SessionOptions session_options;
    session_options.graph = g.name();
    session_options.discard_outputs = true;
    auto session = client->OpenSession(session_options);
    Check(session.status());
    for (int i = 0; i < 20; ++i) {
      auto h = (*session)->Submit({});
      Check(h.status());
      Check((*session)->Wait(*h, 60).status());
    }
  }
  auto trace = client->GetTrace(g.name(), 12);
  Check(trace.status());
  Check(client->Teardown(g.name()));
  std::map<int64_t, int64_t> zero;
  for (const v1::TraceTrack& t : *trace) {
    for (const v1::TraceEvent& e : t.event()) {
      const auto [it, is_new] = zero.emplace(e.execution(), e.start_ns());
      if (!is_new) it->second = std::min(it->second, e.start_ns());
    }
  }
  std::map<int32_t, std::vector<double>> starts, ends;
  std::map<int32_t, std::string> names;
  for (const v1::TraceTrack& t : *trace) {
    for (const v1::TraceEvent& e : t.event()) {
      starts[e.op()].push_back(static_cast<double>(e.start_ns() - zero[e.execution()]) * 1e-6);
      ends[e.op()].push_back(static_cast<double>(e.end_ns() - zero[e.execution()]) * 1e-6);
      names[e.op()] = absl::StrCat(t.worker(), " ", e.name());
    }
  }
  for (const auto& [op, name] : names) {
    std::printf("    %-44s predicted %7.3f .. %7.3f, measured %7.3f .. %7.3f\n", name.c_str(), expected[op].first, expected[op].second, Median(starts[op]),
                Median(ends[op]));
  }
}

}  // namespace

int Timeline(int argc, char** argv) {
  if (argc > 1) throw std::runtime_error(absl::StrCat(argv[1], " is no option; there is none"));
  Daemons cluster({"h0", "h0", "h0"}, "h0", {"cpu", GpuOf(1), "cpu"});
  const auto client = cluster.Dial();
  v1::Costs costs = Calibrate(client.get());
  const double turnaround = Turnaround(client.get(), kShape);
  std::printf("  from one execution's last op to the next one's first: %s\n", Ms(turnaround).c_str());
  for (v1::EdgeCost& e : *costs.mutable_edge()) {
    if (e.to() == "out") e.set_latency_s(e.latency_s() + turnaround);
  }
  const CostModel model = MakeCostModel(costs, {});
  struct Setting {
    const char* name;
    v1::Overlap overlap;
    int in_flight;
  };
  for (const Setting& s : {Setting{"off", v1::OFF, 1}, Setting{"on", v1::ON, 1}, Setting{"4 in flight", v1::ON, 4}}) {
    const v1::Graph g = Make("timeline", s.overlap, s.in_flight);
    Client::CompileOptions compile;
    compile.trace = false;
    Check(client->Compile(g, compile).status());
    auto proto = client->GetPlan(g.name());
    Check(proto.status());
    Check(client->Teardown(g.name()));
    auto plan = PlanFromProto(*proto);
    Check(plan.status());
    SimOptions options;
    options.executions = 40;
    options.record = false;
    auto predicted = Simulate(*plan, model, options);
    Check(predicted.status());
    // Costs are medians. Several in flight end in clusters, so there it is their mean.
    const Steady run = Run(client.get(), g, 6, 60, true);
    const double measured = s.in_flight == 1 ? run.typical_s : run.period_s, ratio = measured / predicted->seconds_per_execution;
    Row(absl::StrCat("timeline, ", s.name), absl::StrFormat("measured %s, predicted %s: %s", Ms(measured), Ms(predicted->seconds_per_execution), Ratio(ratio)),
        "within 5 %", std::fabs(ratio - 1) <= 0.05);
    if (s.in_flight == 1) PrintOps(client.get(), g, *plan, model);
  }
  return 0;
}

}  // namespace weft::bench
