// Random graphs over real processes give the bits that one process gives.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
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

// On GPUs NCCL makes the collectives' results: the sign of a zero that is the least or the greatest of both, and the order of additions, are its own.
// With overlap on and off they are the same bits.
std::string DifferOnGpu(const v1::Graph& graph, const std::vector<InProcessResult>& expected, const std::vector<InProcessResult>& got) {
  const bool rounds = std::any_of(graph.collective().begin(), graph.collective().end(), [](const v1::Collective& c) {
    return (c.reduce() == v1::SUM || c.reduce() == v1::PROD) && c.member_size() > 2;
  });
  const bool reduces = std::any_of(graph.collective().begin(), graph.collective().end(),
                                   [](const v1::Collective& c) { return c.op() == v1::ALL_REDUCE || c.op() == v1::REDUCE_SCATTER; });
  const std::string difference = Differ(expected, got);
  if (difference.empty() || !reduces) return difference;
  for (size_t k = 0; k < expected.size(); ++k) {
    for (const auto& [name, v] : expected[k]) {
      const auto it = got[k].find(name);
      if (it == got[k].end() || v.error != it->second.error) return difference;
      if (!v.error.empty()) continue;
      const Tensor& a = v.tensor;
      const Tensor& b = it->second.tensor;
      if (a.dtype() != b.dtype() || a.dims() != b.dims()) return difference;
      for (int64_t i = 0; i < a.elements(); ++i) {
        const double x = ElementAsDouble(a, i), y = ElementAsDouble(b, i);
        const double most = rounds ? 1e-3 * std::max(1.0, std::fabs(x)) : 0;
        if (x != y && !(std::isnan(x) && std::isnan(y)) && !(std::fabs(x - y) <= most)) return difference;
      }
    }
  }
  return "";
}

bool OnGpus() {
  const char* device = getenv("WEFT_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda";
}

// $WEFT_TEST_SEEDS, FIRST:LAST, runs only those of a case's seeds: one that failed, or a part where all take long.
Reached RunSeeds(const Daemons& daemons, uint64_t first, int count, const RandomGraphOptions& options) {
  bool few = false;
  if (const char* const seeds = getenv("WEFT_TEST_SEEDS"); seeds != nullptr) {
    const std::pair<std::string, std::string> range = absl::StrSplit(seeds, absl::MaxSplits(':', 1));
    uint64_t from = 0, to = 0;
    REQUIRE((absl::SimpleAtoi(range.first, &from) && absl::SimpleAtoi(range.second, &to)));
    const uint64_t last = std::min(first + count - 1, to);
    few = from > first || last < first + count - 1;
    first = std::max(first, from);
    count = last < first ? 0 : static_cast<int>(last - first) + 1;
  }
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
    std::vector<InProcessResult> before;
    for (const v1::Overlap overlap : {v1::OFF, v1::ON}) {
      graph.mutable_options()->set_overlap(overlap);
      const std::vector<InProcessResult> got = RunOnDaemons(client.get(), graph, &reached);
      std::string difference = OnGpus() ? DifferOnGpu(graph, *expected, got) : Differ(*expected, got);
      if (!difference.empty()) FAIL(difference);
      if (overlap == v1::ON) difference = Differ(before, got);
      if (!difference.empty()) FAIL("overlap on against off: " << difference);
      before = got;
    }
  }
  if (few) return reached;
  // Between GPUs, played ones too, there are better ways.
  const char* const device = getenv("WEFT_TEST_DEVICE");
  if (device == nullptr || std::string(device) == "cpu") CHECK(reached.shm > 0);
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
  const Reached reached = RunSeeds(daemons, 2001, 16, options);
  if (getenv("WEFT_TEST_SEEDS") == nullptr) CHECK(reached.remote > 0);
}

TEST_CASE("daemons: 16 random graphs with the driver on a host of its own give the bits of one process") {
  const Daemons daemons({"h0", "h1", "h0", "h1", "h0", "h1"}, "h9");
  RandomGraphOptions options;
  options.emulated_links = false;
  const Reached reached = RunSeeds(daemons, 3001, 16, options);
  if (getenv("WEFT_TEST_SEEDS") == nullptr) CHECK(reached.remote > 0);
}

TEST_CASE("daemons: no process of all that is left") { CHECK(Daemons::Leftovers().empty()); }

}  // namespace
}  // namespace weft
