#pragma once

// Graphs over worker processes on GPUs, and what runs and checks them: on real GPUs where $WEFT_TEST_DEVICE says so, otherwise on GPUs that the CPU plays.

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "tests/integration/daemons.h"
#include "tests/integration/graph_parts.h"

namespace weft {

// Device of a worker: GPU i of those that $WEFT_TEST_GPUS counts (default 1), or a played one of its own.
std::string Gpu(int i);
// Whether the GPUs are real.
bool Real();

// Runs `executions` of a graph that is ready with as many in flight as it allows, and tears it down; `check` sees each result in order. `inputs` (may be
// empty) makes those of execution k.
void RunReady(Client* client, const std::string& graph, int executions, const std::function<void(const ExecutionResult&)>& check,
              const std::function<std::map<std::string, Tensor>(int)>& inputs = {});
// Compiles it first.
void RunAll(Client* client, const v1::Graph& g, int executions, const std::function<void(const ExecutionResult&)>& check,
            const std::function<std::map<std::string, Tensor>(int)>& inputs = {});

// w0 makes values of `bytes`, all elements the execution's number; w1 finds their smallest and largest element.
v1::Graph Stream(const std::string& name, v1::Transport transport, int64_t bytes, int in_flight);
void CheckStream(const ExecutionResult& r);

// Each of so many workers makes F32[rows, rows] of the execution's number, and multiplies by itself what the next worker has made; that of the last takes the first's.
v1::Graph Exchange(const std::string& name, int workers, int64_t rows, v1::Launch launch = v1::STREAM);
void CheckExchange(const ExecutionResult& r, int64_t rows);

// For BusyGraph: `from` -> `to` over NCCL and back over ipc, whose transfers wait for peers on the devices.
v1::Graph Both(const std::string& name, int from, int to, v1::Launch launch = v1::STREAM);
// For BusyGraph: an all-reduce of so many workers, with factor `workers`.
v1::Graph Sum(const std::string& name, int workers, v1::Launch launch = v1::STREAM);

// A graph that never rests, from here to End: as many executions in flight as it allows, each checked: the first element of every output is `factor` times
// the execution's number.
class BusyGraph {
 public:
  BusyGraph(Daemons* cluster, Client* client, const v1::Graph& graph = Both("busy", 0, 1), double factor = 1);
  ~BusyGraph();

  int done() const { return done_.load(); }
  // Whether so many executions come to be done; false after 20 s, or when one was wrong.
  bool GoesOn(int done) const;
  // What was wrong; empty when nothing was.
  std::string End();

 private:
  void Run(Daemons* cluster);

  Client* const client_;
  const std::string name_;
  const double factor_;
  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<int> done_{0};
  std::string problem_;  // the thread's, until it has ended
  std::thread thread_;
};

}  // namespace weft
