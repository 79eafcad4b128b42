// Graphs over real worker processes on GPUs, or on GPUs that the CPU plays where $WEFT_TEST_DEVICE does not say otherwise: every transport, small and
// large values, both ways at once, errors, thousands of executions.

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/integration/daemons.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

int64_t ResidentKiB(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/statm"));
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST_CASE("gpu daemons: values of 4 bytes to a gibibyte over ipc and nccl, whole and in order") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  std::vector<int64_t> sizes = {4, 4096, 1 << 20, 16 << 20};
  if (Real()) sizes.insert(sizes.end(), {int64_t{256} << 20, int64_t{1} << 30});
  for (const v1::Transport t : {v1::IPC, v1::NCCL}) {
    for (const int64_t bytes : sizes) {
      INFO(v1::Transport_Name(t) << " " << bytes);
      // Between two processes of one GPU NCCL goes through sockets.
      if (t == v1::NCCL && bytes > (int64_t{256} << 20) && getenv("WEFT_TEST_GPUS") == nullptr) continue;
      RunAll(client.get(), Stream(absl::StrCat(v1::Transport_Name(t), "-", bytes), t, bytes, 4), bytes > (64 << 20) ? 4 : 8, CheckStream);
    }
  }
}

TEST_CASE("gpu daemons: a constant is made once for each of its buffers, and is there every time") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::Transport t : {v1::IPC, v1::NCCL, v1::SHM}) {
    INFO(v1::Transport_Name(t));
    v1::Graph g = Stream(absl::StrCat("constant-", v1::Transport_Name(t)), t, 1 << 20, 4);
    g.mutable_actor(0)->set_class_("std.Constant");
    g.mutable_actor(0)->mutable_config()->set_fill("7");
    int seen = 0;
    RunAll(client.get(), g, 40, [&](const ExecutionResult& r) {
      REQUIRE(r.ok());
      CHECK(ElementAsDouble(r.outputs.at("min"), 0) == 7);
      CHECK(ElementAsDouble(r.outputs.at("max"), 0) == 7);
      ++seen;
    });
    CHECK(seen == 40);
  }
}

TEST_CASE("gpu daemons: values from a CPU worker and back to one, over shared memory") {
  Daemons cluster({"h0", "h0", "h0"}, "h0", {"cpu", Gpu(1), "cpu"});
  const auto client = cluster.Dial();
  for (const int64_t bytes : {int64_t{4}, int64_t{1} << 20, int64_t{Real() ? 256 : 16} << 20}) {
    v1::Graph g = Stream(absl::StrCat("there-", bytes), v1::SHM, bytes, 4);
    AddActor(&g, "back", "std.Math", "w2");
    AddNode(&g, "twice", "sink", "add", {"make", "make"});
    AddNode(&g, "largest", "back", "reduce", {"twice"})->mutable_config()->set_reduce("max");
    Give(&g, "largest", "largest");
    RunAll(client.get(), g, 6, [](const ExecutionResult& r) {
      CheckStream(r);
      CHECK(ElementAsDouble(r.outputs.at("largest"), 0) == 2.0 * static_cast<double>(r.execution));
    });
  }
}

TEST_CASE("gpu daemons: graphs come and go beside one that runs") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  BusyGraph busy(&cluster, client.get());
  // Every transport's memory is taken and given back, page-locked memory and communicators with it.
  for (int round = 0; round < (Real() ? 5 : 3); ++round) {
    for (const v1::Transport t : {v1::NCCL, v1::IPC, v1::SHM}) {
      const int before = busy.done();
      RunAll(client.get(), Stream(absl::StrCat("guest-", v1::Transport_Name(t)), t, 1 << 20, 4), 8, CheckStream);
      CHECK(busy.GoesOn(before + 4));
    }
  }
  CHECK(busy.End() == "");
}

// Each of two workers adds the other's value to its own.
void Crossed(Client* client, v1::Transport t, v1::Overlap overlap) {
  v1::Graph g;
  g.set_name(absl::StrCat("crossed-", v1::Transport_Name(t), "-", v1::Overlap_Name(overlap)));
  for (int w = 0; w < 2; ++w) {
    AddSource(&g, absl::StrCat("source", w), absl::StrCat("w", w), Real() ? "[16777216]" : "[262144]");
    AddActor(&g, absl::StrCat("math", w), "std.Math", absl::StrCat("w", w));
  }
  for (int w = 0; w < 2; ++w) AddNode(&g, absl::StrCat("make", w), absl::StrCat("source", w), "make");
  for (int w = 0; w < 2; ++w) {
    const std::string sum = absl::StrCat("sum", w), top = absl::StrCat("top", w), other = absl::StrCat("make", 1 - w);
    AddNode(&g, sum, absl::StrCat("math", w), "add", {absl::StrCat("make", w), other});
    AddNode(&g, top, absl::StrCat("math", w), "reduce", {sum})->mutable_config()->set_reduce("max");
    Carry(&g, other, sum, t);
    Give(&g, top, top);
  }
  g.mutable_options()->set_overlap(overlap);
  g.mutable_options()->set_max_in_flight(4);
  RunAll(client, g, 10, [](const ExecutionResult& r) {
    REQUIRE(r.ok());
    for (const char* top : {"top0", "top1"}) CHECK(ElementAsDouble(r.outputs.at(top), 0) == 2.0 * static_cast<double>(r.execution));
  });
}

TEST_CASE("gpu daemons: two workers send each other large values at once") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::Transport t : {v1::IPC, v1::NCCL}) {
    for (const v1::Overlap overlap : {v1::ON, v1::OFF}) Crossed(client.get(), t, overlap);
  }
}

// An error of a task on w0, known to the host or to the device alone, reaches what depends on it on w1 and nothing else; the next execution is right.
void Errors(Client* client, v1::Transport t, bool on_device, v1::Launch launch) {
  INFO(v1::Transport_Name(t) << (on_device ? ", found by the device" : ", known at issue") << ", " << v1::Launch_Name(launch));
  v1::Graph g;
  g.set_name(absl::StrCat("errors-", v1::Transport_Name(t), on_device ? "-device-" : "-host-", v1::Launch_Name(launch)));
  v1::Actor* fail = AddActor(&g, "fail", "std.Fail", "w0");
  fail->mutable_config()->set_dtype(v1::F32);
  fail->mutable_config()->set_shape("[1024]");
  fail->mutable_config()->add_fail_on(2);
  fail->mutable_config()->set_message("as told");
  fail->mutable_config()->set_on_device(on_device);
  AddSource(&g, "source", "w0", "[1024]");
  AddActor(&g, "math", "std.Math", "w1");
  AddNode(&g, "bad", "fail", "run");
  AddNode(&g, "good", "source", "make");
  AddNode(&g, "of-both", "math", "add", {"bad", "good"});
  AddNode(&g, "of-good", "math", "identity", {"good"});
  for (const char* to : {"of-both", "of-good"}) Carry(&g, "good", to, t);
  Carry(&g, "bad", "of-both", t);
  Give(&g, "both", "of-both");
  Give(&g, "good", "of-good");
  g.mutable_options()->set_max_in_flight(3);
  g.mutable_options()->set_launch(launch);
  RunAll(client, g, 5, [](const ExecutionResult& r) {
    CHECK(ElementAsDouble(r.outputs.at("good"), 1023) == static_cast<double>(r.execution));
    if (r.execution != 2) {
      REQUIRE(r.ok());
      CHECK(ElementAsDouble(r.outputs.at("both"), 1023) == 2.0 * static_cast<double>(r.execution));
      return;
    }
    REQUIRE(r.errors.size() == 1);
    const v1::TaskError& e = r.errors.at("both");
    CHECK(e.node() == "bad");
    CHECK(e.worker() == "w0");
    CHECK(e.execution() == 2);
    CHECK(e.message().find("as told") != std::string::npos);
  });
}

TEST_CASE("gpu daemons: a task's error reaches what depends on it over every transport, launched op by op or captured") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::Transport t : {v1::IPC, v1::NCCL, v1::SHM}) {
    for (const bool on_device : {false, true}) {
      for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) Errors(client.get(), t, on_device, launch);
    }
  }
}

TEST_CASE("gpu daemons: workers with a GPU each replay their transfers over nccl: in order, both ways at once, beside errors, and after a worker that was killed") {
  if (Real() && Gpu(0) == Gpu(1)) return;  // they share it, where nothing is replayed
  const std::string own = " --own-gpu --log-level debug";
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0) + own, Gpu(1) + own});
  const auto client = cluster.Dial();
  for (int life = 0; life < 2; ++life) {
    for (const int64_t bytes : {4, 4096, 1 << 20}) RunAll(client.get(), Stream(absl::StrCat("own-", bytes), v1::NCCL, bytes, 4), 40, CheckStream);
    for (const v1::Overlap overlap : {v1::ON, v1::OFF}) Crossed(client.get(), v1::NCCL, overlap);
    for (const bool on_device : {false, true}) Errors(client.get(), v1::NCCL, on_device, v1::STREAM);
    for (const char* w : {"w0", "w1"}) {
      INFO(w << ": " << cluster.Log(w));
      CHECK(cluster.Log(w).find(": call 0 of it is captured, to be replayed") != std::string::npos);
    }
    if (life == 0) {
      cluster.KillWorker(1);
      cluster.StartWorker(1);
      cluster.AwaitWorkers();
    }
  }
}

TEST_CASE("gpu daemons: a captured iteration gives what launching op by op gives") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::Transport t : {v1::IPC, v1::NCCL, v1::SHM}) {
    INFO(v1::Transport_Name(t));
    v1::Graph g = Stream(absl::StrCat("captured-", v1::Transport_Name(t)), t, 1 << 20, 4);
    g.mutable_options()->set_launch(v1::GRAPH);
    RunAll(client.get(), g, 50, CheckStream);
  }
}

TEST_CASE("gpu daemons: collectives of two workers") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  for (const v1::CollectiveOp op : {v1::ALL_REDUCE, v1::ALL_GATHER, v1::REDUCE_SCATTER, v1::BROADCAST}) {
    INFO(v1::CollectiveOp_Name(op));
    v1::Graph g;
    g.set_name(v1::CollectiveOp_Name(op));
    for (int w = 0; w < 2; ++w) {
      AddSource(&g, absl::StrCat("source", w), absl::StrCat("w", w), "[4096]");
      AddActor(&g, absl::StrCat("math", w), "std.Math", absl::StrCat("w", w));
      AddNode(&g, absl::StrCat("make", w), absl::StrCat("source", w), "make");
    }
    v1::Collective* c = g.add_collective();
    c->set_name("both");
    c->set_op(op);
    if (op == v1::ALL_REDUCE || op == v1::REDUCE_SCATTER) c->set_reduce(v1::SUM);
    for (int w = 0; w < 2; ++w) c->add_member()->set_node(absl::StrCat("make", w));
    for (int w = 0; w < 2; ++w) {
      v1::Node* top = AddNode(&g, absl::StrCat("top", w), absl::StrCat("math", w), "reduce");
      top->add_arg()->set_collective("both");
      top->mutable_config()->set_reduce("max");
      Give(&g, top->name(), top->name());
    }
    g.mutable_options()->set_max_in_flight(4);
    const double factor = op == v1::ALL_REDUCE || op == v1::REDUCE_SCATTER ? 2 : 1;
    RunAll(client.get(), g, 12, [&](const ExecutionResult& r) {
      REQUIRE(r.ok());
      for (const char* top : {"top0", "top1"}) CHECK(ElementAsDouble(r.outputs.at(top), 0) == factor * static_cast<double>(r.execution));
    });
  }
}

TEST_CASE("gpu daemons: thousands of executions take no more memory than hundreds") {
  Daemons cluster({"h0", "h0"}, "h0", {Gpu(0), Gpu(1)});
  const auto client = cluster.Dial();
  const int executions = Real() ? 10000 : 2000, early = executions / 4;
  const v1::Transport second = getenv("WEFT_TEST_GPUS") != nullptr || !Real() ? v1::NCCL : v1::SHM;  // sockets would take minutes
  for (const v1::Transport t : {v1::IPC, second}) {
    int seen = 0;
    int64_t before[2] = {0, 0};
    RunAll(client.get(), Stream(absl::StrCat("long-", v1::Transport_Name(t)), t, 4096, 8), executions, [&](const ExecutionResult& r) {
      if (r.execution % 100 == 0) CheckStream(r);
      REQUIRE(r.ok());
      if (++seen == early) {
        for (int w = 0; w < 2; ++w) before[w] = ResidentKiB(cluster.worker_pid(w));
      }
      if (seen != executions) return;
      for (int w = 0; w < 2; ++w) {
        INFO("w" << w << ": " << before[w] << " KiB after " << early << ", " << ResidentKiB(cluster.worker_pid(w)) << " after " << executions);
        CHECK(ResidentKiB(cluster.worker_pid(w)) < before[w] + 2048);
      }
    });
  }
}

}  // namespace
}  // namespace weft
