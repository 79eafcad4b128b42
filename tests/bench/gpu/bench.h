#pragma once

// What the GPU benchmarks share: a cluster of daemons, steady periods of graphs, medians, and rows of run-gpu-suite's table.

#include <functional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "common/base/clock.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/integration/daemons.h"

namespace weft::bench {

// "cuda", or $WEFT_BENCH_DEVICE ("fake-cuda" to try the programs where there is no GPU: their figures mean nothing then).
std::string GpuDevice();
// Device of worker i of a cluster on GPUs.
std::string GpuOf(int i);

struct Steady {
  double period_s = 0;     // seconds an execution, after warm-up
  double typical_s = 0;    // the median time from one result to the next
  double first_s = 0;      // of the first `executions`, warm-up included
  std::vector<ExecutionResult> results;  // of the measured ones
};

// `edges` edges from one producer on w0 to consumers on w1 that only look at the value, F32: each edge moves it once. Output "first" is an element of the last
// one, which CheckFanOut checks: 3, or the execution's number with `fresh`, where the value is made anew for every execution.
v1::Graph FanOut(const std::string& name, v1::Transport transport, uint64_t bytes, int edges, int in_flight, bool fresh = false);
void CheckFanOut(const Steady& s, bool fresh = false);

// Compiles the graph, runs `warm` + `executions` executions with as many in flight as it allows, tears it down. Throws std::runtime_error with
// the driver's words.
Steady Run(Client* client, const v1::Graph& graph, int warm, int executions, bool discard_outputs = false);
// The same with a graph that is compiled, and stays so.
Steady RunCompiled(Client* client, const std::string& graph, int warm, int executions, bool discard_outputs = false);

double Median(std::vector<double> values);

// "RESULT what | result | mark | ok": a row of the table. `ok` < 0: no mark.
void Row(const std::string& what, const std::string& result, const std::string& mark, int ok);
std::string Ms(double seconds);
std::string Ratio(double r);

// What the workers' libweft_cuda.so gives, loaded once; with fake-cuda fakes of it that run. Throws with words.
const CudaPlugin& Plugin();
// The GPU of this process, for bare measurements; throws without one.
CudaDevice* BareDevice();

// One program for all: weft-gpu-bench NAME.
int Overlap(int argc, char** argv);
int Copies(int argc, char** argv);
int Latency(int argc, char** argv);
int Beside(int argc, char** argv);
int Timeline(int argc, char** argv);
int Pipeline(int argc, char** argv);
int Edges(int argc, char** argv);
int Kill(int argc, char** argv);

}  // namespace weft::bench
