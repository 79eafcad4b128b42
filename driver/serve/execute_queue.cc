#include "driver/serve/execute_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

// How often a waiting reader looks whether its client is still there.
constexpr Nanos kGoneCheck = 50'000'000;

Nanos After(Nanos now, double s) {
  const Nanos d = FromSeconds(s);
  return d > Event::kUnknown - now ? Event::kUnknown : now + d;
}

uint64_t BytesOf(const std::vector<Tensor>& tensors) {
  uint64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.bytes();
  return bytes;
}

}  // namespace

ExecuteQueue::ExecuteQueue(std::shared_ptr<Session> session, Options options)
    : session_(std::move(session)),
      options_(std::move(options)),
      mode_(options_.mode == v1::SUBMIT_MODE_UNSPECIFIED ? session_->spec().submit : options_.mode),
      max_outstanding_(session_->spec().max_in_flight) {}

void ExecuteQueue::Submit(int64_t sequence, std::vector<Tensor> inputs, const std::function<bool()>& gone) {
  MutexLock lock(&mu_);
  if (abandoned_) return;
  const Nanos now = options_.clock->Now();
  Entry& entry = entries_[sequence];
  entry.submitted_at = now;
  if (options_.deadline_s > 0) {
    entry.deadline = After(now, options_.deadline_s);
    changed_.NotifyAll();  // the writer watches it
  }
  if (mode_ == v1::QUEUE) {
    Waiting w;
    w.sequence = sequence;
    w.bytes = BytesOf(inputs);
    w.inputs = std::move(inputs);
    waiting_bytes_ += w.bytes;
    waiting_.push_back(std::move(w));
    Pump();
    while (waiting_bytes_ > options_.max_waiting_bytes && !abandoned_ && !gone()) {
      changed_.WaitFor(&mu_, std::chrono::nanoseconds(kGoneCheck));
    }
    return;
  }
  if (mode_ == v1::FAIL_FAST) {
    if (outstanding_ >= max_outstanding_) {
      RefuseLocked(sequence, absl::ResourceExhaustedError(absl::StrFormat(
                                 "graph %s: %d executions of this client are in flight or unread, max_in_flight is %d and the "
                                 "submit mode FAIL_FAST",
                                 session_->spec().graph, outstanding_, max_outstanding_)));
      return;
    }
    SubmitNow(sequence, std::move(inputs));
    return;
  }
  const Nanos give_up = After(now, session_->spec().submit_timeout_s);
  while (outstanding_ >= max_outstanding_) {
    if (abandoned_ || gone()) return;
    const auto it = entries_.find(sequence);
    if (it == entries_.end() || it->second.done) return;  // overdue meanwhile
    const Nanos left = give_up - options_.clock->Now();
    if (left <= 0) {
      RefuseLocked(sequence,
                   absl::DeadlineExceededError(absl::StrFormat(
                       "graph %s: no free place within submit_timeout_s = %g: %d executions of this client are in flight or unread, "
                       "max_in_flight is %d",
                       session_->spec().graph, session_->spec().submit_timeout_s, outstanding_, max_outstanding_)));
      return;
    }
    changed_.WaitFor(&mu_, std::chrono::nanoseconds(std::min(left, kGoneCheck)));
  }
  const auto it = entries_.find(sequence);
  if (!abandoned_ && it != entries_.end() && !it->second.done) SubmitNow(sequence, std::move(inputs));
}

void ExecuteQueue::SubmitNow(int64_t sequence, std::vector<Tensor> inputs) {
  SessionSubmit submit;
  submit.inputs = std::move(inputs);
  submit.mode = mode_;
  submit.discard_outputs = options_.discard_outputs;
  // The session's thread waits for this lock, so both find the entry complete.
  submit.admitted = [self = shared_from_this(), sequence](int64_t execution) {
    MutexLock lock(&self->mu_);
    const auto it = self->entries_.find(sequence);
    if (it != self->entries_.end()) it->second.execution = execution;
  };
  submit.done = [self = shared_from_this(), sequence](absl::StatusOr<SessionResult> r) { self->OnDone(sequence, std::move(r)); };
  const absl::StatusOr<Session::Ticket> ticket = session_->Submit(std::move(submit));
  if (!ticket.ok()) {
    RefuseLocked(sequence, ticket.status());
    return;
  }
  Entry& entry = entries_[sequence];
  entry.ticket = *ticket;
  entry.submitted = true;
  ++outstanding_;
}

void ExecuteQueue::Pump() {
  while (!waiting_.empty() && outstanding_ < max_outstanding_ && !abandoned_) {
    Waiting w = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= w.bytes;
    SubmitNow(w.sequence, std::move(w.inputs));
    changed_.NotifyAll();
  }
}

void ExecuteQueue::Refuse(int64_t sequence, const absl::Status& why) {
  MutexLock lock(&mu_);
  if (abandoned_) return;
  entries_[sequence];
  RefuseLocked(sequence, why);
}

void ExecuteQueue::RefuseLocked(int64_t sequence, const absl::Status& why) {
  entries_[sequence].done = true;
  Reply reply;
  reply.sequence = sequence;
  reply.refusal = why;
  outbox_.push_back(std::move(reply));
  changed_.NotifyAll();
}

void ExecuteQueue::Forget(std::map<int64_t, Entry>::iterator it) {
  const int64_t sequence = it->first;
  if (it->second.submitted) {
    session_->Forget(it->second.ticket);
    --outstanding_;
  }
  entries_.erase(it);
  for (auto w = waiting_.begin(); w != waiting_.end(); ++w) {
    if (w->sequence != sequence) continue;
    waiting_bytes_ -= w->bytes;
    waiting_.erase(w);
    break;
  }
  changed_.NotifyAll();
}

void ExecuteQueue::Drop(int64_t sequence) {
  MutexLock lock(&mu_);
  const auto it = entries_.find(sequence);
  if (it == entries_.end()) return;  // said already, being said, or never submitted
  const auto reply = std::find_if(outbox_.begin(), outbox_.end(), [&](const Reply& r) { return r.sequence == sequence; });
  if (reply != outbox_.end()) outbox_.erase(reply);
  Forget(it);
  Pump();
}

void ExecuteQueue::OnDone(int64_t sequence, absl::StatusOr<SessionResult> result) {
  const absl::Status ended = result.ok() ? absl::OkStatus() : session_->status();
  MutexLock lock(&mu_);
  const auto it = entries_.find(sequence);
  if (it == entries_.end() || it->second.done) return;  // dropped or overdue
  it->second.done = true;
  Reply reply;
  reply.sequence = sequence;
  if (result.ok()) {
    reply.result = *std::move(result);
  } else if (!ended.ok()) {
    reply.refusal = absl::FailedPreconditionError(absl::StrCat("graph ", session_->spec().graph, " failed: ", std::string(ended.message())));
  } else {
    reply.refusal = result.status();
  }
  outbox_.push_back(std::move(reply));
  changed_.NotifyAll();
}

Nanos ExecuteQueue::TakeOverdue(std::vector<std::pair<int64_t, int64_t>>* overdue) {
  Nanos next = Event::kUnknown;
  if (options_.deadline_s <= 0) return next;
  const Nanos now = options_.clock->Now();
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto here = it++;
    if (here->second.done || here->second.deadline == Event::kUnknown) continue;
    if (now < here->second.deadline) {
      next = std::min(next, here->second.deadline);
      continue;
    }
    overdue->emplace_back(here->first, here->second.execution);
    ++explaining_;
    Forget(here);
  }
  if (!overdue->empty()) Pump();
  return next;
}

void ExecuteQueue::OnOverdue(int64_t sequence, int64_t execution, const std::string& text) {
  MutexLock lock(&mu_);
  --explaining_;
  changed_.NotifyAll();
  if (abandoned_) return;
  const std::string which = execution < 0 ? "an execution that was never admitted, since max_in_flight others were in flight,"
                                          : absl::StrCat("execution ", execution);
  entries_[sequence];
  RefuseLocked(sequence, absl::DeadlineExceededError(absl::StrFormat(
                             "graph %s: %s was not done within deadline_s = %g; its result is dropped. Waiting are:\n%s",
                             session_->spec().graph, which, options_.deadline_s, text.empty() ? "nobody" : text)));
}

void ExecuteQueue::FinishSubmits() {
  MutexLock lock(&mu_);
  finished_ = true;
  changed_.NotifyAll();
}

void ExecuteQueue::Abandon() {
  MutexLock lock(&mu_);
  abandoned_ = true;
  while (!entries_.empty()) Forget(entries_.begin());
  outbox_.clear();
  changed_.NotifyAll();
}

bool ExecuteQueue::Next(Reply* reply) {
  while (true) {
    std::vector<std::pair<int64_t, int64_t>> overdue;
    {
      MutexLock lock(&mu_);
      if (writing_) {
        writing_ = false;
        --outstanding_;
        Pump();
        changed_.NotifyAll();
      }
      const Nanos next = TakeOverdue(&overdue);
      if (overdue.empty()) {
        if (abandoned_) return false;
        if (!outbox_.empty()) {
          *reply = std::move(outbox_.front());
          outbox_.pop_front();
          const auto it = entries_.find(reply->sequence);
          if (it != entries_.end()) {
            writing_ = it->second.submitted;
            entries_.erase(it);
          }
          return true;
        }
        if (finished_ && entries_.empty() && explaining_ == 0) return false;
        if (next == Event::kUnknown) {
          changed_.Wait(&mu_);
        } else {
          changed_.WaitFor(&mu_, std::chrono::nanoseconds(std::max<Nanos>(1, next - options_.clock->Now())));
        }
      }
    }
    for (const auto& [sequence, execution] : overdue) {
      const auto told = [self = shared_from_this(), sequence = sequence, execution = execution](const std::string& text) {
        self->OnOverdue(sequence, execution, text);
      };
      if (options_.explain) {
        options_.explain(told);
      } else {
        told("");
      }
    }
  }
}

}  // namespace weft
