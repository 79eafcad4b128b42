#pragma once

// The bookkeeping of one client's executions: what was submitted, what waits, what is to be written, what is overdue. Without gRPC.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/session/session.h"

namespace weft {

// Thread-safe. One thread submits (the reader), one takes what is to be written (the writer); results come on the session's thread.
// Of each sequence that was submitted exactly one Reply is given out, unless it was dropped.
class ExecuteQueue : public std::enable_shared_from_this<ExecuteQueue> {
 public:
  struct Options {
    v1::SubmitMode mode = v1::SUBMIT_MODE_UNSPECIFIED;  // as the graph has it
    double deadline_s = 0;                              // 0: none
    bool discard_outputs = false;
    // Bytes of inputs that wait here (QUEUE) before Submit waits too.
    uint64_t max_waiting_bytes = uint64_t{1} << 30;
    const Clock* clock = Clock::Real();
    // Called when an execution is overdue; calls back, from any thread, with who waits for what in words.
    std::function<void(std::function<void(std::string)>)> explain;
  };
  struct Reply {
    int64_t sequence = 0;
    // Either a result or a refusal that is not OK.
    std::optional<SessionResult> result;
    absl::Status refusal;
  };

  ExecuteQueue(std::shared_ptr<Session> session, Options options);

  // Reader. Waits, in mode WAIT, while this client has max_in_flight results outstanding, up to the graph's submit timeout; asks
  // `gone` now and then whether the client has left, and then returns.
  void Submit(int64_t sequence, std::vector<Tensor> inputs, const std::function<bool()>& gone);
  void Refuse(int64_t sequence, const absl::Status& why);
  // Nothing is to be said of it any more.
  void Drop(int64_t sequence);
  // No more submits: Next ends when all is said.
  void FinishSubmits();
  // The client has gone: all is dropped, Next ends.
  void Abandon();

  // Writer. Waits for the next reply; false at the end. The one before counts as written then.
  bool Next(Reply* reply);

 private:
  struct Entry {
    Session::Ticket ticket = 0;
    bool submitted = false;  // counts in outstanding_
    bool done = false;       // its reply is in outbox_
    int64_t execution = -1;
    Nanos submitted_at = 0;
    Nanos deadline = Event::kUnknown;
  };
  struct Waiting {
    int64_t sequence = 0;
    std::vector<Tensor> inputs;
    uint64_t bytes = 0;
  };

  void SubmitNow(int64_t sequence, std::vector<Tensor> inputs) WEFT_REQUIRES(mu_);
  void Pump() WEFT_REQUIRES(mu_);
  void RefuseLocked(int64_t sequence, const absl::Status& why) WEFT_REQUIRES(mu_);
  void Forget(std::map<int64_t, Entry>::iterator it) WEFT_REQUIRES(mu_);
  void OnDone(int64_t sequence, absl::StatusOr<SessionResult> result);
  void OnOverdue(int64_t sequence, int64_t execution, const std::string& text);
  // Takes overdue entries out; returns when the next is due.
  Nanos TakeOverdue(std::vector<std::pair<int64_t, int64_t>>* overdue) WEFT_REQUIRES(mu_);

  const std::shared_ptr<Session> session_;
  const Options options_;
  const v1::SubmitMode mode_;
  const int max_outstanding_;

  Mutex mu_;
  CondVar changed_;
  std::map<int64_t, Entry> entries_ WEFT_GUARDED_BY(mu_);
  std::deque<Waiting> waiting_ WEFT_GUARDED_BY(mu_);
  uint64_t waiting_bytes_ WEFT_GUARDED_BY(mu_) = 0;
  std::deque<Reply> outbox_ WEFT_GUARDED_BY(mu_);
  int outstanding_ WEFT_GUARDED_BY(mu_) = 0;  // submitted to the session and not yet written
  int explaining_ WEFT_GUARDED_BY(mu_) = 0;
  bool writing_ WEFT_GUARDED_BY(mu_) = false;  // the reply given out last holds a place
  bool finished_ WEFT_GUARDED_BY(mu_) = false;
  bool abandoned_ WEFT_GUARDED_BY(mu_) = false;
};

}  // namespace weft
