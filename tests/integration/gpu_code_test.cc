// Device code that libraries load at the first call of a shape (cuBLAS): a call that loads waits until nothing of its process is on the device, where a
// receive may be waiting for a peer that waits for the caller. No graph may come to that.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

constexpr int kSenders = 3;

int64_t Rows() { return Real() ? 3072 : 160; }  // large enough to be received one at a time where workers share a GPU

std::vector<std::string> OneGpu() { return std::vector<std::string>(kSenders + 1, Gpu(0)); }
std::vector<std::string> OneHost() { return std::vector<std::string>(kSenders + 1, "h0"); }

// Three workers make F32[rows, rows] of the execution's number, a fourth multiplies each by itself.
v1::Graph Squares(const std::string& name, int64_t rows, v1::Launch launch) {
  v1::Graph g;
  g.set_name(name);
  const std::string receiver = absl::StrCat("w", kSenders);
  AddActor(&g, "gemm", "std.Gemm", receiver);
  AddActor(&g, "math", "std.Math", receiver);
  for (int i = 0; i < kSenders; ++i) {
    const std::string make = absl::StrCat("make", i), square = absl::StrCat("square", i), max = absl::StrCat("max", i);
    const v1::Actor* const source =
        AddSource(&g, absl::StrCat("source", i), absl::StrCat("w", i), absl::StrCat("[", rows, ", ", rows, "]"));
    AddNode(&g, make, source->name(), "make");
    std::string from = make;
    if (i == 0) {
      // The first value comes last: then those of the others have been announced, and are received behind it while it is multiplied.
      from = "late";
      v1::Actor* delay = AddActor(&g, "delay", "std.Delay", "w0");
      delay->mutable_config()->set_duration_s(0.03);
      AddNode(&g, from, "delay", "run", {make});
    }
    AddNode(&g, square, "gemm", "square", {from});
    AddNode(&g, max, "math", "reduce", {square})->mutable_config()->set_reduce("max");
    Carry(&g, from, square, v1::NCCL);
    Give(&g, max, max);
  }
  g.mutable_options()->set_max_in_flight(4);
  g.mutable_options()->set_launch(launch);
  return g;
}

void CheckSquares(const ExecutionResult& r, int64_t rows) {
  REQUIRE(r.ok());
  for (int i = 0; i < kSenders; ++i) {
    CHECK(ElementAsDouble(r.outputs.at(absl::StrCat("max", i)), 0) == static_cast<double>(rows * r.execution * r.execution));
  }
}

TEST_CASE("gpu daemons: the first products of their shapes, beside receives that wait for peers") {
  Daemons cluster(OneHost(), "h0", OneGpu());
  const auto client = cluster.Dial();
  int64_t rows = Rows();
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    for (int round = 0; round < (Real() ? 1 : 2); ++round, rows -= 16) {
      RunAll(client.get(), Squares(absl::StrCat("squares-", rows), rows, launch), 12, [&](const ExecutionResult& r) { CheckSquares(r, rows); });
    }
  }
}

TEST_CASE("gpu daemons: products come beside a graph that never rests") {
  Daemons cluster(OneHost(), "h0", OneGpu());
  const auto client = cluster.Dial();
  BusyGraph busy(&cluster, client.get());
  for (int round = 0; round < (Real() ? 2 : 4); ++round) {
    const int before = busy.done();
    const int64_t rows = Rows() - 16 * round;
    RunAll(client.get(), Squares(absl::StrCat("squares-", rows), rows, v1::STREAM), 8, [&](const ExecutionResult& r) { CheckSquares(r, rows); });
    CHECK(busy.GoesOn(before + 4));
  }
  CHECK(busy.End() == "");
}

TEST_CASE("gpu daemons: a graph whose worker does not come to rest is refused with that as the cause, and comes when it does") {
  Daemons cluster(OneHost(), "h0", OneGpu());
  const auto client = cluster.Dial();
  v1::Graph slow;
  slow.set_name("slow");
  v1::Actor* delay = AddActor(&slow, "delay", "std.Delay", absl::StrCat("w", kSenders));
  delay->mutable_config()->set_duration_s(4);
  AddNode(&slow, "late", "delay", "run");
  Give(&slow, "late", "late");
  Need(client->Compile(slow, {}).status());
  SessionOptions options;
  options.graph = "slow";
  auto session = client->OpenSession(options);
  Need(session.status());
  const auto handle = (*session)->Submit({});
  Need(handle.status());
  // What has been admitted and has not begun would not keep the worker from resting.
  const auto begun = [&] {
    const auto reply = client->Inspect("slow");
    Need(reply.status());
    for (const v1::WorkerView& view : reply->view()) {
      for (const v1::LaneView& lane : view.lane()) {
        if (lane.state() == "running") return true;
      }
    }
    return false;
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (!begun()) REQUIRE(std::chrono::steady_clock::now() < until);
  v1::Graph squares = Squares("squares", Rows(), v1::STREAM);
  squares.mutable_options()->set_bootstrap_timeout_s(2);
  const absl::Status refused = client->Compile(squares, {}).status();
  INFO(refused.ToString());
  CHECK(absl::IsDeadlineExceeded(refused));
  CHECK(refused.message().find("phase 1 (load): worker w3: no execution has been begun for ") != std::string::npos);
  CHECK(refused.message().find("device code that graph squares needs is loaded on GPU ") != std::string::npos);
  // Begun ahead of the refusal and after it, all of it comes to its end.
  const auto next = (*session)->Submit({});
  Need(next.status());
  Need((*session)->Wait(*handle, 60).status());
  Need((*session)->Wait(*next, 60).status());
  squares.mutable_options()->set_bootstrap_timeout_s(60);
  RunAll(client.get(), squares, 4, [&](const ExecutionResult& r) { CheckSquares(r, Rows()); });
}

// Two workers, each of which multiplies what comes from the other: as many rows as the client sends, which nobody knows before. Other shapes than `first`.
void RunRows(Client* client, int first) {
  const int64_t most = Rows(), columns = Real() ? 4096 : 128;
  v1::Graph g;
  g.set_name("rows");
  v1::Input* input = g.add_input();
  input->set_name("x");
  input->set_dtype(v1::F32);
  input->set_shape(absl::StrCat("[?<=", most, ", ?<=", columns + 8, "]"));  // as many columns as the weights have rows, which its bounds do not say
  for (int w = 0; w < 2; ++w) {
    const std::string worker = absl::StrCat("w", w);
    v1::Actor* source = AddActor(&g, absl::StrCat("weights", w), "std.Source", worker);
    source->mutable_config()->set_dtype(v1::F32);
    source->mutable_config()->set_shape(absl::StrCat("[", columns, ", ", columns, "]"));
    source->mutable_config()->set_fill("1");
    AddActor(&g, absl::StrCat("gemm", w), "std.Gemm", worker);
    AddActor(&g, absl::StrCat("math", w), "std.Math", worker);
    AddNode(&g, absl::StrCat("w", w), source->name(), "make");
    AddNode(&g, absl::StrCat("took", w), absl::StrCat("math", w), "identity")->add_arg()->set_input("x");
  }
  for (int w = 0; w < 2; ++w) {
    const std::string product = absl::StrCat("product", w), max = absl::StrCat("max", w), from = absl::StrCat("took", 1 - w);
    AddNode(&g, product, absl::StrCat("gemm", w), "matmul", {from, absl::StrCat("w", w)});
    AddNode(&g, max, absl::StrCat("math", w), "reduce", {product})->mutable_config()->set_reduce("max");
    Carry(&g, from, product, v1::NCCL);
    Give(&g, max, max);
  }
  g.mutable_options()->set_max_in_flight(4);
  RunAll(
      client, g, 24,
      [&](const ExecutionResult& r) {
        REQUIRE(r.ok());
        for (int w = 0; w < 2; ++w) CHECK(ElementAsDouble(r.outputs.at(absl::StrCat("max", w)), 0) == static_cast<double>(columns * (r.execution + 1)));
      },
      [&](int k) {
        Tensor x = *Tensor::OnHost(v1::F32, {most - 3 * (k % 12) - first, columns});
        std::fill_n(x.as<float>(), x.elements(), static_cast<float>(k + 1));
        return std::map<std::string, Tensor>{{"x", x}};
      });
}

TEST_CASE("gpu daemons: products of shapes that only an execution tells, on workers that wait for each other") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(0)});
  RunRows(cluster.Dial().get(), 0);
}

TEST_CASE("gpu daemons: products of shapes that only an execution tells, beside graphs of each kind of which another worker leads each") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(0)});
  const auto client = cluster.Dial();
  for (const v1::Launch launch : {v1::GRAPH, v1::STREAM}) {
    BusyGraph there(&cluster, client.get(), Both("there", 0, 1, launch)), back(&cluster, client.get(), Both("back", 1, 0, launch));
    for (int round = 0; round < 3; ++round) {
      const int one = there.done(), other = back.done();
      RunRows(client.get(), launch == v1::GRAPH ? round : 36 + round);
      CHECK(there.GoesOn(one + 4));
      CHECK(back.GoesOn(other + 4));
    }
    CHECK(there.End() == "");
    CHECK(back.End() == "");
  }
}

TEST_CASE("gpu daemons: products of shapes that only an execution tells, while two clients compile graphs on the same workers") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(0)});
  const auto client = cluster.Dial();
  std::atomic<bool> stop{false};
  // Each client compiles some graphs beside each round. While they do, a product of new shapes waits for moments without a bootstrap.
  constexpr int kRounds = 9, kGraphsARound = 3;
  std::atomic<int> allowed{0};
  const auto churn = [&](const std::string& name, int from) {
    return std::async(std::launch::async, [&, name, from] {
      const auto own = cluster.Dial();
      int graphs = 0;
      Client::CompileOptions options;
      options.timeout_s = 60;
      while (true) {
        if (graphs == allowed.load()) {
          if (stop.load()) return std::string();
          allowed.wait(graphs);
          continue;
        }
        absl::Status s = own->Compile(Both(name, from, 1 - from, graphs % 2 == 0 ? v1::STREAM : v1::GRAPH), options).status();
        if (s.ok()) s = own->Teardown(name);
        if (!s.ok()) return absl::StrCat(name, " after ", graphs, ": ", std::string(s.message()));
        ++graphs;
      }
    });
  };
  std::future<std::string> there = churn("there", 0), back = churn("back", 1);
  const auto allow = [&](int graphs) {
    allowed.store(graphs);
    allowed.notify_all();
  };
  const auto stop_all = [&](void*) {
    stop.store(true);
    allow(allowed.load() + 1);
  };
  std::unique_ptr<void, decltype(stop_all)> stops(&stop, stop_all);  // also when a check below throws: the clients' threads are waited for
  for (int round = 0; round < kRounds; ++round) {
    allow((round + 1) * kGraphsARound);
    RunRows(client.get(), round < 3 ? round : 33 + round);
  }
  stops.reset();
  CHECK(there.get() == "");
  CHECK(back.get() == "");
}

}  // namespace
}  // namespace weft
