#include "worker/run/executor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// While a graph is failed and a call of its actor still runs, the loop looks again this often (the call's end rings too).
constexpr Nanos kDrainPoll = 50'000'000;

// A sleeping thread of a virtual machine comes back about this much late. Before a lane's known end (std.Delay, emulated links) the loop
// therefore wakes early and polls the rest: one part in a hundred of a 10 ms hold, and an end that is on time.
constexpr Nanos kTimerLead = 100'000;

// While it is told to leave the device alone the loop asks again this often, also when nothing rings: whoever tells it so goes by these questions to
// notice that a call hangs.
constexpr Nanos kAskHeld = kNanosPerSecond;

// While the worker pauses: how long nothing moves before more may begin, at first.
constexpr Nanos kStuckAtFirst = 50'000'000;

// Pauses between questions to a device that rings no doorbell: this part of the time since something moved, within these limits.
constexpr Nanos kPollPart = 64;
constexpr Nanos kPollShortest = 20'000;
constexpr Nanos kPollLongest = 1'000'000;

}  // namespace

Executor::Executor(Options options) : options_(std::move(options)), watch_(options_.clock, options_.on_slow) {}

Executor::~Executor() {
  stop_.store(true);
  options_.doorbell->Ring();
  if (thread_.joinable()) thread_.join();
  RunCommands();
  for (Entry& e : entries_) {
    e.run->Fail(absl::CancelledError("the worker shuts down"));
    ReplanIfDue(&e);
  }
  // Calls of actors that are under way must end before their memory goes.
  while (!entries_.empty()) {
    const uint32_t seen = options_.doorbell->Snapshot();
    for (Entry& e : entries_) {
      e.run->Step();
      if (e.run->Quiescent() && !e.removed) e.removed = [] {};
    }
    if (!Reap()) options_.doorbell->Wait(seen, Clock::Real()->Now() + kDrainPoll, 0);
  }
}

void Executor::Start() {
  thread_ = std::thread([this] { Loop(); });
  watch_.Start();
}

void Executor::Post(std::function<void()> command) {
  {
    MutexLock lock(&mu_);
    commands_.push_back(std::move(command));
  }
  options_.doorbell->Ring();
}

bool Executor::RunCommands() {
  std::vector<std::function<void()>> commands;
  {
    MutexLock lock(&mu_);
    commands.swap(commands_);
  }
  for (const std::function<void()>& c : commands) c();
  return !commands.empty();
}

Executor::Entry* Executor::Find(const std::string& graph) {
  for (Entry& e : entries_) {
    if (e.run->name() == graph && !e.removed) return &e;
  }
  return nullptr;
}

void Executor::Add(std::unique_ptr<GraphRun> run) {
  auto shared = std::make_shared<std::unique_ptr<GraphRun>>(std::move(run));
  const int number = watch_.Add((*shared)->name());
  (*shared)->TellPlace(watch_.place(), number);
  Post([this, shared, number] {
    Entry e;
    e.run = std::move(*shared);
    e.number = number;
    NameOps(e);
    entries_.push_back(std::move(e));
    timing_due_ = true;
  });
}

void Executor::Abort(const std::string& graph, const absl::Status& cause) {
  Post([this, graph, cause] {
    Entry* e = Find(graph);
    if (e == nullptr) return;
    e->failure_told = true;  // who told us knows
    e->run->Fail(cause);
  });
}

void Executor::Remove(const std::string& graph, std::function<void()> done) {
  Post([this, graph, done = std::move(done)] {
    Entry* e = Find(graph);
    if (e == nullptr) {
      if (done) done();
      return;
    }
    e->failure_told = true;
    e->run->Fail(absl::CancelledError("the graph was removed"));
    ReplanIfDue(e);
    e->removed = done ? done : [] {};
  });
}

void Executor::CheckReplan(const std::string& graph, std::shared_ptr<const Plan> part,
                           std::function<void(const absl::Status&, std::shared_ptr<const Plan>)> reply) {
  Post([this, graph, part = std::move(part), reply = std::move(reply)] {
    const Entry* e = Find(graph);
    if (e == nullptr) {
      reply(absl::NotFoundError(absl::StrCat("graph ", graph, " does not run here")), nullptr);
      return;
    }
    const absl::Status status = e->run->failure().ok() ? e->run->CheckReplan(*part) : e->run->failure();
    reply(status, std::make_shared<const Plan>(e->run->plan()));
  });
}

void Executor::Replan(const std::string& graph, std::shared_ptr<const Plan> part, int64_t from,
                      std::function<void(const absl::Status&)> done) {
  Post([this, graph, part = std::move(part), from, done = std::move(done)] {
    Entry* e = Find(graph);
    if (e == nullptr) {
      done(absl::NotFoundError(absl::StrCat("graph ", graph, " does not run here")));
      return;
    }
    if (e->replanned) std::exchange(e->replanned, nullptr)(absl::CancelledError("another plan was asked for before this one's time had come"));
    e->replanned = done;
    e->next_part = part;
    e->replan_from = from;  // Turn does it, when the device may be touched
  });
}

bool Executor::ReplanIfDue(Entry* e) {
  if (!e->replanned) return false;
  absl::Status status = e->run->failure();
  if (status.ok()) {
    if (e->run->plan().hash != e->next_part->hash) {
      if (e->run->completed() < e->replan_from) return false;
      watch_.Forget(e->number);
      watch_.place()->Enter(LoopCall::kReplan, e->number);
      status = e->run->Replan(*e->next_part, e->replan_from);
      watch_.place()->Enter(LoopCall::kGraph, e->number);
      NameOps(*e);
    }
  }
  e->next_part = nullptr;
  std::exchange(e->replanned, nullptr)(status);
  return true;
}

void Executor::Inspect(const std::string& graph, std::function<void(std::vector<v1::WorkerView>)> reply) {
  Post([this, graph, reply = watch_.Ask(graph, std::move(reply))] {
    std::vector<v1::WorkerView> views;
    const std::string held = (held_ || paused_) && options_.why_held ? options_.why_held() : "";
    for (const Entry& e : entries_) {
      if (!graph.empty() && e.run->name() != graph) continue;
      views.push_back(e.run->Inspect());
      if (!held.empty() && views.back().problem().empty()) views.back().set_problem(held);
    }
    reply(std::move(views));
  });
}

void Executor::FetchTrace(const std::string& graph, int executions, std::function<void(v1::TraceTrack)> reply) {
  Post([this, graph, executions, reply = std::move(reply)] {
    v1::TraceTrack track;
    if (Entry* e = Find(graph)) {
      const Plan& plan = e->run->plan();
      track.set_worker(WorkerName(plan, plan.part_of));
      const int64_t first = executions > 0 ? std::max<int64_t>(0, e->run->completed() - executions) : 0;
      for (const TraceRecord& r : e->run->trace().Since(first)) {
        if (r.op == TraceRecord::kIteration) {
          v1::TraceEvent* t = track.add_event();
          t->set_op(r.op);
          t->set_name("captured iteration");
          t->set_kind(v1::COMPUTE);
          t->set_lane(v1::LANE_COMPUTE);
          t->set_execution(r.execution);
          t->set_start_ns(r.start);
          t->set_end_ns(r.end);
          t->set_error(r.error);
          continue;
        }
        const auto op = std::lower_bound(plan.ops.begin(), plan.ops.end(), r.op,
                                         [](const PlanOp& a, int32_t id) { return a.id < id; });
        if (op == plan.ops.end() || op->id != r.op) continue;
        v1::TraceEvent* t = track.add_event();
        t->set_op(r.op);
        t->set_name(OpName(plan, *op));
        t->set_kind(op->kind);
        t->set_lane(op->lane);
        t->set_lane_index(op->lane_index);
        t->set_execution(r.execution);
        t->set_start_ns(r.start);
        t->set_end_ns(r.end);
        t->set_error(r.error);
      }
    }
    reply(std::move(track));
  });
}

void Executor::UpdateTiming() {
  if (!std::exchange(timing_due_, false) || options_.device == nullptr) return;
  const bool traced = std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.run->trace().enabled(); });
  if (traced == timing_) return;
  timing_ = traced;
  watch_.place()->Enter(LoopCall::kTiming);
  options_.device->SetTiming(traced);
  watch_.place()->Enter(LoopCall::kCommand);
}

bool Executor::Reap() {
  bool any = false;
  for (size_t i = 0; i < entries_.size();) {
    if (entries_[i].removed && entries_[i].run->Quiescent()) {
      const std::function<void()> done = std::move(entries_[i].removed);
      Destroy(i);
      done();
      timing_due_ = any = true;
    } else {
      ++i;
    }
  }
  return any;
}

bool Executor::CheckDevice() {
  if (options_.device == nullptr || device_failed_) return false;
  watch_.place()->Enter(LoopCall::kHealth);
  const absl::Status health = options_.device->Health();
  if (health.ok()) return false;
  device_failed_ = true;
  for (Entry& e : entries_) e.run->Fail(health);
  return true;
}

void Executor::Destroy(size_t entry) {
  const int number = entries_[entry].number;
  watch_.Forget(number);
  watch_.place()->Enter(LoopCall::kRemove, number);
  entries_.erase(entries_.begin() + static_cast<int64_t>(entry));
  watch_.place()->Enter(LoopCall::kCommand);
  watch_.Remove(number);
}

void Executor::NameOps(const Entry& e) {
  // It lives until Forget.
  watch_.SetNamer(e.number, [run = e.run.get()](LoopCall call, int op) { return run->CallName(call, op); });
}

bool Executor::StepOnce() {
  LoopPlace* const place = watch_.place();
  place->SetNow(options_.clock->Now());
  place->Enter(LoopCall::kCommand);
  const bool any = Turn();
  place->Leave();
  return any;
}

bool Executor::PauseGraphs() {
  const auto at_rest = [this] { return std::none_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.run->InFlight(); }); };
  if (!options_.pauses) return !options_.holds_device || at_rest();
  const bool pauses = options_.pauses();
  for (Entry& e : entries_) e.run->Pause(pauses);
  paused_ = pauses;
  const bool rests = at_rest();
  if (!paused_ || rests) {
    stuck_at_ = Event::kUnknown;
    return rests;
  }
  // Two workers that pause may each have begun, of different graphs, what the other has not, and wait for each other. What is admitted is the same for all
  // workers of a graph and grows no more while all are stuck: whoever goes by it first waits for nothing that the others may not begin. Ever more seldom,
  // since what is slow rather than stuck must come to an end.
  const Nanos now = options_.clock->Now();
  const int64_t progress = progress_.load(std::memory_order_relaxed);
  if (stuck_at_ == Event::kUnknown) stuck_limit_ = kStuckAtFirst;
  if (stuck_at_ == Event::kUnknown || progress != moved_) {
    moved_ = progress;
    stuck_at_ = now + stuck_limit_;
  } else if (now >= stuck_at_) {
    for (Entry& e : entries_) e.run->Pause(true, /*admitted=*/true);
    stuck_limit_ *= 2;
    stuck_at_ = now + stuck_limit_;
  }
  return false;
}

bool Executor::Turn() {
  bool any = RunCommands();
  const bool at_rest = PauseGraphs();
  if (options_.holds_device) {
    watch_.place()->Enter(LoopCall::kHold);
    held_ = options_.holds_device(at_rest);
    if (held_) return any;
  }
  UpdateTiming();
  CheckDevice();
  for (Entry& e : entries_) {
    if (e.run->Step()) any = true;
    const int64_t p = e.run->progress();
    if (p != e.progress_seen) {
      progress_.fetch_add(p - e.progress_seen, std::memory_order_relaxed);
      e.progress_seen = p;
    }
    any |= ReplanIfDue(&e);
    if (!e.failure_told && !e.run->failure().ok()) {
      e.failure_told = true;
      if (options_.on_failed) options_.on_failed(*e.run, e.run->failure());
    }
    if (e.run->completed() != e.completed_told) {
      e.completed_told = e.run->completed();
      if (options_.on_completed) options_.on_completed(*e.run, e.completed_told);
    }
  }
  any |= Reap();
  // What was just found is told in the next turn, after the graphs' failures.
  const bool broke = CheckDevice();
  any |= broke;
  if (device_failed_ && !broke && options_.on_device_failed && !device_failure_told_) {
    device_failure_told_ = true;
    options_.on_device_failed(options_.device->Health());
  }
  return any;
}

Nanos Executor::NextTime() const {
  if (held_) return options_.clock->Now() + kAskHeld;
  Nanos next = stuck_at_;
  for (const Entry& e : entries_) {
    next = std::min(next, e.run->NextTime());
    if (e.removed) next = std::min(next, options_.clock->Now() + kDrainPoll);
  }
  return next;
}

void Executor::Loop() {
  pthread_setname_np(pthread_self(), "weft-loop");
  if (options_.device != nullptr) options_.device->BindThread();
  while (!stop_.load()) {
    const uint32_t seen = options_.doorbell->Snapshot();
    if (StepOnce()) {
      idle_since_ = 0;
      continue;
    }
    bool in_flight = false, must_poll = false;
    for (const Entry& e : entries_) {
      in_flight |= e.run->InFlight();
      must_poll |= !held_ && e.run->MustPoll();
    }
    if (must_poll) {
      // What a GPU does rings nothing. Asked without a pause at first; then, so that a long kernel does not cost a core, ever more seldom: the
      // answer comes late by no more than a small part of the time that has passed.
      const Nanos now = options_.clock->Now();
      if (idle_since_ == 0) idle_since_ = now;
      const Nanos idle = now - idle_since_;
      if (idle >= options_.spin) {
        options_.doorbell->Wait(seen, std::min(NextTime(), now + std::clamp(idle / kPollPart, kPollShortest, kPollLongest)), 0);
      }
      continue;
    }
    const Nanos next = NextTime();
    const bool near = next != Event::kUnknown && next - options_.clock->Now() <= kTimerLead;
    if (next == Event::kUnknown || near) {
      options_.doorbell->Wait(seen, next, near ? kTimerLead : in_flight ? options_.spin : 0);
    } else {
      options_.doorbell->Wait(seen, next - kTimerLead, in_flight ? options_.spin : 0);
    }
  }
}

}  // namespace weft
