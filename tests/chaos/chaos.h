#pragma once

// Graphs that keep processes busy in a known way, and what must hold of pending calls, survivors and leftovers when one of them dies.

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "common/base/clock.h"
#include "tests/integration/daemons.h"

namespace weft {

// Whether workers run on real GPUs, where a process takes seconds to come up: cases then take fewer moments of the same range.
bool OnRealGpus();

// A chain of delays over these workers, one after the other, with, if wanted, an allreduce over their results. Its executions queue.
v1::Graph Chain(const std::string& name, const std::vector<int>& workers, bool collective, double delay_s = 0.005);
// Over w0, w1, ...
v1::Graph Chain(const std::string& name, int workers, bool collective, double delay_s = 0.005);

// 8 MB values that go from the first through all workers, or, with `collective`, are made everywhere and reduced: nearly all the time of an
// execution goes by in transfers. The outputs are single numbers.
v1::Graph Bulk(const std::string& name, const std::vector<int>& workers, bool collective);

double SecondsSince(Nanos since);

// A fixture: after the test's own clusters are gone, nothing of them is left in /dev/shm or among the processes. On real GPUs it says where the time
// has gone.
class LeavesNothing {
 public:
  LeavesNothing();
  ~LeavesNothing();

 private:
  const std::set<std::string> shm_before_;
  const Nanos since_;
  const double awaited_before_, compiled_before_;
};

// How a worker's death reads, as the first cause; consequences at other workers read otherwise.
std::string WorkerGone(int worker, pid_t pid);

// As Client::Compile, within a minute.
absl::Status CompileSoon(Client* client, const v1::Graph& graph);

// The graph compiles and three executions of it run to a good end; then it is torn down.
void CheckRuns(const Daemons& d, const v1::Graph& graph);

// Submits 400 executions, waits for one to be done, and after `into_s` more seconds calls `kill`. Within a second of that every pending
// call must have failed with a message that has `cause` in it, and so must the state of the graph, where the driver still knows it. `good` is called with
// each good result.
void CheckKillIsTold(const Daemons& d, const v1::Graph& graph, double into_s, const std::function<void()>& kill, const std::string& cause,
                     const std::function<void(const ExecutionResult&)>& good = nullptr);

// The driver answers, calls the victim lost within a second, and the others of `workers` alive; their processes have not ended.
void CheckSurvivors(const Daemons& d, const std::vector<int>& workers, int victim);

}  // namespace weft
