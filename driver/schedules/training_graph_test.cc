// The graph that trains: it compiles and runs to its end for every schedule, keeps the schedule's order, and shares no slot.

#include "driver/schedules/training_graph.h"

#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "driver/plan/verify.h"
#include "driver/simulate/simulator.h"

namespace weft {
namespace {

absl::StatusOr<PipelinePlan> MakePlan(const std::string& name, int32_t p, int32_t m, const std::string& cost = "", int32_t chunks = 0) {
  PipelineRequest r;
  r.schedule = name;
  r.workers = p;
  r.microbatches = m;
  if (chunks > 0) r.chunks = chunks;
  if (!cost.empty()) r.costs = *ParseCosts(cost, false);
  return PlanPipeline(r);
}

TrainingModel Model(int layers) {
  TrainingModel model;
  for (int l = 0; l <= layers; ++l) model.widths.push_back(4 + l % 3);
  model.rows = 2;
  return model;
}

// Calls of each stage in the order of its worker: "F0", "W3", ...
std::map<std::string, std::vector<std::pair<std::string, v1::Config>>> CallsOf(const v1::Graph& graph) {
  std::map<std::string, std::vector<std::pair<std::string, v1::Config>>> calls;
  for (const v1::Node& n : graph.node()) {
    if (n.config().has_microbatch()) calls[n.actor()].push_back({n.method(), n.config()});
  }
  return calls;
}

}  // namespace

TEST_CASE("training graph: every schedule compiles, verifies, and runs to its end in the schedule's order") {
  for (const std::string& name : PipelineScheduleNames()) {
    if (name == "forward-only") continue;
    for (const auto& [p, m] : std::vector<std::pair<int32_t, int32_t>>{{1, 2}, {2, 4}, {4, 8}}) {
      for (const bool inputs : {true, false}) {
        const auto plan = MakePlan(name, p, m);
        REQUIRE(plan.ok());
        TrainingModel model = Model(11);
        model.inputs = inputs;
        model.weights = inputs;
        model.in_flight = inputs ? 1 : 3;
        INFO(name << " p " << p << " m " << m);
        const auto graph = TrainingGraph(*plan, model, "train");
        REQUIRE(graph.ok());
        const auto compiled = Compile(*graph, ClassTable::Std(), ClusterFromGraph(*graph));
        INFO(compiled.status().message());
        REQUIRE(compiled.ok());
        CHECK(Verify(*compiled).ok());
        SimOptions options;
        options.executions = 3;
        const auto result = Simulate(*compiled, CostModel::Default(), options);
        INFO(result.status().message());
        REQUIRE(result.ok());
        // On every worker calls begin in the order of the graph, which is the schedule's.
        std::map<int32_t, std::vector<std::string>> order, want;
        for (const PlanOp& op : compiled->ops) {
          if (op.kind == v1::COMPUTE) order[op.worker].push_back(compiled->nodes[op.node].name);
        }
        std::map<std::string, std::string> worker_of;
        for (const v1::Actor& a : graph->actor()) worker_of[a.name()] = a.worker();
        for (const v1::Node& n : graph->node()) want[std::stoi(worker_of[n.actor()].substr(1))].push_back(n.name());
        CHECK(order == want);
      }
    }
  }
}

TEST_CASE("training graph: hand-made schedules take the gradients of a stage by microbatch") {
  for (const std::string& name : PipelineScheduleNames()) {
    if (name == "forward-only" || name == "auto") continue;
    const auto plan = MakePlan(name, 4, 16, "F=10,I=12,W=7");
    REQUIRE(plan.ok());
    const auto graph = TrainingGraph(*plan, Model(8), "train");
    REQUIRE(graph.ok());
    for (const auto& [stage, calls] : CallsOf(*graph)) {
      int64_t next = 0;
      for (const auto& [method, config] : calls) {
        if (method == "weight_grad" || method == "backward") CHECK(config.microbatch() == next++);
      }
      CHECK(next == 16);
    }
  }
}

namespace {

// What a stage's slots hold, call by call: a microbatch keeps its slot until its gradients and those of all before it are there.
void CheckSlots(const PipelinePlan& plan, const v1::Graph& graph) {
  const auto calls = CallsOf(graph);
  for (const v1::Actor& a : graph.actor()) {
    if (a.class_() != "std.Mlp") continue;
    std::map<int64_t, int64_t> held, early;  // slot to microbatch; microbatch to slot
    int64_t next = 0;
    size_t most = 0;
    for (const auto& [method, config] : calls.at(a.name())) {
      if (method == "forward") {
        CHECK(held.count(config.slot()) == 0);
        held[config.slot()] = config.microbatch();
        most = std::max(most, held.size());
        continue;
      }
      REQUIRE(held.count(config.slot()) == 1);
      CHECK(held[config.slot()] == config.microbatch());
      if (method == "input_grad") continue;
      early[config.microbatch()] = config.slot();
      for (; early.count(next) == 1; ++next) held.erase(early[next]);
    }
    CHECK(held.empty());
    CHECK(static_cast<int64_t>(most) == a.config().slots());
    if (plan.chunks == 1 && plan.schedule.name != "auto")
      CHECK(static_cast<double>(most) == plan.peak_activations[std::stoi(a.worker().substr(1))]);
  }
}

}  // namespace

TEST_CASE("training graph: a slot is written only when its microbatch is done, and there are no more than live at once") {
  for (const std::string& name : PipelineScheduleNames()) {
    if (name == "forward-only") continue;
    for (const char* cost : {"F=1,I=1,W=1", "F=10,I=12,W=7,FB=0.8"}) {
      for (const int chunks : {0, 2}) {
        if (name != "auto" && chunks != 0) continue;
        const auto plan = MakePlan(name, 4, 8, cost, chunks);
        REQUIRE(plan.ok());
        const auto graph = TrainingGraph(*plan, Model(8), "train");
        REQUIRE(graph.ok());
        INFO(name << " " << cost << " chunks " << chunks);
        CheckSlots(*plan, *graph);
      }
    }
  }
}

TEST_CASE("training graph: a grid whose weight gradients come in another order") {
  PipelineRequest r;
  r.schedule = "csv";
  r.grid = "F0,F1,F2,I0,I1,W1,I2,W2,W0\n";
  r.workers = 1;
  r.microbatches = 3;
  const auto plan = PlanPipeline(r);
  REQUIRE(plan.ok());
  const auto graph = TrainingGraph(*plan, Model(1), "train");
  REQUIRE(graph.ok());
  CheckSlots(*plan, *graph);
}

TEST_CASE("training graph: bytes are parameters, gradients and slots of a worker's stages") {
  const auto plan = MakePlan("1f1b", 2, 4);
  TrainingModel model = Model(2);
  model.widths = {8, 4, 2};
  model.rows = 3;
  const auto graph = TrainingGraph(*plan, model, "train");
  REQUIRE(graph.ok());
  // w0: 8 x 4 + 4 parameters, two microbatches of 3 rows of 8 + 4; w1: 4 x 2 + 2, one of 3 x (4 + 2).
  CHECK(TrainingBytes(*graph, 2) == std::vector<uint64_t>{4 * (2 * 36 + 2 * 36), 4 * (2 * 10 + 18)});
}

TEST_CASE("training graph: what cannot be trained is said with what can") {
  const auto says = [](const std::string& name, TrainingModel model, const std::string& words) {
    const auto plan = MakePlan(name, 4, 8);
    REQUIRE(plan.ok());
    CHECK_THAT(std::string(TrainingGraph(*plan, model, "train").status().message()), Catch::Contains(words));
  };
  says("1f1b", Model(3), "the smallest number of layers that works is 4");
  says("zbv", Model(7), "the smallest number of layers that works is 8");
  says("forward-only", Model(8), "forward-only has no backwards");
  TrainingModel model = Model(8);
  model.widths[2] = 0;
  says("1f1b", model, "a layer has 0 features");
  model = Model(8);
  model.rows = 0;
  says("1f1b", model, "0 rows");
}

TEST_CASE("training graph: layers are spread evenly") {
  CHECK(FirstLayer(0, 4, 10) == 0);
  CHECK(FirstLayer(1, 4, 10) == 2);
  CHECK(FirstLayer(2, 4, 10) == 5);
  CHECK(FirstLayer(4, 4, 10) == 10);
}

}  // namespace weft
