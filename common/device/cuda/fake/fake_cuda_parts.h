#pragma once

// What FakeCuda is made of, for its own files only. Everything here is guarded by FakeCuda::mu_ but where said.

#include <deque>
#include <set>

#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_memory.h"

namespace weft {

// A number as a handle, never used again in this process.
void* NextFakeHandle();

struct FakeCuda::Mark {
  bool passed = false;
  std::chrono::steady_clock::time_point at;
  // Set: a point of a capture, which never passes; nodes that come after it depend on these.
  std::shared_ptr<Capture> capture;
  std::vector<int> nodes;
};

struct FakeCuda::FStream {
  struct Op {
    Closure run;
    const char* what;
  };
  CudaStreamHandle handle;
  int device;
  std::deque<Op> queue;
  int64_t issued = 0, done = 0;
  const char* running = nullptr;
  bool destroyed = false;
  bool finished = false;  // the thread has left
  CondVar work;
  std::thread thread;  // set before anyone else can see the stream

  std::shared_ptr<Capture> capture;
  int branch = 0;
  std::vector<int> tails;  // nodes that the next node comes after
};

struct FakeCuda::FEvent {
  bool timing;
  std::shared_ptr<Mark> mark;  // of the last record; waits refer to the one they saw
};

struct FakeCuda::Order {
  std::shared_ptr<Mark> last;
  CudaStreamHandle last_stream = nullptr;
};

// Immutable once captured, but for `memory`.
struct FakeCuda::Graph {
  struct Node {
    Closure run;
    const char* what;
    int branch;
    std::vector<int> after;
  };
  ~Graph() {
    for (void* p : memory) owner->Release(p);
  }
  std::vector<Node> nodes;  // in the order of capture
  int branches = 0;
  std::set<void*> memory;  // allocated by the capture; lives as long as the graph
  FakeMemory* owner = nullptr;
};

struct FakeCuda::Capture {
  std::thread::id thread;
  std::shared_ptr<FStream> origin;
  std::vector<std::shared_ptr<FStream>> streams;  // with the origin
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool active = true;
  bool spoilt = false;
};

struct FakeCuda::Exec {
  std::shared_ptr<Graph> graph;
  std::shared_ptr<Mark> last;  // launches of one exec never overlap
};

}  // namespace weft
