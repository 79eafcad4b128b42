// Training through pipeline schedules over real worker processes: on GPUs, or on GPUs that the CPU plays where $WEFT_TEST_DEVICE does not
// say otherwise.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/tensor/random.h"
#include "driver/schedules/training_graph.h"
#include "tests/integration/daemons.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

constexpr int kRows = 16, kSteps = 4;

Tensor Data(int64_t width, uint64_t step, uint64_t seed) {
  const Tensor t = *Tensor::OnHost(v1::F32, {kRows, width});
  for (int64_t i = 0; i < t.elements(); ++i) {
    SetElementFromDouble(t, i, 2 * UniformDouble(CounterBits(seed, step, static_cast<uint64_t>(i))) - 1);
  }
  return t;
}

struct Case {
  const char* schedule;
  int workers;
  int chunks;
  int in_flight = 1;
  v1::Launch launch = v1::STREAM;
};

// Loss and all weights, stage after stage, of each step.
std::vector<std::vector<double>> Train(Client* client, const Case& c) {
  PipelineRequest request;
  request.schedule = c.schedule;
  request.workers = c.workers;
  request.microbatches = 8;
  if (c.chunks > 0) request.chunks = c.chunks;
  const auto plan = PlanPipeline(request);
  Need(plan.status());
  TrainingModel model;
  model.widths = {12, 16, 8, 16, 8, 24, 16, 8, 4};
  model.rows = kRows / 8;
  model.activation = "tanh";
  model.in_flight = c.in_flight;
  auto graph = TrainingGraph(*plan, model, absl::StrCat("train-", c.schedule, "-", c.workers, "-", c.in_flight));
  Need(graph.status());
  graph->mutable_options()->set_launch(c.launch);
  Client::CompileOptions compile;
  compile.trace = false;
  compile.timeout_s = 60;
  Need(client->Compile(*graph, compile).status());
  std::vector<std::vector<double>> steps;
  {
    SessionOptions options;
    options.graph = graph->name();
    options.deadline_s = 60;
    options.submit = v1::QUEUE;
    auto session = client->OpenSession(options);
    Need(session.status());
    std::vector<ClientSession::Handle> handles;
    for (int k = 0; k < kSteps; ++k) {
      auto h = (*session)->Submit({{"x", Data(12, k, 1)}, {"t", Data(4, k, 2)}});
      Need(h.status());
      handles.push_back(*h);
    }
    for (const ClientSession::Handle h : handles) {
      auto r = (*session)->Wait(h, 60);
      Need(r.status());
      for (const auto& [name, error] : r->errors) FAIL(name << ": " << error.message());
      std::vector<double> all = {ElementAsDouble(r->outputs.at("loss"), 0)};
      for (int s = 0; r->outputs.count(absl::StrCat("weights", s)) == 1; ++s) {
        const Tensor& w = r->outputs.at(absl::StrCat("weights", s));
        for (int64_t i = 0; i < w.elements(); ++i) all.push_back(ElementAsDouble(w, i));
      }
      steps.push_back(std::move(all));
    }
    Need((*session)->Close(30));
  }
  Need(client->Teardown(graph->name()));
  return steps;
}

double Worst(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double worst = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].size() != b[i].size()) return HUGE_VAL;
    for (size_t k = 0; k < a[i].size(); ++k) {
      const double d = std::fabs(a[i][k] - b[i][k]);
      worst = d <= worst ? worst : d;
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("gpu daemons: training by every schedule gives one worker's bits, and the CPU's to rounding") {
  std::vector<std::vector<double>> cpu;
  {
    Daemons one({"h0"}, "h0", {"cpu"});
    cpu = Train(one.Dial().get(), {"1f1b", 1, 0});
  }
  REQUIRE(cpu.size() == kSteps);
  CHECK(cpu[0][0] != cpu[1][0]);
  CHECK(Worst({cpu[0]}, {cpu[1]}) > 1e-3);  // weights move
  Daemons cluster({"h0", "h0", "h0", "h0"}, "h0", {Gpu(0), Gpu(1), Gpu(2), Gpu(3)});
  const auto client = cluster.Dial();
  const auto alone = Train(client.get(), {"1f1b", 1, 0});
  CHECK(Worst(alone, cpu) < 1e-5);
  const Case cases[] = {{"gpipe", 4, 0},           {"1f1b", 4, 0},       {"interleaved-1f1b", 4, 2}, {"zb-h1", 4, 0}, {"zb-h2", 3, 0},
                        {"zbv", 4, 0},             {"dualpipe-v", 4, 0}, {"auto", 4, 2},             {"1f1b", 4, 0, 3},
                        {"zbv", 2, 0, 1, v1::GRAPH}};
  for (const Case& c : cases) {
    INFO(c.schedule << " on " << c.workers << " workers, " << c.in_flight << " in flight" << (c.launch == v1::GRAPH ? ", captured" : ""));
    CHECK(Train(client.get(), c) == alone);
  }
}

}  // namespace weft
