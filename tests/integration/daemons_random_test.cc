// Random graphs over real processes give the bits that one process gives.

#include <catch2/catch.hpp>

#include "common/channel/header.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "tests/integration/daemons.h"
#include "tests/integration/in_process.h"
#include "tests/integration/random_graph.h"

namespace weft {
namespace {

// More than the graphs' max_in_flight, so that all 8 are under way at once and places are used again.
constexpr int64_t kExecutions = 12;

Tensor MakeInput(const std::string&, int64_t execution) {
  Tensor t = *Tensor::OnHost(v1::F32, {12});
  for (int i = 0; i < 12; ++i) t.as<float>()[i] = static_cast<float>(execution * 100 + i) / 7;
  return t;
}

// What the graphs of a run had in them: a run that never reached what it is about would pass all the same.
struct Reached {
  int gloo = 0, shm = 0, remote = 0, collectives = 0, errors = 0, inputs = 0;
};

void Count(const v1::Graph& graph, const v1::Plan& plan, const std::vector<InProcessResult>& results, Reached* reached) {
  for (const v1::PlanEdge& e : plan.edge()) {
    reached->gloo += e.transport() == v1::GLOO;
    reached->shm += e.transport() == v1::SHM;
    reached->remote += e.transport() == v1::REMOTE;
  }
  reached->collectives += graph.collective_size();
  reached->inputs += graph.input_size();
  for (const InProcessResult& r : results) {
    for (const auto& [name, v] : r) reached->errors += !v.error.empty();
  }
}

std::vector<InProcessResult> RunOnDaemons(Client* client, const v1::Graph& graph, Reached* reached) {
  const auto compiled = client->Compile(graph, {});
  if (!compiled.ok()) FAIL(std::string(compiled.status().message()));
  SessionOptions options;
  options.graph = graph.name();
  options.submit = v1::QUEUE;
  auto session = client->OpenSession(options);
  if (!session.ok()) FAIL(std::string(session.status().message()));
  CHECK((*session)->max_in_flight() == 8);
  std::vector<ClientSession::Handle> handles;
  for (int64_t k = 0; k < kExecutions; ++k) {
    std::map<std::string, Tensor> inputs;
    for (const v1::Input& i : graph.input()) inputs[i.name()] = MakeInput(i.name(), k);
    const auto h = (*session)->Submit(inputs);
    if (!h.ok()) FAIL(std::string(h.status().message()));
    handles.push_back(*h);
  }
  std::vector<InProcessResult> results;
  for (int64_t k = 0; k < kExecutions; ++k) {
    const auto r = (*session)->Wait(handles[k], 60);
    if (!r.ok()) {
      const auto view = client->Inspect(graph.name());
      FAIL(std::string(r.status().message()) << "\n" << (view.ok() ? view->DebugString() : ""));
    }
    CHECK(r->execution == k);
    InProcessResult out;
    for (const auto& [name, tensor] : r->outputs) out[name].tensor = tensor;
    for (const auto& [name, e] : r->errors) {
      out[name].error = TaskError{e.worker(), e.node(), e.execution(), static_cast<absl::StatusCode>(e.code()), e.message()}.ToString();
    }
    results.push_back(std::move(out));
  }
  const auto plan = client->GetPlan(graph.name());
  if (!plan.ok()) FAIL(std::string(plan.status().message()));
  Count(graph, *plan, results, reached);
  CHECK((*session)->Close(30).ok());
  CHECK(client->Teardown(graph.name()).ok());
  return results;
}

Reached RunSeeds(const Daemons& daemons, uint64_t first, int count, const RandomGraphOptions& options) {
  const std::unique_ptr<Client> client = daemons.Dial();
  Reached reached;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    v1::Graph graph = RandomGraph(seed, options);
    INFO("seed " << seed << "\n" << graph.DebugString());
    graph.mutable_options()->set_overlap(v1::OFF);
    const auto plan = Compile(graph, ClassTable::Std(), ClusterFromGraph(graph));
    REQUIRE(plan.ok());
    const auto expected = RunInProcess(*plan, {seed, kExecutions, 1, false}, MakeInput);
    REQUIRE(expected.ok());
    for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
      graph.mutable_options()->set_overlap(overlap);
      const std::string difference = Differ(*expected, RunOnDaemons(client.get(), graph, &reached));
      if (!difference.empty()) FAIL(difference);
    }
  }
  CHECK(reached.shm > 0);
  CHECK(reached.gloo > 0);
  CHECK(reached.collectives > 0);
  CHECK(reached.errors > 0);
  CHECK(reached.inputs > 0);
  return reached;
}

TEST_CASE("daemons: 32 random graphs on one host give the bits of one process") {
  const Daemons daemons({"h0", "h0", "h0", "h0", "h0", "h0"});
  RunSeeds(daemons, 1001, 32, {});
}

TEST_CASE("daemons: 16 random graphs over three hosts give the bits of one process") {
  const Daemons daemons({"h0", "h0", "h1", "h1", "h2", "h2"});
  RandomGraphOptions options;
  options.emulated_links = false;  // links are laid over shared memory only
  CHECK(RunSeeds(daemons, 2001, 16, options).remote > 0);
}

TEST_CASE("daemons: 16 random graphs with the driver on a host of its own give the bits of one process") {
  const Daemons daemons({"h0", "h1", "h0", "h1", "h0", "h1"}, "h9");
  RandomGraphOptions options;
  options.emulated_links = false;
  CHECK(RunSeeds(daemons, 3001, 16, options).remote > 0);
}

TEST_CASE("daemons: no process of all that is left") { CHECK(Daemons::Leftovers().empty()); }

}  // namespace
}  // namespace weft
