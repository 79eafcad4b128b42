#pragma once

// The one loop of a worker: it drives every graph, owns the device, and sleeps on the worker's doorbell when nothing moves.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/channel/doorbell.h"
#include "weft/v1/client_service.pb.h"
#include "worker/run/graph_run.h"
#include "worker/run/loop_watch.h"

namespace weft {

class Executor {
 public:
  struct Options {
    const Clock* clock = nullptr;
    // Rung by peers, by device threads and by this class's own methods. Outlives the executor.
    Doorbell* doorbell = nullptr;
    // How long to poll before sleeping while something is in flight. 0 where threads outnumber cores.
    Nanos spin = 0;
    // The device of all graphs; may be nullptr. The loop binds its thread to it; its Health() ends the worker.
    Device* device = nullptr;
    // Called once a turn on the loop's thread; `at_rest`: nothing of any graph is under way. True: no graph is stepped in this turn, since the device is
    // not to be touched; the doorbell rings when that is over. May be empty; must not block.
    std::function<bool(bool at_rest)> holds_device;
    // Called once a turn on the loop's thread, ahead of holds_device; true: no execution is to begin that has not yet (GraphRun::Pause), unless what has
    // begun is stuck: then those admitted by then begin too. May be empty; must not block.
    std::function<bool()> pauses;
    // What is being waited for while holds_device or pauses says true; told by Inspect. Called on the loop's thread; may be empty.
    std::function<std::string()> why_held;
    // Told of a call that the loop has been inside of for long (LoopWatch::kSlow), and of its end; empty: the process's log.
    std::function<void(const std::string&)> on_slow;
    // The device has failed for good: every graph has just failed with this cause (on_failed told). The process is to end. Called once, on
    // the loop's thread; must not block.
    std::function<void(const absl::Status& cause)> on_device_failed;
    // A graph failed here (not by Abort): called once per graph on the loop's thread; must not block. This and on_completed may be called of a graph whose
    // removal has been asked for, while one of its name is about to be added: `run` says which attempt it is of.
    std::function<void(const GraphRun& run, const absl::Status& cause)> on_failed;
    // `completed` executions of a graph are done on this worker; called on the loop's thread when that changed, for graphs that have
    // no output at all or want it. Must not block.
    std::function<void(const GraphRun& run, int64_t completed)> on_completed;
  };

  explicit Executor(Options options);
  // Stops the thread; fails and removes every graph.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Starts the loop's thread. Without it, tests call StepOnce themselves from one thread.
  void Start();
  // One pass over commands and graphs; true when anything moved.
  bool StepOnce();
  // When StepOnce might move something though nothing rings.
  Nanos NextTime() const;

  // The methods below may be called from any thread; they take effect on the loop's thread, in order.

  // A graph of that name must not be there.
  void Add(std::unique_ptr<GraphRun> run);
  // Fails the graph with a cause that came from elsewhere. Unknown names are ignored (late messages are normal).
  void Abort(const std::string& graph, const absl::Status& cause);
  // Fails it (Cancelled), waits until no thread uses its memory, destroys it, then calls `done` on the loop's thread.
  void Remove(const std::string& graph, std::function<void()> done);
  // Whether the graph could change to that part (GraphRun::CheckReplan), and the part by which it runs; NotFound, nullptr without the graph.
  // `reply` is called on the loop's thread.
  void CheckReplan(const std::string& graph, std::shared_ptr<const Plan> part,
                   std::function<void(const absl::Status&, std::shared_ptr<const Plan> current)> reply);
  // Changes the graph to that part once all executions below `from` are done. One that still waits for that is given up for it (Cancelled).
  // Nothing to do when it runs by a plan of that hash already. `done` is called once, on the loop's thread: as GraphRun::Replan, what the graph
  // failed with, or NotFound.
  void Replan(const std::string& graph, std::shared_ptr<const Plan> part, int64_t from, std::function<void(const absl::Status&)> done);
  // Views of one graph, or of all with "". `reply` is called on the loop's thread; or, where the loop is stuck inside a call or late, soon afterwards on
  // another (that of CheckLoop), with views whose `problem` names that call.
  void Inspect(const std::string& graph, std::function<void(std::vector<v1::WorkerView>)> reply);
  // Trace of the last `executions` executions of a graph (0: all kept); clock fields are the caller's. Empty for an unknown graph.
  void FetchTrace(const std::string& graph, int executions, std::function<void(v1::TraceTrack)> reply);

  // What a thread of this class does from Start on: answers for a loop that is stuck. For tests without it; from any thread.
  void CheckLoop() { watch_.Check(); }

  // Ops completed since the start, over all graphs.
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::unique_ptr<GraphRun> run;
    int number = 0;  // in watch_
    bool failure_told = false;
    int64_t completed_told = 0;
    int64_t progress_seen = 0;
    std::function<void()> removed;  // set: to be destroyed when quiescent
    // Set: to change to next_part when so many executions are done.
    std::function<void(const absl::Status&)> replanned;
    std::shared_ptr<const Plan> next_part;
    int64_t replan_from = 0;
  };

  void Post(std::function<void()> command);
  bool RunCommands();
  bool Reap();
  bool ReplanIfDue(Entry* e);
  // Fails every graph once the device has failed for good: true when that was just found.
  bool CheckDevice();
  // The device's events tell their times while a graph is traced. Puts something on the device.
  void UpdateTiming();
  Entry* Find(const std::string& graph);
  bool Turn();
  // Whether nothing of any graph is under way; tells the graphs before whether they are to pause.
  bool PauseGraphs();
  void Destroy(size_t entry);
  // In what the watch says.
  void NameOps(const Entry& e);
  void Loop();

  const Options options_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> progress_{0};
  Mutex mu_;
  std::vector<std::function<void()>> commands_ WEFT_GUARDED_BY(mu_);
  std::vector<Entry> entries_;  // loop's thread
  bool device_failed_ = false;        // loop's thread
  bool device_failure_told_ = false;  // loop's thread
  bool timing_ = false;         // loop's thread
  bool timing_due_ = false;     // loop's thread: graphs have come or gone since UpdateTiming
  bool held_ = false;           // loop's thread
  bool paused_ = false;         // loop's thread
  // The loop's thread. While paused with something under way: progress_ when something last moved, how long nothing may move, and until when.
  int64_t moved_ = 0;
  Nanos stuck_limit_ = 0;
  Nanos stuck_at_ = Event::kUnknown;
  Nanos idle_since_ = 0;        // loop's thread
  LoopWatch watch_;             // last: its thread ends first
};

}  // namespace weft
