#include "tests/integration/gpu_graphs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <deque>

#include "absl/strings/str_cat.h"

namespace weft {

std::string Gpu(int i) {
  const char* device = getenv("WEFT_TEST_DEVICE");
  if (device == nullptr || std::string(device).rfind("cuda", 0) != 0) return "fake-cuda";
  const char* gpus = getenv("WEFT_TEST_GPUS");
  return absl::StrCat("cuda:", i % (gpus == nullptr ? 1 : std::max(1, atoi(gpus))));
}
bool Real() { return Gpu(0) != "fake-cuda"; }

void RunAll(Client* client, const v1::Graph& g, int executions, const std::function<void(const ExecutionResult&)>& check,
            const std::function<std::map<std::string, Tensor>(int)>& inputs) {
  Client::CompileOptions compile;
  compile.trace = false;
  compile.timeout_s = 60;
  Need(client->Compile(g, compile).status());
  RunReady(client, g.name(), executions, check, inputs);
}

void RunReady(Client* client, const std::string& graph, int executions, const std::function<void(const ExecutionResult&)>& check,
              const std::function<std::map<std::string, Tensor>(int)>& inputs) {
  {
    SessionOptions options;
    options.graph = graph;
    options.deadline_s = 60;
    auto session = client->OpenSession(options);
    Need(session.status());
    std::deque<ClientSession::Handle> flying;
    for (int submitted = 0; submitted < executions || !flying.empty();) {
      if (submitted < executions && static_cast<int>(flying.size()) < (*session)->max_in_flight()) {
        auto h = (*session)->Submit(inputs ? inputs(submitted) : std::map<std::string, Tensor>());
        Need(h.status());
        flying.push_back(*h);
        ++submitted;
        continue;
      }
      auto r = (*session)->Wait(flying.front(), 60);
      Need(r.status());
      flying.pop_front();
      check(*r);
    }
  }
  Need(client->Teardown(graph));
}

v1::Graph Stream(const std::string& name, v1::Transport transport, int64_t bytes, int in_flight) {
  v1::Graph g;
  g.set_name(name);
  AddSource(&g, "source", "w0", absl::StrCat("[", bytes / 4, "]"));
  AddActor(&g, "sink", "std.Math", "w1");
  AddNode(&g, "make", "source", "make");
  for (const char* how : {"min", "max"}) {
    AddNode(&g, how, "sink", "reduce", {"make"})->mutable_config()->set_reduce(how);
    Carry(&g, "make", how, transport);
    Give(&g, how, how);
  }
  g.mutable_options()->set_max_in_flight(in_flight);
  return g;
}

void CheckStream(const ExecutionResult& r) {
  REQUIRE(r.ok());
  CHECK(ElementAsDouble(r.outputs.at("min"), 0) == static_cast<double>(r.execution));
  CHECK(ElementAsDouble(r.outputs.at("max"), 0) == static_cast<double>(r.execution));
}

v1::Graph Exchange(const std::string& name, int workers, int64_t rows, v1::Launch launch) {
  v1::Graph g;
  g.set_name(name);
  for (int w = 0; w < workers; ++w) {
    const std::string worker = absl::StrCat("w", w);
    const v1::Actor* const source = AddSource(&g, absl::StrCat("source", w), worker, absl::StrCat("[", rows, ", ", rows, "]"));
    AddActor(&g, absl::StrCat("gemm", w), "std.Gemm", worker);
    AddActor(&g, absl::StrCat("math", w), "std.Math", worker);
    AddNode(&g, absl::StrCat("make", w), source->name(), "make");
  }
  for (int w = 0; w < workers; ++w) {
    const std::string square = absl::StrCat("square", w), max = absl::StrCat("max", w), from = absl::StrCat("make", (w + 1) % workers);
    AddNode(&g, square, absl::StrCat("gemm", w), "square", {from});
    AddNode(&g, max, absl::StrCat("math", w), "reduce", {square})->mutable_config()->set_reduce("max");
    if (workers > 1) Carry(&g, from, square, v1::NCCL);
    Give(&g, max, max);
  }
  g.mutable_options()->set_max_in_flight(4);
  g.mutable_options()->set_launch(launch);
  return g;
}

void CheckExchange(const ExecutionResult& r, int64_t rows) {
  REQUIRE(r.ok());
  for (const auto& [name, value] : r.outputs) CHECK(ElementAsDouble(value, 0) == static_cast<double>(rows * r.execution * r.execution));
}

v1::Graph Both(const std::string& name, int from, int to, v1::Launch launch) {
  v1::Graph g = Stream(name, v1::NCCL, 1 << 20, 4);
  AddSource(&g, "back", "w1", "[65536]");
  AddActor(&g, "end", "std.Math", "w0");
  AddNode(&g, "return", "back", "make");
  AddNode(&g, "greatest", "end", "reduce", {"return"})->mutable_config()->set_reduce("max");
  Carry(&g, "return", "greatest", v1::IPC);
  Give(&g, "greatest", "greatest");
  for (v1::Actor& a : *g.mutable_actor()) a.set_worker(absl::StrCat("w", a.worker() == "w0" ? from : to));
  g.mutable_options()->set_launch(launch);
  return g;
}

v1::Graph Sum(const std::string& name, int workers, v1::Launch launch) {
  v1::Graph g;
  g.set_name(name);
  v1::Collective* sum = g.add_collective();
  sum->set_name("sum");
  sum->set_op(v1::ALL_REDUCE);
  sum->set_reduce(v1::SUM);
  for (int w = 0; w < workers; ++w) {
    const std::string worker = absl::StrCat("w", w), make = absl::StrCat("make", w), top = absl::StrCat("top", w);
    AddNode(&g, make, AddSource(&g, absl::StrCat("source", w), worker, "[65536]")->name(), "make");
    AddActor(&g, absl::StrCat("math", w), "std.Math", worker);
    sum->add_member()->set_node(make);
    v1::Node* const n = AddNode(&g, top, absl::StrCat("math", w), "reduce");
    n->mutable_config()->set_reduce("max");
    n->add_arg()->set_collective("sum");
    Give(&g, top, top);
  }
  g.mutable_options()->set_max_in_flight(4);
  g.mutable_options()->set_launch(launch);
  return g;
}

BusyGraph::BusyGraph(Daemons* cluster, Client* client, const v1::Graph& graph, double factor) : client_(client), name_(graph.name()), factor_(factor) {
  Client::CompileOptions compile;
  compile.timeout_s = 60;
  Need(client->Compile(graph, compile).status());
  thread_ = std::thread([this, cluster] {
    Run(cluster);
    failed_.store(!problem_.empty());
  });
}

BusyGraph::~BusyGraph() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

bool BusyGraph::GoesOn(int done) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (done_.load() < done && !failed_.load() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return done_.load() >= done;
}

std::string BusyGraph::End() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  if (problem_.empty()) Need(client_->Teardown(name_));
  return problem_;
}

void BusyGraph::Run(Daemons* cluster) {
  const auto own = cluster->Dial();
  SessionOptions options;
  options.graph = name_;
  auto session = own->OpenSession(options);
  if (!session.ok()) {
    problem_ = std::string(session.status().message());
    return;
  }
  std::deque<ClientSession::Handle> flying;
  while (problem_.empty() && (!stop_.load() || !flying.empty())) {
    if (!stop_.load() && static_cast<int>(flying.size()) < (*session)->max_in_flight()) {
      auto h = (*session)->Submit({});
      if (h.ok()) flying.push_back(*h);
      if (!h.ok()) problem_ = std::string(h.status().message());
      continue;
    }
    const auto r = (*session)->Wait(flying.front(), 60);
    flying.pop_front();
    if (!r.ok()) {
      problem_ = std::string(r.status().message());
    } else if (!r->ok() || std::any_of(r->outputs.begin(), r->outputs.end(), [&](const auto& o) {
                 return ElementAsDouble(o.second, 0) != factor_ * static_cast<double>(r->execution);
               })) {
      problem_ = absl::StrCat("execution ", r->execution, " is wrong");
    }
    ++done_;
  }
}

}  // namespace weft
