// Pipeline training, one stage a GPU: every schedule measured against what the simulator predicts from costs that were measured in the same
// run.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/plan/plan.h"
#include "driver/schedules/training_graph.h"
#include "driver/simulate/measured_costs.h"
#include "driver/simulate/simulator.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

struct Settings {
  int stages = 4;
  std::vector<int> microbatches = {8, 16};
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "auto"};
  int64_t width = 8192, rows = 8192;
  int layers = 8;  // of the whole network; as many as two stages a worker need at least
  v1::DType dtype = v1::BF16;
  int executions = 10;
  int in_flight = 1;
};

void Check(const absl::Status& s) {
  if (!s.ok()) throw std::runtime_error(std::string(s.message()));
}
template <typename T>
T Take(absl::StatusOr<T> v) {
  Check(v.status());
  return *std::move(v);
}

// What a call takes, by method and the number of its stage's layers: all layers are of one shape.
using Costs = std::map<std::pair<std::string, int>, double>;

struct Measured {
  Costs compute;  // seconds
  // Of a value from one worker to another: how long SEND and RECV or WRITE hold their lanes, what lies between WRITE and READ, and how long
  // READ holds its lane. The least over the edges, all of one size: an end that waits on the device for the other, or for its value, holds
  // its lane longer.
  double transfer = 0, latency = 0, read = 0;

  double hop() const { return transfer + latency + read; }
};

int LayersOf(const v1::Graph& g, const std::string& actor) {
  for (const v1::Actor& a : g.actor()) {
    if (a.name() == actor) return a.config().widths_size() - 1;
  }
  return 0;
}

// Method and layers of each node of the graph; nodes that are no calls of a stage have none.
std::map<std::string, std::pair<std::string, int>> KindsOf(const v1::Graph& g) {
  std::map<std::string, std::pair<std::string, int>> kinds;
  for (const v1::Node& n : g.node()) kinds[n.name()] = {n.method(), LayersOf(g, n.actor())};
  return kinds;
}

PipelinePlan Schedule(const std::string& name, const Settings& s, int m, const Measured* costs, int chunks = 0) {
  PipelineRequest r;
  r.schedule = name;
  r.workers = s.stages;
  r.microbatches = m;
  if (chunks > 0) r.chunks = chunks;
  if (costs != nullptr) {
    const int layers = s.layers / s.stages;
    const auto us = [&](const char* method) {
      return Take(ParseDecimal("cost", absl::StrFormat("%.2f", 1e6 * costs->compute.at({method, layers}))));
    };
    r.costs.forward = {us("forward")};
    r.costs.input = {us("input_grad")};
    r.costs.weight = {us("weight_grad")};
    r.costs.hop = Take(ParseDecimal("hop", absl::StrFormat("%.2f", 1e6 * costs->hop())));
  }
  return Take(PlanPipeline(r));
}

v1::Graph Graph(const PipelinePlan& plan, const Settings& s) {
  TrainingModel model;
  model.widths.assign(static_cast<size_t>(s.layers) + 1, s.width);
  model.rows = s.rows;
  model.dtype = s.dtype;
  model.learning_rate = 1e-3;
  model.inputs = false;
  model.weights = false;
  model.in_flight = s.in_flight;
  return Take(TrainingGraph(plan, model, absl::StrCat("train-", plan.schedule.name, "-", plan.schedule.microbatches)));
}

// One traced run: medians by method and number of layers.
void Calibrate(Client* client, const v1::Graph& g, Measured* out) {
  Check(client->Compile(g, Client::CompileOptions()).status());
  {
    SessionOptions options;
    options.graph = g.name();
    options.discard_outputs = true;
    auto session = Take(client->OpenSession(options));
    for (int i = 0; i < 6; ++i) {
      const auto result = Take(session->Wait(Take(session->Submit({})), 120));
      if (!result.ok()) throw std::runtime_error(absl::StrCat(g.name(), ": ", result.errors.begin()->second.message()));
    }
  }
  const Plan plan = Take(PlanFromProto(Take(client->GetPlan(g.name()))));
  const auto trace = Take(client->GetTrace(g.name(), 4));
  Check(client->Teardown(g.name()));
  const MeasuredCosts measured = Take(CostsFromTrace(plan, trace));
  std::map<std::pair<std::string, int>, std::vector<double>> calls;
  const auto kinds = KindsOf(g);
  for (const v1::NodeCost& n : measured.costs.node()) calls[kinds.at(n.node())].push_back(n.time_s());
  std::set<std::pair<std::string, std::string>> between;
  for (const PlanEdge& e : plan.edges) {
    if (e.src_worker != kClient && e.dst_worker != kClient && e.src_worker != e.dst_worker) between.insert({e.src, e.dst});
  }
  std::vector<double> transfer, latency, read;
  for (const v1::EdgeCost& e : measured.costs.edge()) {
    if (between.count({e.from(), e.to()}) == 0) continue;
    transfer.push_back(e.time_s());
    latency.push_back(e.latency_s());
    read.push_back(e.read_s());
  }
  const bool first = out->compute.empty();
  const auto least = [first](const std::vector<double>& values, double* to) {
    if (values.empty()) return;
    const double seen = *std::min_element(values.begin(), values.end());
    *to = first ? seen : std::min(*to, seen);
  };
  least(transfer, &out->transfer);
  least(latency, &out->latency);
  least(read, &out->read);
  for (auto& [kind, values] : calls) out->compute[kind] = Median(values);
}

struct Prepared {
  v1::Graph graph;
  SimResult predicted;
  uint64_t stage_bytes = 0, value_bytes = 0;  // of the worker that has most
};

// Compiles its graph, which stays.
Prepared Prepare(Client* client, const Settings& s, const PipelinePlan& schedule, const Measured& costs) {
  Prepared out;
  out.graph = Graph(schedule, s);
  Client::CompileOptions compile;
  compile.trace = false;
  Check(client->Compile(out.graph, compile).status());
  const Plan plan = Take(PlanFromProto(Take(client->GetPlan(out.graph.name()))));
  const auto kinds = KindsOf(out.graph);
  CostModel model = CostModel::Default();
  model.compute = [&](const Plan&, const PlanNode& n) {
    const auto it = costs.compute.find(kinds.at(n.name));
    return it == costs.compute.end() ? Nanos{0} : FromSeconds(it->second);
  };
  const auto between = [](double seconds) {
    return [seconds](const Plan&, const PlanEdge& e) {
      return e.src_worker == kClient || e.dst_worker == kClient ? Nanos{0} : FromSeconds(seconds);
    };
  };
  model.transfer = between(costs.transfer);
  model.latency = between(costs.latency);
  model.read = between(costs.read);
  SimOptions options;
  options.executions = s.executions;
  options.record = false;
  out.predicted = Take(Simulate(plan, model, options));
  for (const uint64_t b : TrainingBytes(out.graph, s.stages)) out.stage_bytes = std::max(out.stage_bytes, b);
  for (const uint64_t b : plan.peak_bytes) out.value_bytes = std::max(out.value_bytes, b);
  return out;
}

struct Ran {
  PipelinePlan schedule;
  Prepared prepared;
  double period_s = 0;
};

// Compiles a schedule's graph, runs it and takes it down.
Ran RunPrepared(Client* client, const Settings& s, PipelinePlan schedule, const Measured& costs) {
  Ran out;
  out.prepared = Prepare(client, s, schedule, costs);
  out.schedule = std::move(schedule);
  const Steady steady = RunCompiled(client, out.prepared.graph.name(), 2, s.executions, true);
  Check(client->Teardown(out.prepared.graph.name()));
  out.period_s = s.in_flight == 1 ? steady.typical_s : steady.period_s;  // costs are medians
  return out;
}

// Prints its row. `auto` has one stage a worker or two, whichever is faster: what a prediction is worth is about as much as they differ.
Ran RunSchedule(Client* client, const Settings& s, int m, const std::string& name, const Measured& costs) {
  Ran ran = RunPrepared(client, s, Schedule(name, s, m, &costs), costs);
  std::string label = name;
  if (name == "auto") {
    Ran two = RunPrepared(client, s, Schedule(name, s, m, &costs, 2), costs);
    const bool better = two.period_s < ran.period_s;
    label = better ? "auto (2 stages a worker)" : "auto (1 stage a worker)";
    std::printf("  auto: 1 stage a worker %s, 2 stages %s\n", Ms(ran.period_s).c_str(), Ms(two.period_s).c_str());
    if (better) ran = std::move(two);
  }
  const double period = ran.period_s;
  const SimResult& predicted = ran.prepared.predicted;
  const double ratio = period / predicted.seconds_per_execution;
  double busy = 0;
  for (const Nanos b : predicted.busy) busy += ToSeconds(b) / s.executions / s.stages;
  Row(absl::StrFormat("pipeline p=%d m=%d %s", s.stages, m, label),
      absl::StrFormat("measured %s, predicted %s: %s; bubble %.1f %%; peak %.2f GiB of stages, %.2f GiB of values", Ms(period),
                      Ms(predicted.seconds_per_execution), Ratio(ratio), 100 * (1 - busy / period),
                      static_cast<double>(ran.prepared.stage_bytes) / (1 << 30), static_cast<double>(ran.prepared.value_bytes) / (1 << 30)),
      "within 5 %", std::fabs(ratio - 1) <= 0.05);
  return ran;
}

// `measured`, of which one is auto: its time by that of the best other.
void CompareAuto(Client* client, const Settings& s, int m, const Measured& costs, const std::map<std::string, Ran>& measured) {
  std::string best;
  for (const auto& [name, ran] : measured) {
    if (name != "auto" && (best.empty() || ran.period_s < measured.at(best).period_s)) best = name;
  }
  double of_auto = measured.at("auto").period_s, of_best = measured.at(best).period_s;
  if (of_auto > of_best) {
    // They ran some schedules apart, and a GPU that works for longer gets slower: again, in turn, and only that counts.
    of_auto = of_best = 0;
    for (int round = 1; round <= 2; ++round) {
      const double other = RunPrepared(client, s, measured.at(best).schedule, costs).period_s;
      const double own = RunPrepared(client, s, measured.at("auto").schedule, costs).period_s;
      std::printf("  in turn, round %d: %s %s, auto %s\n", round, best.c_str(), Ms(other).c_str(), Ms(own).c_str());
      of_best += other;
      of_auto += own;
    }
  }
  const double against = of_auto / of_best;
  Row(absl::StrFormat("pipeline p=%d m=%d auto against the best other", s.stages, m), absl::StrCat(best, ": ", Ratio(against)),
      "<= 1.01, the noise of a run", against <= 1.01);
}

Settings Parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (i + 1 >= argc) throw std::runtime_error(absl::StrCat(a, " needs a value"));
    const std::string v = argv[++i];
    if (a == "--stages") s.stages = std::stoi(v);
    else if (a == "--microbatches") {
      s.microbatches.clear();
      for (const std::string& m : std::vector<std::string>(absl::StrSplit(v, ','))) s.microbatches.push_back(std::stoi(m));
    } else if (a == "--schedules") s.schedules = absl::StrSplit(v, ',');
    else if (a == "--width") s.width = std::stoll(v);
    else if (a == "--rows") s.rows = std::stoll(v);
    else if (a == "--layers") s.layers = std::stoi(v);
    else if (a == "--executions") s.executions = std::stoi(v);
    else if (a == "--in-flight") s.in_flight = std::stoi(v);
    else if (a == "--dtype") {
      if (v != "BF16" && v != "F16" && v != "F32") throw std::runtime_error("--dtype is BF16, F16 or F32");
      s.dtype = v == "F16" ? v1::F16 : v == "F32" ? v1::F32 : v1::BF16;
    } else {
      throw std::runtime_error(absl::StrCat(a, " is no option"));
    }
  }
  if (s.layers % (2 * s.stages) != 0)
    throw std::runtime_error("--layers must be a multiple of twice --stages, so that all stages are alike");
  return s;
}

}  // namespace

int Pipeline(int argc, char** argv) {
  const Settings s = Parse(argc, argv);
  std::vector<std::string> devices;
  for (int i = 0; i < s.stages; ++i) devices.push_back(GpuOf(i));
  Daemons cluster(std::vector<std::string>(static_cast<size_t>(s.stages), "h0"), "h0", devices);
  const auto client = cluster.Dial();
  std::printf("%d layers of %ld features, %ld rows a microbatch, %s; %d executions, %d in flight\n", s.layers, static_cast<long>(s.width),
              static_cast<long>(s.rows), v1::DType_Name(s.dtype).c_str(), s.executions, s.in_flight);
  const Nanos began = Clock::Real()->Now();
  const auto passed = [&] { return ToSeconds(Clock::Real()->Now() - began); };
  for (const int m : s.microbatches) {
    // One stage a worker and two, backwards split and whole. For each m, since a GPU that works for longer gets slower.
    Measured costs;
    for (const char* name : {"gpipe", "zb-h1", "interleaved-1f1b", "zbv"}) Calibrate(client.get(), Graph(Schedule(name, s, m, nullptr), s), &costs);
    for (const auto& [kind, seconds] : costs.compute) {
      if (kind.second > 0) std::printf("  %s of %d layers: %s\n", kind.first.c_str(), kind.second, Ms(seconds).c_str());
    }
    std::printf("  a value to another worker: %s, %s until it is read, %s to read; after %.1f s\n", Ms(costs.transfer).c_str(), Ms(costs.latency).c_str(),
                Ms(costs.read).c_str(), passed());
    std::map<std::string, Ran> measured;
    for (const std::string& name : s.schedules) {
      measured[name] = RunSchedule(client.get(), s, m, name, costs);
      std::printf("  after %.1f s\n", passed());
    }
    if (measured.count("auto") > 0 && measured.size() > 1) CompareAuto(client.get(), s, m, costs, measured);
  }
  return 0;
}

}  // namespace weft::bench
