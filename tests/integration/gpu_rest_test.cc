// Workers that begin no executions for a while, so that device code can be loaded (docs/cuda.md): none waits for another that does likewise, and whatever
// ends meanwhile leaves nobody waiting.

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

int64_t Rows() { return Real() ? 3072 : 160; }

std::vector<std::string> OneGpu(int workers) { return std::vector<std::string>(workers, Gpu(0) + " --nccl-max-ctas 4"); }
std::vector<std::string> OneHost(int workers) { return std::vector<std::string>(workers, "h0"); }

// On a connection and a thread of its own.
std::future<absl::Status> CompileBeside(Daemons* cluster, const v1::Graph& g) {
  return std::async(std::launch::async, [cluster, g] {
    Client::CompileOptions options;
    options.timeout_s = 60;
    options.trace = false;
    return cluster->Dial()->Compile(g, options).status();
  });
}

// Whether inspect says of that worker that it begins no executions.
bool IsPaused(Client* client, const std::string& worker) {
  const auto reply = client->Inspect("");
  Need(reply.status());
  for (const v1::WorkerView& v : reply->view()) {
    if (v.worker() == worker && absl::StrContains(v.problem(), "no execution has been begun for")) return true;
  }
  return false;
}

// In each of two graphs another worker is ahead, so that what one has begun needs what the other has yet to begin.
TEST_CASE("gpu rests: products on two workers come beside graphs that never rest, of which another worker leads each") {
  Daemons cluster(OneHost(2), "h0", OneGpu(2));
  const auto client = cluster.Dial();
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    const std::string how = v1::Launch_Name(launch);
    BusyGraph there(&cluster, client.get(), Both("there-" + how, 0, 1, launch));
    BusyGraph back(&cluster, client.get(), Both("back-" + how, 1, 0, launch));
    for (int round = 0; round < 6; ++round) {
      const int one = there.done(), other = back.done();
      const int64_t rows = Rows() - 16 * round - (launch == v1::GRAPH ? 4 : 0);
      RunAll(client.get(), Exchange(absl::StrCat("exchange-", rows), 2, rows, launch), 8, [&](const ExecutionResult& r) { CheckExchange(r, rows); });
      CHECK(there.GoesOn(one + 4));
      CHECK(back.GoesOn(other + 4));
    }
    CHECK(there.End() == "");
    CHECK(back.End() == "");
  }
}

TEST_CASE("gpu rests: graphs that two clients compile at the same moment, on three workers with values that go round and sums of all") {
  const int workers = 3;
  Daemons cluster(OneHost(workers), "h0", OneGpu(workers));
  const auto client = cluster.Dial();
  std::vector<std::unique_ptr<BusyGraph>> busy;
  for (int w = 0; w < workers; ++w) {
    busy.push_back(std::make_unique<BusyGraph>(&cluster, client.get(), Both(absl::StrCat("busy", w), w, (w + 1) % workers, w == 2 ? v1::GRAPH : v1::STREAM)));
  }
  busy.push_back(std::make_unique<BusyGraph>(&cluster, client.get(), Sum("sum-STREAM", workers), workers));
  busy.push_back(std::make_unique<BusyGraph>(&cluster, client.get(), Sum("sum-GRAPH", workers, v1::GRAPH), workers));
  for (int round = 0; round < 4; ++round) {
    std::vector<int> before;
    for (const auto& b : busy) before.push_back(b->done());
    const int64_t rows = Rows() - 16 * round, other = rows - 8;
    std::future<absl::Status> first = CompileBeside(&cluster, Exchange("first", workers, rows, v1::STREAM));
    std::future<absl::Status> second = CompileBeside(&cluster, Exchange("second", workers, other, v1::GRAPH));
    const absl::Status one = first.get(), two = second.get();
    Need(one);
    Need(two);
    RunReady(client.get(), "first", 4, [&](const ExecutionResult& r) { CheckExchange(r, rows); });
    RunReady(client.get(), "second", 4, [&](const ExecutionResult& r) { CheckExchange(r, other); });
    for (size_t i = 0; i < busy.size(); ++i) CHECK(busy[i]->GoesOn(before[i] + 4));
  }
  for (const auto& b : busy) CHECK(b->End() == "");
}

TEST_CASE("gpu rests: a graph is removed while it waits for a rest that does not come, and what it held up goes on") {
  Daemons cluster(OneHost(2), "h0", OneGpu(2));
  const auto client = cluster.Dial();
  BusyGraph busy(&cluster, client.get());
  CHECK(busy.GoesOn(8));
  cluster.SignalWorker(1, SIGSTOP);  // what w0 has begun does not end
  std::future<absl::Status> compiled = CompileBeside(&cluster, Exchange("products", 1, Rows(), v1::STREAM));
  CHECK(Within(20, [&] { return IsPaused(client.get(), "w0"); }));
  std::string waits;
  const auto reply = client->Inspect("products");
  Need(reply.status());
  for (const v1::WorkerView& v : reply->view()) waits += v.problem();
  CHECK(absl::StrContains(waits, "bootstrap: it loads device code, for which the graphs of this worker must rest"));
  CHECK(client->Teardown("products").ok());
  CHECK_FALSE(compiled.get().ok());
  CHECK(Within(20, [&] { return !IsPaused(client.get(), "w0"); }));
  cluster.SignalWorker(1, SIGCONT);
  CHECK(busy.GoesOn(busy.done() + 8));
  RunAll(client.get(), Exchange("again", 1, Rows(), v1::STREAM), 4, [&](const ExecutionResult& r) { CheckExchange(r, Rows()); });
  CHECK(busy.End() == "");
}

TEST_CASE("gpu rests: kill -9 of a worker for which others wait: they come to rest, though what has failed is still there") {
  for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
    Daemons cluster(OneHost(3), "h0", OneGpu(3));
    const auto client = cluster.Dial();
    BusyGraph there(&cluster, client.get(), Both("there", 0, 2, launch)), back(&cluster, client.get(), Both("back", 2, 1, launch));
    BusyGraph sum(&cluster, client.get(), Sum("sum", 3, launch), 3);
    CHECK(there.GoesOn(8));
    CHECK(back.GoesOn(8));
    CHECK(sum.GoesOn(8));
    cluster.SignalWorker(2, SIGSTOP);
    std::future<absl::Status> compiled = CompileBeside(&cluster, Exchange("products", 2, Rows(), launch));
    CHECK(Within(20, [&] { return IsPaused(client.get(), "w0") && IsPaused(client.get(), "w1"); }));
    cluster.KillWorker(2);
    Need(compiled.get());
    RunReady(client.get(), "products", 4, [&](const ExecutionResult& r) { CheckExchange(r, Rows()); });
    CHECK_FALSE(IsPaused(client.get(), "w0"));
    CHECK_FALSE(IsPaused(client.get(), "w1"));
    // And so do later ones.
    const int64_t rows = Rows() - 16;
    RunAll(client.get(), Exchange("later", 2, rows, launch), 4, [&](const ExecutionResult& r) { CheckExchange(r, rows); });
    CHECK(absl::StrContains(there.End(), "w2"));
    CHECK(absl::StrContains(back.End(), "w2"));
    CHECK(absl::StrContains(sum.End(), "w2"));
  }
}

TEST_CASE("gpu rests: kill -9 of a worker of the graph that waits, and of the driver: the others pause no more") {
  Daemons cluster(OneHost(3), "h0", OneGpu(3));
  {
    const auto client = cluster.Dial();
    BusyGraph busy(&cluster, client.get(), Both("busy", 0, 1));
    CHECK(busy.GoesOn(8));
    cluster.SignalWorker(1, SIGSTOP);
    std::future<absl::Status> compiled = CompileBeside(&cluster, Exchange("products", 3, Rows(), v1::STREAM));
    CHECK(Within(20, [&] { return IsPaused(client.get(), "w0"); }));
    cluster.KillWorker(2);
    const absl::Status s = compiled.get();
    CHECK(absl::StrContains(s.message(), "worker w2"));
    CHECK(Within(20, [&] { return !IsPaused(client.get(), "w0"); }));
    cluster.SignalWorker(1, SIGCONT);
    CHECK(busy.GoesOn(busy.done() + 8));
    cluster.SignalWorker(1, SIGSTOP);
    compiled = CompileBeside(&cluster, Exchange("others", 1, Rows(), v1::STREAM));
    CHECK(Within(20, [&] { return IsPaused(client.get(), "w0"); }));
    cluster.KillDriver();
    CHECK_FALSE(compiled.get().ok());
    CHECK_FALSE(busy.End().empty());
    cluster.SignalWorker(1, SIGCONT);
  }
  cluster.StartDriver();
  cluster.StartWorker(2);
  cluster.AwaitWorkers();
  const auto client = cluster.Dial();
  CHECK_FALSE(IsPaused(client.get(), "w0"));
  const int64_t rows = Rows() - 16;
  RunAll(client.get(), Exchange("again", 3, rows, v1::STREAM), 4, [&](const ExecutionResult& r) { CheckExchange(r, rows); });
}

TEST_CASE("gpu rests: graphs that are given other orders while their workers rest for another") {
  Daemons cluster(OneHost(2), "h0", OneGpu(2));
  const auto client = cluster.Dial();
  v1::Graph changes = Both("there", 0, 1);
  changes.mutable_options()->set_order(v1::COST);
  BusyGraph there(&cluster, client.get(), changes), back(&cluster, client.get(), Both("back", 1, 0));
  int64_t rows = Rows();
  for (int round = 0; round < 6; ++round) {
    CHECK(there.GoesOn(there.done() + 12));  // in the plan that runs now, for its costs
    std::future<absl::Status> replanned = std::async(std::launch::async, [&] {
      Client::ReplanOptions options;
      options.executions = 10;
      return cluster.Dial()->Replan("there", options).status();
    });
    do {
      RunAll(client.get(), Exchange(absl::StrCat("exchange-", rows), 2, rows, v1::STREAM), 4, [&](const ExecutionResult& r) { CheckExchange(r, rows); });
      --rows;
    } while (replanned.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
    Need(replanned.get());
  }
  CHECK(there.End() == "");
  CHECK(back.End() == "");
}

}  // namespace
}  // namespace weft
