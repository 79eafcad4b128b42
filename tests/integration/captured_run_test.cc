// options.launch GRAPH gives what STREAM gives: whole iterations captured on fakes that really replay them.

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/classes/signature.h"
#include "driver/plan/compiler.h"
#include "tests/integration/gpu_cluster.h"
#include "tests/integration/random_graph.h"

namespace weft {
namespace {

// Letters of workers w0, w1, ...: 'g' has a GPU, 'c' has none. All are on one host; values between GPUs go by IPC, or with a 'n' in front
// by NCCL.
Plan CompileText(const std::string& text, const std::string& devices, v1::Launch launch) {
  v1::Graph graph;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &graph));
  graph.set_name("g");
  graph.mutable_options()->set_launch(launch);
  if (graph.options().max_in_flight() == 0) graph.mutable_options()->set_max_in_flight(8);
  Cluster cluster;
  cluster.client_host_id = "h0";
  cluster.ipc_crossover_bytes = devices[0] == 'n' ? 1 << 20 : 0;
  for (const char d : devices) {
    if (d != 'n') cluster.workers.push_back({absl::StrCat("w", cluster.workers.size()), "h0", d == 'g' ? "cuda" : "cpu"});
  }
  auto plan = Compile(graph, ClassTable::Std(), cluster);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

Value Made(const std::string& name, int64_t k) {
  Value v;
  v.tensor = *Tensor::OnHost(v1::F32, {6});
  for (int i = 0; i < 6; ++i) v.tensor.as<float>()[i] = static_cast<float>(k * 10 + i + static_cast<int64_t>(name.size()));
  return v;
}

using Input = std::function<Value(const std::string&, int64_t)>;

std::vector<InProcessResult> RunAll(const Plan& plan, int64_t executions, int in_flight, const Input& input = Made,
                                    const GpuCluster::Options& options = {}) {
  GpuCluster cluster(plan, options);
  const absl::Status started = cluster.Start();
  INFO(started.ToString());
  REQUIRE(started.ok());
  auto results = cluster.Run(executions, in_flight, input);
  INFO(results.status().ToString());
  REQUIRE(results.ok());
  return *std::move(results);
}

// With both launches, alone and many in flight; STREAM's results.
std::vector<InProcessResult> SameResults(const std::string& text, const std::string& devices, const Input& input = Made,
                                         int64_t executions = 20) {
  const std::vector<InProcessResult> stream = RunAll(CompileText(text, devices, v1::STREAM), executions, 8, input);
  for (const int in_flight : {1, 8}) {
    CAPTURE(devices, in_flight);
    const std::vector<InProcessResult> graph = RunAll(CompileText(text, devices, v1::GRAPH), executions, in_flight, input);
    const std::string difference = Differ(stream, graph);
    if (!difference.empty()) FAIL(difference);
  }
  return stream;
}

constexpr char kChain[] = R"(
  actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
  actor { name: "m" class: "std.Math" worker: "w0" config { scale: 3 } }
  input { name: "x" dtype: F32 shape: "[6]" }
  node { name: "number" actor: "s" method: "make" }
  node { name: "sum" actor: "m" method: "add" arg { input: "x" } arg { node: "number" } }
  node { name: "three" actor: "m" method: "scale" arg { node: "sum" } }
  node { name: "peek" actor: "m" method: "peek" arg { node: "three" } }
  output { name: "y" node: "three" }
  output { name: "first" node: "peek" }
  output { name: "dims" node: "peek" output: 1 }
)";

TEST_CASE("captured: a chain on one GPU, with inputs, outputs and the execution's number") {
  const auto results = SameResults(kChain, "g");
  for (int64_t k = 0; k < 20; ++k) {
    CHECK(results[k].at("y").tensor.as<float>()[2] == 3.0f * static_cast<float>(k * 10 + 3 + k));
    CHECK(results[k].at("first").tensor.as<float>()[0] == 3.0f * static_cast<float>(k * 10 + 1 + k));
    CHECK(results[k].at("dims").tensor.as<int64_t>()[0] == 6);
  }
}

// One worker's value goes to two, and theirs to a fourth.
constexpr char kDiamond[] = R"(
  actor { name: "a" class: "std.Math" worker: "w0" config { scale: 2 } }
  actor { name: "b" class: "std.Math" worker: "w1" config { scale: 5 parts: 2 axis: 0 } }
  actor { name: "c" class: "std.Math" worker: "w2" config { scale: 7 parts: 2 axis: 0 } }
  actor { name: "d" class: "std.Math" worker: "w3" }
  input { name: "x" dtype: F32 shape: "[6]" }
  node { name: "p" actor: "a" method: "scale" arg { input: "x" } }
  node { name: "q" actor: "b" method: "scale" arg { node: "p" } }
  node { name: "halves" actor: "b" method: "split" arg { node: "q" } }
  node { name: "r" actor: "c" method: "add" arg { node: "p" } arg { node: "p" } }
  node { name: "others" actor: "c" method: "split" arg { node: "r" } }
  node { name: "z" actor: "d" method: "add" arg { node: "halves" output: 1 } arg { node: "others" } after: "q" }
  node { name: "whole" actor: "d" method: "concat" arg { node: "z" } arg { node: "halves" } after: "r" }
  output { name: "y" node: "whole" }
  output { name: "early" node: "p" }
)";

TEST_CASE("captured: fan-out and fan-in over GPUs and CPUs, every way round") {
  for (const char* devices : {"gggg", "gccg", "cggc", "gcgg", "cgcg", "gggc", "cccg", "ngggg", "ngcgg", "ncggg"}) {
    SameResults(kDiamond, devices);
  }
}

TEST_CASE("captured: values both ways between two GPUs within one iteration") {
  const char* text = R"(
    actor { name: "a" class: "std.Math" worker: "w0" config { scale: 2 } }
    actor { name: "b" class: "std.Math" worker: "w1" config { scale: 3 } }
    input { name: "x" dtype: F32 shape: "[6]" }
    input { name: "long" dtype: F32 shape: "[6]" }
    node { name: "a0" actor: "a" method: "scale" arg { input: "x" } }
    node { name: "b0" actor: "b" method: "scale" arg { input: "long" } }
    node { name: "a1" actor: "a" method: "add" arg { node: "a0" } arg { node: "b0" } }
    node { name: "b1" actor: "b" method: "add" arg { node: "b0" } arg { node: "a0" } arg { node: "a1" } }
    node { name: "a2" actor: "a" method: "add" arg { node: "b1" } arg { node: "a0" } }
    node { name: "b2" actor: "b" method: "add" arg { node: "a2" } arg { node: "b0" } }
    output { name: "y" node: "b2" }
    output { name: "z" node: "a2" }
  )";
  SameResults(text, "gg");
  // Only one buffer each: the producers wait for the consumers on the device.
  const std::string narrow = absl::StrCat(text, "options { prefetch_depth: 0 max_in_flight: 1 }");
  const Plan plan = CompileText(narrow, "gg", v1::GRAPH);
  CHECK(plan.edges[0].slots == 1);
  SameResults(narrow, "gg");
  SameResults(absl::StrCat(text, "options { overlap: OFF }"), "gg");
  for (const char* options : {"", "options { prefetch_depth: 0 max_in_flight: 1 }", "options { overlap: OFF }"}) {
    SameResults(absl::StrCat(text, options), "ngg");
  }
  // Both kinds between one pair of workers.
  SameResults(absl::StrCat(text, "edge { from: 'a0' to: 'b1' transport: IPC } edge { from: 'b1' to: 'a2' transport: IPC }"), "ngg");
}

TEST_CASE("captured: sources alone, at any distance of the workers, with slots used again more than a hundred times") {
  const char* text = R"(
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: I64 shape: "[3]" fill: "execution" } }
    actor { name: "b" class: "std.Math" worker: "w1" config { scale: 10 } }
    actor { name: "c" class: "std.Math" worker: "w2" }
    node { name: "number" actor: "s" method: "make" }
    node { name: "ten" actor: "b" method: "scale" arg { node: "number" } }
    node { name: "sum" actor: "c" method: "add" arg { node: "ten" } arg { node: "number" } }
    output { name: "y" node: "sum" }
    options { max_in_flight: 2 }
  )";
  for (const char* devices : {"ggg", "nggg"}) {
    const auto results = RunAll(CompileText(text, devices, v1::GRAPH), 400, 2);
    for (int64_t k = 0; k < 400; ++k) {
      REQUIRE(results[k].at("y").error == "");
      REQUIRE(results[k].at("y").tensor.as<int64_t>()[1] == 11 * k);
    }
  }
}

TEST_CASE("captured: released buffers are overwritten when asked, and readers still see what they should") {
  SameResults(absl::StrCat(kDiamond, "options { poison_released: true }"), "ggcg");
}

// --- errors

Value Bad(int64_t k, const std::string& node, const std::string& worker, const std::string& message) {
  Value v;
  v.error = std::make_shared<TaskError>(TaskError{worker, node, k, absl::StatusCode::kAborted, message});
  return v;
}

TEST_CASE("captured: an error that only the device knows reaches exactly the outputs that depend on it; the graph stays usable") {
  const char* text = R"(
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
    actor { name: "f" class: "std.Fail" worker: "w0" config { fail_on: 3 fail_on: 4 message: "no luck" on_device: true } }
    actor { name: "a" class: "std.Math" worker: "w0" config { parts: 2 axis: 0 } }
    actor { name: "b" class: "std.Math" worker: "w1" }
    actor { name: "c" class: "std.Math" worker: "w2" }
    node { name: "make" actor: "s" method: "make" }
    node { name: "boom" actor: "f" method: "run" arg { node: "make" } }
    node { name: "good" actor: "a" method: "add" arg { node: "make" } arg { node: "make" } }
    node { name: "split" actor: "a" method: "split" arg { node: "boom" } }
    node { name: "far" actor: "b" method: "concat" arg { node: "split" output: 1 } arg { node: "split" } }
    node { name: "mixed" actor: "b" method: "add" arg { node: "good" } arg { node: "far" } }
    node { name: "well" actor: "b" method: "add" arg { node: "good" } after: "boom" }
    node { name: "host" actor: "c" method: "add" arg { node: "mixed" } }
    output { name: "bad0" node: "split" output: 1 }
    output { name: "bad1" node: "mixed" }
    output { name: "bad2" node: "host" }
    output { name: "good0" node: "good" }
    output { name: "good1" node: "well" }
  )";
  const auto results = SameResults(text, "ggc");
  SameResults(text, "nggc");
  for (int64_t k = 0; k < 20; ++k) {
    for (const auto& [name, v] : results[k]) {
      CAPTURE(k, name);
      const bool bad = (k == 3 || k == 4) && name[0] == 'b';
      CHECK(v.error == (bad ? absl::StrCat("node boom on w0, execution ", k, ": no luck") : ""));
    }
  }
}

TEST_CASE("captured: std.Fail fails on the device without being told to, always or on some executions") {
  const char* text = R"(
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
    actor { name: "f" class: "std.Fail" worker: "w0" }
    node { name: "make" actor: "s" method: "make" }
    node { name: "always" actor: "f" method: "run" arg { node: "make" } }
    node { name: "odd" actor: "f" method: "run" arg { node: "make" } config { fail_on: 5 fail_on: 7 } }
    output { name: "a" node: "always" }
    output { name: "o" node: "odd" }
  )";
  const auto results = SameResults(text, "g");
  for (int64_t k = 0; k < 20; ++k) {
    CHECK(results[k].at("a").error == absl::StrCat("node always on w0, execution ", k, ": std.Fail fails as it was told to"));
    CHECK(results[k].at("o").error.empty() == (k != 5 && k != 7));
  }
}

TEST_CASE("captured: std.Check finds what is not finite, of the client and of the other GPU") {
  const char* text = R"(
    actor { name: "a" class: "std.Math" worker: "w0" config { scale: 2 } }
    actor { name: "ca" class: "std.Check" worker: "w0" }
    actor { name: "cb" class: "std.Check" worker: "w1" }
    input { name: "x" dtype: F32 shape: "[6]" }
    node { name: "ok" actor: "ca" method: "finite" arg { input: "x" } }
    node { name: "two" actor: "a" method: "scale" arg { input: "x" } }
    node { name: "far" actor: "cb" method: "finite" arg { node: "two" } }
    output { name: "near" node: "ok" }
    output { name: "away" node: "far" }
    output { name: "raw" node: "two" }
  )";
  const auto results = SameResults(text, "gg", [](const std::string& name, int64_t k) {
    Value v = Made(name, k);
    if (k % 5 == 2) v.tensor.as<float>()[4] = std::numeric_limits<float>::infinity();
    return v;
  });
  for (int64_t k = 0; k < 20; ++k) {
    CHECK(results[k].at("near").error.empty() == (k % 5 != 2));
    CHECK(results[k].at("away").error.empty() == (k % 5 != 2));
    CHECK(results[k].at("raw").error.empty());
  }
  CHECK(results[2].at("away").error.find("node far on w1, execution 2: an element is NaN") == 0);
}

TEST_CASE("captured: an error of a CPU worker comes through a GPU with its text, and through two with its origin") {
  const char* text = R"(
    actor { name: "f" class: "std.Fail" worker: "w0" config { fail_on: 2 fail_on: 9 message: "the disk is full" } }
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
    actor { name: "a" class: "std.Math" worker: "w1" }
    actor { name: "b" class: "std.Math" worker: "w2" }
    node { name: "make" actor: "s" method: "make" }
    node { name: "boom" actor: "f" method: "run" arg { node: "make" } }
    node { name: "p" actor: "a" method: "add" arg { node: "boom" } arg { node: "make" } }
    node { name: "fine" actor: "a" method: "add" arg { node: "make" } }
    node { name: "q" actor: "b" method: "add" arg { node: "p" } }
    output { name: "one" node: "p" }
    output { name: "two" node: "q" }
    output { name: "other" node: "fine" }
  )";
  const auto results = SameResults(text, "cgg");
  CHECK(results[9].at("two").error == "node boom on w0, execution 9: the disk is full");
  CHECK(results[9].at("other").error.empty());
}

TEST_CASE("captured: an input that is an error poisons what depends on it") {
  const char* text = R"(
    actor { name: "a" class: "std.Math" worker: "w0" }
    actor { name: "b" class: "std.Math" worker: "w1" }
    input { name: "x" dtype: F32 shape: "[6]" }
    input { name: "other" dtype: F32 shape: "[6]" }
    node { name: "p" actor: "a" method: "add" arg { input: "x" } arg { input: "other" } }
    node { name: "q" actor: "a" method: "add" arg { input: "other" } }
    node { name: "r" actor: "b" method: "add" arg { node: "p" } }
    output { name: "near" node: "p" }
    output { name: "well" node: "q" }
    output { name: "far" node: "r" }
  )";
  const Input input = [](const std::string& name, int64_t k) {
    return name == "x" && k % 4 == 1 ? Bad(k, "x", "client", "taken back") : Made(name, k);
  };
  const auto stream = RunAll(CompileText(text, "gg", v1::STREAM), 12, 8, input);
  const auto graph = RunAll(CompileText(text, "gg", v1::GRAPH), 12, 8, input);
  for (int64_t k = 0; k < 12; ++k) {
    CAPTURE(k);
    CHECK(graph[k].at("well").error.empty());
    CHECK(BitEqual(graph[k].at("well").tensor, stream[k].at("well").tensor));
    CHECK(graph[k].at("near").error == stream[k].at("near").error);
    CHECK(graph[k].at("far").error.empty() == (k % 4 != 1));
  }
  // The worker that took it knows its text; another only that it was no node's.
  CHECK(graph[5].at("near").error == "node x on client, execution 5: taken back");
  CHECK(graph[5].at("far").error.find("execution 5: a value came to a GPU as an error") != std::string::npos);
}

// --- collectives

constexpr char kCollectives[] = R"(
  actor { name: "s0" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
  actor { name: "a0" class: "std.Math" worker: "w0" config { scale: 2 } }
  actor { name: "a1" class: "std.Math" worker: "w1" config { scale: 3 } }
  actor { name: "a2" class: "std.Math" worker: "w2" config { scale: 5 } }
  actor { name: "f1" class: "std.Fail" worker: "w1" config { fail_on: 4 on_device: true message: "a bad gradient" } }
  input { name: "x" dtype: F32 shape: "[6]" }
  node { name: "number" actor: "s0" method: "make" }
  node { name: "g0" actor: "a0" method: "scale" arg { node: "number" } }
  node { name: "in1" actor: "a1" method: "scale" arg { input: "x" } }
  node { name: "g1" actor: "f1" method: "run" arg { node: "in1" } }
  node { name: "g2" actor: "a2" method: "scale" arg { input: "x" } }
  node { name: "use0" actor: "a0" method: "scale" arg { collective: "sum" } }
  node { name: "use1" actor: "a1" method: "add" arg { collective: "sum" } arg { collective: "from0" } }
  node { name: "use2" actor: "a2" method: "scale" arg { collective: "all" } }
  collective { name: "sum" op: ALL_REDUCE reduce: SUM member { node: "g0" } member { node: "g1" } member { node: "g2" } }
  collective { name: "all" op: ALL_GATHER member { node: "g0" } member { node: "g2" } }
  collective { name: "part" op: REDUCE_SCATTER reduce: MAX member { node: "g0" } member { node: "in1" } member { node: "g2" } }
  collective { name: "from0" op: BROADCAST root: "g0" member { node: "g0" } member { node: "in1" } }
  output { name: "y0" node: "use0" }
  output { name: "y1" node: "use1" }
  output { name: "y2" node: "use2" }
  output { name: "p" collective: "part" member: "in1" }
  output { name: "well" node: "in1" }
)";

TEST_CASE("captured: collectives of every kind give STREAM's bits, and an error of one rank's device is everyone's") {
  const auto results = SameResults(kCollectives, "ggg");
  for (int64_t k = 0; k < 20; ++k) {
    CAPTURE(k);
    CHECK(results[k].at("y0").error == (k == 4 ? "node g1 on w1, execution 4: a bad gradient" : ""));
    CHECK(results[k].at("y1").error == results[k].at("y0").error);
    CHECK(results[k].at("y2").error.empty());
    CHECK(results[k].at("p").error.empty());
    CHECK(results[k].at("well").error.empty());
  }
  // x[i] is 10 k + i + 1 and the sum 2 k + 8 x[i].
  CHECK(results[3].at("y0").tensor.as<float>()[1] == 2.0f * (2 * 3 + 8 * 32));
}

TEST_CASE("captured: NCCL that takes its time with every launch, while a graph is captured too") {
  const Plan plan = CompileText(kCollectives, "ggg", v1::GRAPH), chain = CompileText(kDiamond, "ngggg", v1::GRAPH);
  for (const Plan* p : {&plan, &chain}) {
    const auto expected = RunAll(*p, 6, 3);
    GpuCluster::Options options;
    options.fakes.nccl.launch_polls = 3;
    options.fakes.nccl.connect_polls = 10;
    GpuCluster cluster(*p, options);
    const absl::Status started = cluster.Start();
    INFO(started.ToString());
    REQUIRE(started.ok());
    const auto results = cluster.Run(6, 3, Made);
    INFO(results.status().ToString());
    REQUIRE(results.ok());
    CHECK(Differ(expected, *results) == "");
  }
}

// --- any graph

TEST_CASE("captured: random graphs over GPUs, some workers without one, give STREAM's bits, and errors in the same places") {
  constexpr int kGraphs = 60;
  int ran = 0, refused = 0, with_collectives = 0, with_errors = 0, with_cpus = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    RandomGraphOptions o;
    o.max_workers = 4;
    o.gloo_edges = o.emulated_links = false;
    o.collectives = seed % 3 != 0;
    v1::Graph graph = RandomGraph(seed, o);
    graph.set_name("g");
    graph.mutable_options()->set_max_in_flight(4);
    Cluster cluster = ClusterFromGraph(graph);
    cluster.ipc_crossover_bytes = seed % 2 == 0 ? 0 : 40;  // all by ipc; small ones by NCCL
    for (size_t w = 0; w < cluster.workers.size(); ++w) cluster.workers[w].device = !o.collectives && (seed + w) % 4 == 0 ? "cpu" : "cuda";
    INFO("seed " << seed << "\n" << graph.DebugString());
    const Input input = [](const std::string&, int64_t k) {
      Value v;
      v.tensor = *Tensor::OnHost(v1::F32, {12});
      for (int i = 0; i < 12; ++i) v.tensor.as<float>()[i] = static_cast<float>(k * 100 + i) / 7;
      return v;
    };
    const auto stream = Compile(graph, ClassTable::Std(), cluster);
    if (!stream.ok()) FAIL(std::string(stream.status().message()));
    graph.mutable_options()->set_launch(v1::GRAPH);
    const auto captured = Compile(graph, ClassTable::Std(), cluster);
    if (!captured.ok()) {
      // Only a CPU worker can be in a circle.
      CHECK_FALSE(o.collectives);
      CHECK(std::string(captured.status().message()).find("in this circle") != std::string::npos);
      ++refused;
      continue;
    }
    ++ran;
    with_collectives += !captured->groups.empty();
    with_cpus += !o.collectives;
    GpuCluster::Options slow;  // as the real NCCL, which launches late
    slow.fakes.nccl.launch_polls = seed % 5 < 2 ? 2 : 0;
    const auto a = RunAll(*stream, 7, 4, input, slow), b = RunAll(*captured, 7, 4, input, slow);
    for (int64_t k = 0; k < 7; ++k) {
      for (const auto& [name, v] : a[k]) {
        INFO("execution " << k << ", " << name << ": " << v.error << " / " << b[k].at(name).error);
        // Where several meet, another may be told.
        REQUIRE(v.error.empty() == b[k].at(name).error.empty());
        if (v.error.empty()) REQUIRE(BitEqual(v.tensor, b[k].at(name).tensor));
        with_errors += !v.error.empty();
      }
    }
  }
  // The generator must reach what the test is about.
  CHECK(ran > kGraphs / 2);
  CHECK(with_collectives > kGraphs / 10);
  CHECK(with_errors > kGraphs / 10);
  CHECK(with_cpus > kGraphs / 20);
  CHECK(refused > 0);
}

// --- ends

TEST_CASE("captured: a peer that goes ends an iteration that waits for it on the device, with the first cause, and nothing false is sent") {
  const char* text = R"(
    actor { name: "d" class: "std.Delay" worker: "w0" config { duration_s: 600 dtype: F32 shape: "[6]" } }
    actor { name: "b" class: "std.Math" worker: "w1" }
    node { name: "slow" actor: "d" method: "run" }
    node { name: "far" actor: "b" method: "add" arg { node: "slow" } }
    output { name: "y" node: "far" }
  )";
  const Plan plan = CompileText(text, "gg", v1::GRAPH);
  GpuCluster cluster(plan);
  REQUIRE(cluster.Start().ok());
  cluster.Admit(3);
  const auto launched = [&](int w) { return cluster.run(w)->MustPoll(); };
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (!(launched(0) && launched(1)) && Clock::Real()->Now() < limit) cluster.StepWorkers();
  REQUIRE(launched(1));
  const v1::WorkerView view = cluster.run(1)->Inspect();
  REQUIRE(view.lane_size() == 1);
  CHECK(view.lane(0).state() == "running");
  CHECK(view.lane(0).execution() == 0);
  CHECK(view.lane(0).waits_for().find("edge slow:0 -> far:0 (w0 -> w1)") != std::string::npos);
  CHECK_FALSE(cluster.run(1)->Quiescent());

  cluster.CloseLinks(0, absl::UnavailableError("w0 has died"));
  while (cluster.run(1)->failure().ok() && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(std::string(cluster.run(1)->failure().message()).find("w0 has died") != std::string::npos);
  while (!cluster.run(1)->Quiescent() && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(cluster.run(1)->Quiescent());
  CHECK(cluster.run(1)->completed() == 0);
  // The producer's own iteration is no wait for anyone: its device goes on, and is broken here to end the test.
  cluster.cuda(0)->BreakDevice(kCudaLaunchTimeout);
}

TEST_CASE("captured: a peer that goes ends an iteration that waits for it in NCCL, in a transfer and in a collective") {
  const char* transfer = R"(
    actor { name: "d" class: "std.Delay" worker: "w0" config { duration_s: 600 dtype: F32 shape: "[6]" } }
    actor { name: "b" class: "std.Math" worker: "w1" }
    node { name: "slow" actor: "d" method: "run" }
    node { name: "far" actor: "b" method: "add" arg { node: "slow" } }
    output { name: "y" node: "far" }
  )";
  const char* collective = R"(
    actor { name: "d" class: "std.Delay" worker: "w0" config { duration_s: 600 dtype: F32 shape: "[6]" } }
    actor { name: "b" class: "std.Source" worker: "w1" config { dtype: F32 shape: "[6]" } }
    node { name: "slow" actor: "d" method: "run" }
    node { name: "quick" actor: "b" method: "make" }
    collective { name: "sum" op: ALL_REDUCE reduce: SUM member { node: "slow" } member { node: "quick" } }
    output { name: "y" collective: "sum" member: "quick" }
  )";
  for (const char* text : {transfer, collective}) {
    CAPTURE(text);
    const Plan plan = CompileText(text, "ngg", v1::GRAPH);
    GpuCluster cluster(plan);
    REQUIRE(cluster.Start().ok());
    cluster.Admit(3);
    const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
    while (!(cluster.run(0)->MustPoll() && cluster.run(1)->MustPoll()) && Clock::Real()->Now() < limit) cluster.StepWorkers();
    REQUIRE(cluster.run(1)->MustPoll());
    CHECK_FALSE(cluster.run(1)->Quiescent());
    cluster.CloseLinks(0, absl::UnavailableError("w0 has died"));
    while (cluster.run(1)->failure().ok() && Clock::Real()->Now() < limit) cluster.StepWorkers();
    CHECK(std::string(cluster.run(1)->failure().message()).find("w0 has died") != std::string::npos);
    while (!cluster.run(1)->Quiescent() && Clock::Real()->Now() < limit) cluster.StepWorkers();
    CHECK(cluster.run(1)->Quiescent());
    CHECK(cluster.run(1)->completed() == 0);
    cluster.cuda(0)->BreakDevice(kCudaLaunchTimeout);
  }
}

TEST_CASE("captured: a consumer that goes ends a producer that waits for its buffer") {
  const char* text = R"(
    actor { name: "s" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[6]" fill: "execution" } }
    actor { name: "d" class: "std.Delay" worker: "w1" config { duration_s: 600 } }
    actor { name: "a" class: "std.Math" worker: "w1" }
    node { name: "make" actor: "s" method: "make" }
    node { name: "slow" actor: "d" method: "run" arg { node: "make" } }
    node { name: "use" actor: "a" method: "add" arg { node: "slow" } }
    output { name: "y" node: "use" }
    options { prefetch_depth: 1 max_in_flight: 2 }
  )";
  const Plan plan = CompileText(text, "gg", v1::GRAPH);
  GpuCluster cluster(plan);
  REQUIRE(cluster.Start().ok());
  cluster.Admit(20);
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  // Two values are copied or copied soon; the producer can be two executions beyond those, not more.
  while (cluster.run(0)->completed() < 2 && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(cluster.run(0)->completed() >= 2);
  for (int i = 0; i < 2000; ++i) cluster.StepWorkers();
  CHECK(cluster.run(0)->completed() <= 3);
  CHECK(cluster.run(0)->MustPoll());
  CHECK_FALSE(cluster.run(0)->Quiescent());
  cluster.CloseLinks(1, absl::UnavailableError("w1 has died"));
  while (cluster.run(0)->failure().ok() && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(std::string(cluster.run(0)->failure().message()).find("w1 has died") != std::string::npos);
  while (!cluster.run(0)->Quiescent() && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(cluster.run(0)->Quiescent());
  cluster.cuda(1)->BreakDevice(kCudaLaunchTimeout);
}

TEST_CASE("captured: launched op by op, transfers over NCCL are captured one by one, and replayed also when the order of the plan has changed") {
  v1::Graph graph;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "g"
    actor { name: "a" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[600]" fill: "execution" } }
    actor { name: "b" class: "std.Fail" worker: "w0" config { dtype: F32 shape: "[600]" fail_on: 12 fail_on: 33 message: "no" on_device: true } }
    actor { name: "far" class: "std.Math" worker: "w1" config { scale: 3 } }
    actor { name: "other" class: "std.Math" worker: "w2" config { scale: 3 } }
    node { name: "first" actor: "a" method: "make" }
    node { name: "second" actor: "b" method: "run" }
    node { name: "x" actor: "far" method: "scale" arg { node: "first" } }
    node { name: "y" actor: "other" method: "scale" arg { node: "second" } }
    output { name: "x" node: "x" }
    output { name: "y" node: "y" }
    options { order: COST max_in_flight: 1 }
  )", &graph));
  Cluster cluster;
  cluster.client_host_id = "h0";
  for (const char* name : {"w0", "w1", "w2"}) cluster.workers.push_back({name, "h0", "cuda"});
  const auto plan_where = [&](const std::string& long_one, const Plan* running) {
    CostModel costs;
    costs.compute = [long_one](const Plan&, const PlanNode& n) { return Nanos{n.name == long_one ? 10'000'000 : 1'000'000}; };
    auto plan = Compile(graph, ClassTable::Std(), cluster, nullptr, costs, running);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok());
    return *std::move(plan);
  };
  const Plan one = plan_where("x", nullptr), other = plan_where("y", &one);
  const auto ops = [](const Plan& plan) {
    std::string text;
    for (const PlanOp& op : PartOf(plan, 0).ops) absl::StrAppend(&text, OpName(plan, op), "; ");
    return text;
  };
  REQUIRE(ops(one) != ops(other));
  GpuCluster changes(one);
  REQUIRE(changes.Start().ok());
  std::vector<InProcessResult> results;
  for (int part = 0; part < 4; ++part) {
    const int64_t before = changes.cuda(0)->calls("GraphLaunch"), received = changes.cuda(1)->calls("GraphLaunch");
    auto some = changes.Run(11, 1, Made);
    INFO(some.status().ToString());
    REQUIRE(some.ok());
    for (InProcessResult& r : *some) results.push_back(std::move(r));
    CHECK(changes.cuda(0)->calls("GraphLaunch") == before + 22);
    CHECK(changes.cuda(1)->calls("GraphLaunch") == received + 11);
    const absl::Status changed = changes.Replan(part % 2 == 0 ? other : one);
    INFO(changed.ToString());
    REQUIRE(changed.ok());
  }
  const std::string difference = Differ(RunAll(one, 44, 1), results);
  if (!difference.empty()) FAIL(difference);
  CHECK(results[12].at("y").error.find("no") != std::string::npos);
  CHECK(results[33].at("y").error.find("no") != std::string::npos);
}

TEST_CASE("captured: graphs, streams and memory are given back") {
  const Plan plan = CompileText(kChain, "g", v1::GRAPH);
  GpuCluster cluster(plan);
  REQUIRE(cluster.Start().ok());
  CHECK(cluster.cuda(0)->books().graph_execs == 8);
  CHECK(cluster.cuda(0)->books().graphs == 0);
  REQUIRE(cluster.Run(3, 2, Made).ok());
  const int64_t launches = cluster.cuda(0)->calls("GraphLaunch");
  CHECK(launches == 3);
  cluster.run(0)->Fail(absl::CancelledError("enough"));
  CHECK(cluster.run(0)->Quiescent());
  CHECK(cluster.cuda(0)->books().graph_execs == 0);
}

TEST_CASE("captured: what it waits for has a name, and each iteration is in the trace") {
  const Plan plan = CompileText(kChain, "g", v1::GRAPH);
  GpuCluster::Options options;
  options.trace_capacity = 100;
  GpuCluster cluster(plan, options);
  REQUIRE(cluster.Start().ok());
  const auto text = [&] { return cluster.run(0)->Inspect().lane(0).waits_for(); };
  CHECK(text() == "execution 0 to be admitted");
  cluster.Admit(0);
  cluster.StepWorkers();
  CHECK(text().find("READ x -> sum:0: client to write execution 0") != std::string::npos);
  REQUIRE(cluster.SendInputs(0, Made).ok());
  const Nanos limit = Clock::Real()->Now() + 20 * kNanosPerSecond;
  while (cluster.run(0)->completed() < 1 && Clock::Real()->Now() < limit) cluster.StepWorkers();
  CHECK(cluster.run(0)->progress() == static_cast<int64_t>(plan.ops.size()));
  const std::vector<TraceRecord> trace = cluster.run(0)->trace().Since(0);
  REQUIRE(trace.size() == 1);
  CHECK(trace[0].op == TraceRecord::kIteration);
  CHECK(trace[0].execution == 0);
  CHECK(trace[0].end >= trace[0].start);
  // The client takes nothing: 8 results have room, then it says who is to take one.
  cluster.Admit(8);
  for (int64_t k = 1; k < 9; ++k) {
    while (cluster.run(0)->completed() < k && Clock::Real()->Now() < limit) cluster.StepWorkers();
    REQUIRE(cluster.SendInputs(k, Made).ok());
  }
  while (cluster.run(0)->completed() < 8 && Clock::Real()->Now() < limit) cluster.StepWorkers();
  for (int i = 0; i < 10; ++i) cluster.StepWorkers();
  CHECK(cluster.run(0)->completed() == 8);
  CHECK(text().find("WRITE three:0 -> y: client to release execution 0 (8 of 8 slots taken)") != std::string::npos);
}

TEST_CASE("captured: a call that cannot be captured fails the load, by the node's name") {
  std::string many;
  for (int i = 0; i < 65; ++i) absl::StrAppend(&many, " fail_on: ", i);
  const std::string text = absl::StrCat(R"(
    actor { name: "f" class: "std.Fail" worker: "w0" config { dtype: F32 shape: "[6]" )", many, R"( } }
    node { name: "boom" actor: "f" method: "run" }
    output { name: "y" node: "boom" }
  )");
  const Plan plan = CompileText(text, "g", v1::GRAPH);
  GpuCluster cluster(plan);
  const absl::Status started = cluster.Start();
  CHECK(std::string(started.message()).find("COMPUTE boom on w0: it cannot be captured") != std::string::npos);
  CHECK(std::string(started.message()).find("launch STREAM") != std::string::npos);
}

TEST_CASE("captured: what CUDA refuses while it captures, or later, is told by name and leaves nothing behind") {
  const Plan plan = CompileText(kChain, "g", v1::GRAPH);
  for (const char* method : {"BeginCapture", "EndCapture", "GraphInstantiate", "GraphUpload", "MemcpyAsync", "HostAlloc", "EventRecord"}) {
    for (const int nth : {1, 3}) {
      CAPTURE(method, nth);
      GpuCluster::Options options;
      options.before_load = [&](GpuCluster* c) { c->cuda(0)->FailCall(method, nth, kCudaInvalidValue); };
      GpuCluster cluster(plan, options);
      const absl::Status started = cluster.Start();
      CHECK_FALSE(started.ok());
      CHECK(started.message().find("w0") + started.message().find("-> y") != 2 * std::string::npos);
      CHECK(cluster.cuda(0)->books().graphs == 0);
      CHECK(cluster.cuda(0)->books().graph_execs == 0);
    }
  }
  GpuCluster cluster(plan);
  REQUIRE(cluster.Start().ok());
  cluster.cuda(0)->FailCall("GraphLaunch", 3, kCudaOutOfMemory);
  const absl::Status failed = cluster.Run(5, 1, Made).status();
  CHECK(std::string(failed.message()).find("launching execution 2 of graph g on w0") != std::string::npos);
}

TEST_CASE("captured: a device that breaks within an iteration ends the graph, and no result of that iteration is sent") {
  const Plan plan = CompileText(kChain, "g", v1::GRAPH);
  GpuCluster cluster(plan);
  REQUIRE(cluster.Start().ok());
  REQUIRE(cluster.Run(2, 1, Made).ok());
  cluster.cuda(0)->FailCall("EventQuery", 1, kCudaIllegalAddress);
  const absl::Status failed = cluster.Run(2, 1, Made).status();
  CHECK(std::string(failed.message()).find("has failed for good") != std::string::npos);
  CHECK(cluster.run(0)->completed() == 2);
}

}  // namespace
}  // namespace weft
