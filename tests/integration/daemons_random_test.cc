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

constexpr int64_t kExecutions = 6;

Tensor MakeInput(const std::string&, int64_t execution) {
  Tensor t = *Tensor::OnHost(v1::F32, {12});
  for (int i = 0; i < 12; ++i) t.as<float>()[i] = static_cast<float>(execution * 100 + i) / 7;
  return t;
}

std::vector<InProcessResult> RunOnDaemons(Client* client, const v1::Graph& graph) {
  const auto compiled = client->Compile(graph, {});
  if (!compiled.ok()) FAIL(std::string(compiled.status().message()));
  auto session = client->OpenSession({graph.name()});
  if (!session.ok()) FAIL(std::string(session.status().message()));
  std::vector<ClientSession::Handle> handles;
  for (int64_t k = 0; k < kExecutions; ++k) {
    std::map<std::string, Tensor> inputs;
    for (const v1::Input& i : graph.input()) inputs[i.name()] = MakeInput(i.name(), k);
    const auto h = (*session)->Submit(inputs);
    if (!h.ok()) FAIL(std::string(h.status().message()));
    handles.push_back(*h);
  }
  std::vector<InProcessResult> results;
  for (const ClientSession::Handle h : handles) {
    const auto r = (*session)->Wait(h, 60);
    if (!r.ok()) {
      const auto view = client->Inspect(graph.name());
      FAIL(std::string(r.status().message()) << "\n" << (view.ok() ? view->DebugString() : ""));
    }
    InProcessResult out;
    for (const auto& [name, tensor] : r->outputs) out[name].tensor = tensor;
    for (const auto& [name, e] : r->errors) {
      out[name].error = TaskError{e.worker(), e.node(), e.execution(), static_cast<absl::StatusCode>(e.code()), e.message()}.ToString();
    }
    results.push_back(std::move(out));
  }
  CHECK((*session)->Close(30).ok());
  CHECK(client->Teardown(graph.name()).ok());
  return results;
}

void RunSeeds(const Daemons& daemons, uint64_t first, int count, const RandomGraphOptions& options) {
  const std::unique_ptr<Client> client = daemons.Dial();
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
      const std::string difference = Differ(*expected, RunOnDaemons(client.get(), graph));
      if (!difference.empty()) FAIL(difference);
    }
  }
}

TEST_CASE("daemons: 32 random graphs on one host give the bits of one process") {
  const Daemons daemons({"h0", "h0", "h0", "h0", "h0", "h0"});
  RunSeeds(daemons, 1001, 32, {});
}

TEST_CASE("daemons: 16 random graphs over three hosts give the bits of one process") {
  const Daemons daemons({"h0", "h0", "h1", "h1", "h2", "h2"});
  RandomGraphOptions options;
  options.emulated_links = false;  // links are laid over shared memory only
  RunSeeds(daemons, 2001, 16, options);
}

}  // namespace
}  // namespace weft
