#pragma once

// One attempt to run one graph on this worker: the two bootstrap phases on a thread of their own, so that the loop keeps serving other
// graphs, and the hand-over of the result to the loop.

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "weft/v1/worker_service.grpc.pb.h"
#include "worker/run/executor.h"
#include "worker/session/graph_loader.h"

namespace weft {

class GraphSession {
 public:
  // Answers go to `send` (any thread, non-blocking). `env` outlives the session. `stub` serves the store and remote edges. `held`: does nothing
  // before LetGo.
  GraphSession(WorkerEnv* env, std::shared_ptr<const Registration> registration, std::shared_ptr<v1::WorkerService::Stub> stub, std::string graph,
               std::string attempt, std::function<void(v1::WorkerMessage)> send, bool held);
  // End, if it was not called.
  ~GraphSession();
  // Cancels what is under way, waits until bootstrap has come to an end, which takes as long as the call takes in which it is, and lets go of what it has
  // made. Nothing of this session adds the graph to the executor afterwards. Once, from any thread.
  void End();
  void LetGo();

  const std::string& attempt() const { return attempt_; }

  // The commands of the driver, in the order they come. None blocks.
  void Load(const v1::LoadPlan& piece);  // after the last piece: LoadReply
  void Connect(const v1::Connect& c);    // ConnectReply
  void Start();                          // StartReply
  void Next(const v1::NextPlan& piece);  // after the last piece: NextPlanReply
  void Swap(const v1::SwapPlan& s);      // SwapReply, once it has changed
  // Ends bootstrap as soon as it looks up. Idempotent.
  void Cancel(const absl::Status& cause);
  bool wants_completed() const { return wants_completed_.load(); }
  // What bootstrap does or waits for, as the `problem` of a view; nullopt before its first step and when the graph is the executor's. Any thread.
  std::optional<v1::WorkerView> View() const;

 private:
  void Post(std::function<void()> step);
  void Loop();
  void DoLoad();
  void DoConnect(const v1::Connect& c);
  void DoStart();
  void DoNext(std::string bytes);
  void DoSwap(const v1::SwapPlan& s);
  // Phase 2. Fills run_.
  absl::Status ConnectGraph(v1::Connect c);
  // From now on that is what View tells; "": nothing.
  void Doing(std::string what);

  WorkerEnv* const env_;
  const std::shared_ptr<const Registration> registration_;
  const std::shared_ptr<v1::WorkerService::Stub> stub_;
  const std::string graph_;
  const std::string attempt_;
  const std::function<void(v1::WorkerMessage)> send_;
  std::string bytes_;  // reader's thread until the last piece, then the session's
  bool trace_ = false;
  // Parts of plans by which the graph may run: the current one and the one that came last. Shared with what the loop calls back, which may come
  // after this session has ended.
  struct Plans {
    Mutex mu;
    std::map<std::string, std::shared_ptr<const Plan>> by_hash WEFT_GUARDED_BY(mu);
  };
  const std::shared_ptr<Plans> plans_ = std::make_shared<Plans>();
  std::string next_bytes_;  // as bytes_

  std::atomic<bool> wants_completed_{false};
  CancelFlag cancel_;
  std::unique_ptr<GraphLoader> loader_;  // session's thread
  std::unique_ptr<GraphRun> run_;        // session's thread

  mutable Mutex mu_;
  CondVar cv_;
  std::string doing_ WEFT_GUARDED_BY(mu_);
  Nanos doing_since_ WEFT_GUARDED_BY(mu_) = 0;
  std::deque<std::function<void()>> steps_ WEFT_GUARDED_BY(mu_);
  bool held_ WEFT_GUARDED_BY(mu_);
  bool stop_ WEFT_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weft
