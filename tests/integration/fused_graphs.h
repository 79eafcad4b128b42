#pragma once

// Graphs whose small collectives the compiler may fuse and whose sends it may put together, and what a run of them gave, bit by bit. Where
// it does, released buffers are filled with a pattern, so that whoever reads too late shows.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace weft {

// A value's bytes; or "error of NODE on WORKER in execution K: MESSAGE".
using RunBits = std::vector<std::map<std::string, std::string>>;  // by execution, by output

struct GradientsOptions {
  int workers = 2;
  int layers = 5;
  // Layer 1's value of the last worker fails in execution 2, as its device finds.
  bool fails = false;
  v1::Overlap overlap = v1::ON;
  v1::Launch launch = v1::STREAM;
  uint64_t bucket_bytes = 0;
};

// Bytes of one layer's value: 97 random F32, whose sums depend on the order of additions.
constexpr uint64_t kLayerBytes = 97 * 4;

// Each of the workers w0, w1, ... makes a value "gL-W" a layer L; they are summed up and scaled to an output "yL-W" on each worker.
v1::Graph Gradients(const std::string& name, const GradientsOptions& options);

struct FanOutOptions {
  int workers = 4;
  v1::Transport transport = v1::GLOO;
  bool broadcast = false;
  // The value "bad", that all but the last worker take, fails in execution 2.
  bool fails = false;
  v1::Overlap overlap = v1::ON;
  v1::Launch launch = v1::STREAM;
};

// w0 makes two random values: "good" is taken by node "goodW" on each other worker W, "bad" by "badW" on those but the last; outputs of
// the same names.
v1::Graph FanOut(const std::string& name, const FanOutOptions& options);

// Compiles the graph, runs it with as many in flight as it allows and tears it down. `groups`, where given: its plan's collectives, by
// name. Fails the test where that is not possible.
RunBits RunForBits(Client* client, const v1::Graph& graph, int executions, std::vector<std::string>* groups = nullptr);

// Empty, or the first execution and output in which they differ.
std::string Differences(const RunBits& a, const RunBits& b);

}  // namespace weft
