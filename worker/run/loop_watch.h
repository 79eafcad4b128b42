#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "weft/v1/client_service.pb.h"
#include "worker/run/loop_place.h"

namespace weft {

// Speaks for a loop that is stuck: answers Inspect in its place with the call that the loop is inside of, and logs such a call by name. Thread-safe
// but for place(), whose writing end is the loop's.
class LoopWatch {
 public:
  // An answer that the loop has not given so long after the question, since it is all this time inside one call, is given here. Less than the driver
  // waits for all workers (CoordinatorTimeouts::inspect_s).
  static constexpr Nanos kStuck = kNanosPerSecond / 2;
  // Likewise where it moves on but does not come to answer.
  static constexpr Nanos kLate = kNanosPerSecond * 4 / 5;
  // A call that takes longer is logged.
  static constexpr Nanos kSlow = 5 * kNanosPerSecond;

  using Reply = std::function<void(std::vector<v1::WorkerView>)>;
  // Names an op within a call of the loop, such as "method `make` of node x". Called from any thread until Forget has returned.
  using Namer = std::function<std::string(LoopCall call, int op)>;

  // `clock` outlives it. `log` is told of a slow call, and of its end; empty: the process's log.
  explicit LoopWatch(const Clock* clock, std::function<void(const std::string&)> log = {});
  // Ends the thread. What was asked is left to the loop.
  ~LoopWatch();
  LoopWatch(const LoopWatch&) = delete;
  LoopWatch& operator=(const LoopWatch&) = delete;

  // Calls Check from time to time, on a thread of its own.
  void Start();

  LoopPlace* place() { return &place_; }

  // Numbers a graph for LoopPlace. Its ops have names from SetNamer to Forget.
  int Add(const std::string& graph);
  void SetNamer(int graph, Namer namer);
  // The namer is not called any more.
  void Forget(int graph);
  void Remove(int graph);

  // For a question about `graph` ("": all) that is put to the loop: what the loop is to answer to. `reply` is called once: by the loop, or, when it does
  // not come to that, by Check, with a view of each graph of that name in which only `problem` is set.
  Reply Ask(const std::string& graph, Reply reply);

  // Answers and logs what is due. Whether an answer is still awaited.
  bool Check();

 private:
  struct Graph {
    std::string name;
    Namer namer;
  };
  struct Question {
    std::string graph;
    Nanos asked = 0;
    Reply reply;
    std::atomic<bool> answered{false};
    void Answer(std::vector<v1::WorkerView> views) {
      if (!answered.exchange(true)) reply(std::move(views));
    }
  };
  // What Check has seen of the loop's place.
  struct Seen {
    uint64_t sequence = 0;
    Nanos changed = 0;  // it was elsewhere then
    Nanos looked = 0;
    bool told = false;  // of that call, which began at `since`
    Nanos since = 0;
  };

  void Loop();
  std::string WhereText(const LoopPlace::View& v) const WEFT_REQUIRES(mu_);
  std::string StuckText(const LoopPlace::View& v, Nanos since, Nanos now) const WEFT_REQUIRES(mu_);
  std::vector<v1::WorkerView> Views(const std::string& graph, const std::string& problem) const WEFT_REQUIRES(mu_);

  const Clock* const clock_;
  const std::function<void(const std::string&)> log_;
  LoopPlace place_;
  mutable Mutex mu_;
  CondVar asked_;
  std::map<int, Graph> graphs_ WEFT_GUARDED_BY(mu_);
  int next_graph_ WEFT_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<Question>> questions_ WEFT_GUARDED_BY(mu_);
  Seen seen_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weft
