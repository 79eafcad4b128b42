#include "tests/bench/gpu/bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/device/cuda/environment.h"
#include "common/device/cuda/fake/fake_kernels.h"
#include "common/device/cuda/fake/fake_plugin.h"
#include "common/device/cuda/library.h"

namespace weft::bench {

std::string GpuDevice() {
  const char* const d = getenv("WEFT_BENCH_DEVICE");
  return d == nullptr ? "cuda" : d;
}

std::string GpuOf(int i) {
  if (GpuDevice() != "cuda") return GpuDevice();
  const char* const gpus = getenv("WEFT_TEST_GPUS");
  return absl::StrCat("cuda:", i % (gpus == nullptr ? 1 : std::max(1, atoi(gpus))));
}

v1::Graph FanOut(const std::string& name, v1::Transport transport, uint64_t bytes, int edges, int in_flight, bool fresh) {
  v1::Graph g;
  g.set_name(name);
  v1::Actor* source = g.add_actor();
  source->set_name("source");
  source->set_class_(fresh ? "std.Source" : "std.Constant");
  source->set_worker("w0");
  source->mutable_config()->set_dtype(v1::F32);
  source->mutable_config()->set_shape(absl::StrCat("[", bytes / 4, "]"));
  source->mutable_config()->set_fill(fresh ? "execution" : "3");
  v1::Actor* sink = g.add_actor();
  sink->set_name("sink");
  sink->set_class_("std.Math");
  sink->set_worker("w1");
  v1::Node* make = g.add_node();
  make->set_name("make");
  make->set_actor("source");
  make->set_method("make");
  for (int i = 0; i < edges; ++i) {
    v1::Node* peek = g.add_node();
    peek->set_name(absl::StrCat("peek", i));
    peek->set_actor("sink");
    peek->set_method("peek");
    peek->add_arg()->set_node("make");
    v1::Edge* e = g.add_edge();
    e->set_from("make");
    e->set_to(peek->name());
    e->set_transport(transport);
  }
  v1::Output* out = g.add_output();
  out->set_name("first");
  out->set_node(absl::StrCat("peek", edges - 1));
  g.mutable_options()->set_max_in_flight(in_flight);
  g.mutable_options()->set_prefetch_depth(1);
  return g;
}

void CheckFanOut(const Steady& s, bool fresh) {
  for (const ExecutionResult& r : s.results) {
    const double want = fresh ? static_cast<double>(r.execution) : 3, got = ElementAsDouble(r.outputs.at("first"), 0);
    if (got != want) throw std::runtime_error(absl::StrCat("execution ", r.execution, ": ", got, " came, not ", want));
  }
}

Steady Run(Client* client, const v1::Graph& graph, int warm, int executions, bool discard_outputs) {
  const auto check = [&](const absl::Status& s) {
    if (!s.ok()) throw std::runtime_error(absl::StrCat(graph.name(), ": ", std::string(s.message())));
  };
  Client::CompileOptions compile;
  compile.trace = false;
  check(client->Compile(graph, compile).status());
  Steady out = RunCompiled(client, graph.name(), warm, executions, discard_outputs);
  check(client->Teardown(graph.name()));
  return out;
}

Steady RunCompiled(Client* client, const std::string& graph, int warm, int executions, bool discard_outputs) {
  const auto check = [&](const absl::Status& s) {
    if (!s.ok()) throw std::runtime_error(absl::StrCat(graph, ": ", std::string(s.message())));
  };
  SessionOptions options;
  options.graph = graph;
  options.deadline_s = 120;
  options.discard_outputs = discard_outputs;
  auto session = client->OpenSession(options);
  check(session.status());
  const int depth = (*session)->max_in_flight();
  std::deque<ClientSession::Handle> flying;
  Steady out;
  int64_t first = 0, begin = 0, end = 0;
  std::vector<double> between;
  int submitted = 0, taken = 0;
  const int total = warm + executions;
  while (taken < total) {
    while (submitted < total && static_cast<int>(flying.size()) < depth) {
      auto h = (*session)->Submit({});
      check(h.status());
      flying.push_back(*h);
      ++submitted;
    }
    auto r = (*session)->Wait(flying.front(), 120);
    check(r.status());
    flying.pop_front();
    if (!r->ok()) throw std::runtime_error(absl::StrCat(graph, ": execution ", r->execution, " failed: ", r->errors.begin()->second.message()));
    ++taken;
    if (taken == 1) first = r->admitted_ns;
    if (taken == warm) begin = r->done_ns;
    if (taken == executions) out.first_s = static_cast<double>(r->done_ns - first) * 1e-9;
    if (taken > std::max(warm, 1)) between.push_back(static_cast<double>(r->done_ns - end) * 1e-9);
    end = r->done_ns;
    if (taken > warm) out.results.push_back(*std::move(r));
  }
  if (warm == 0) begin = first;
  out.period_s = static_cast<double>(end - begin) * 1e-9 / executions;
  out.typical_s = Median(between);
  check((*session)->Close(60));
  session->reset();
  return out;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void Row(const std::string& what, const std::string& result, const std::string& mark, int ok) {
  // A cell is one line: errors may have several.
  std::string cell = result;
  std::replace(cell.begin(), cell.end(), '\n', ' ');
  std::replace(cell.begin(), cell.end(), '|', '/');
  std::printf("RESULT %s | %s | %s | %s\n", what.c_str(), cell.c_str(), mark.c_str(), ok < 0 ? "-" : ok > 0 ? "ok" : "no");
  std::fflush(stdout);
}

std::string Ms(double seconds) { return absl::StrFormat("%.3f ms", seconds * 1e3); }
std::string Ratio(double r) { return absl::StrFormat("%.3f", r); }

const CudaPlugin& Plugin() {
  static const CudaPlugin* const plugin = []() -> const CudaPlugin* {
    if (GpuDevice() != "cuda") {
      auto* const fakes = new FakePlugin;
      return new CudaPlugin(fakes->plugin(new FakeKernels(&fakes->cuda)));
    }
    auto loaded = LoadCudaPlugin("");
    if (!loaded.ok()) throw std::runtime_error(std::string(loaded.status().message()));
    return *loaded;
  }();
  return *plugin;
}

CudaDevice* BareDevice() {
  static CudaDevice* const device = [] {
    SetCudaEnvironment({});
    auto made = CudaDevice::Create(Plugin(), Clock::Real(), 0);
    if (!made.ok()) throw std::runtime_error(std::string(made.status().message()));
    return made->release();
  }();
  return device;
}

}  // namespace weft::bench
