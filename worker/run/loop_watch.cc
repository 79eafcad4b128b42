#include "worker/run/loop_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"

namespace weft {
namespace {

// Between two calls of Check: while an answer is awaited, and otherwise.
constexpr std::chrono::milliseconds kAwake(50);
constexpr std::chrono::milliseconds kIdle(1000);

}  // namespace

LoopWatch::LoopWatch(const Clock* clock, std::function<void(const std::string&)> log)
    : clock_(clock), log_(log ? std::move(log) : [](const std::string& text) { SPDLOG_WARN("{}", text); }) {}

LoopWatch::~LoopWatch() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    asked_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void LoopWatch::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void LoopWatch::Loop() {
  while (true) {
    const bool awaited = Check();
    MutexLock lock(&mu_);
    if (stop_) return;
    // A question that came since Check has found nobody waiting.
    if (awaited || questions_.empty()) asked_.WaitFor(&mu_, awaited ? kAwake : kIdle);
    if (stop_) return;
  }
}

int LoopWatch::Add(const std::string& graph) {
  MutexLock lock(&mu_);
  do {
    next_graph_ = next_graph_ % LoopPlace::kMaxGraph + 1;
  } while (graphs_.count(next_graph_) > 0);
  graphs_[next_graph_].name = graph;
  return next_graph_;
}

void LoopWatch::SetNamer(int graph, Namer namer) {
  MutexLock lock(&mu_);
  graphs_[graph].namer = std::move(namer);
}

void LoopWatch::Forget(int graph) { SetNamer(graph, nullptr); }

void LoopWatch::Remove(int graph) {
  MutexLock lock(&mu_);
  graphs_.erase(graph);
}

LoopWatch::Reply LoopWatch::Ask(const std::string& graph, Reply reply) {
  const auto question = std::make_shared<Question>();
  question->graph = graph;
  question->asked = clock_->Now();
  question->reply = std::move(reply);
  {
    MutexLock lock(&mu_);
    questions_.push_back(question);
    asked_.NotifyAll();
  }
  return [question](std::vector<v1::WorkerView> views) { question->Answer(std::move(views)); };
}

std::string LoopWatch::WhereText(const LoopPlace::View& v) const {
  const auto it = graphs_.find(v.graph);
  const std::string graph = it == graphs_.end() ? "a graph that has gone" : absl::StrCat("graph ", it->second.name);
  const Namer namer = it == graphs_.end() ? nullptr : it->second.namer;
  const auto op = [&] {
    const std::string name = namer ? namer(v.call, v.op) : "an op";
    return absl::StrCat(name, " (execution ", v.execution, " of ", graph, ")");
  };
  switch (v.call) {
    case LoopCall::kNone:
      return "nothing";
    case LoopCall::kCommand:
      return "a command of the driver's";
    case LoopCall::kHold:
      return "finding out what can be given back to the device";
    case LoopCall::kHealth:
      return "asking the device for its health";
    case LoopCall::kTiming:
      return "tying the device's clock to the host's";
    case LoopCall::kGraph:
      return absl::StrCat("looking after ", graph);
    case LoopCall::kPoll:
      return absl::StrCat("finding out whether ", op(), " may be issued");
    case LoopCall::kIssue:
      return op();
    case LoopCall::kComplete:
      return absl::StrCat("finding out whether ", op(), " is done");
    case LoopCall::kIterations:
      return absl::StrCat("launching or ending captured iterations of ", graph, " (execution ", v.execution, " is next)");
    case LoopCall::kFail:
      return absl::StrCat("closing the links and communicators of ", graph);
    case LoopCall::kReplan:
      return absl::StrCat("changing the plan of ", graph);
    case LoopCall::kRemove:
      return absl::StrCat("giving back what ", graph, " held");
  }
  return "something unnamed";
}

std::string LoopWatch::StuckText(const LoopPlace::View& v, Nanos since, Nanos now) const {
  return absl::StrFormat(
      "the worker's loop has been inside %s for %.1f s, and serves nothing else until that call returns: if it never does, end process %d, and its "
      "supervisor starts it anew (where it hangs: gdb -p %d, thread weft-loop)",
      WhereText(v), ToSeconds(now - since), getpid(), getpid());
}

std::vector<v1::WorkerView> LoopWatch::Views(const std::string& graph, const std::string& problem) const {
  std::vector<v1::WorkerView> views;
  const auto add = [&](const std::string& name) {
    v1::WorkerView& v = views.emplace_back();
    v.set_graph(name);
    v.set_problem(problem);
  };
  for (const auto& [number, g] : graphs_) {
    if (graph.empty() || g.name == graph) add(g.name);
  }
  // Whoever asks for a graph that has not come to the loop wants to know why.
  if (views.empty()) add(graph);
  return views;
}

bool LoopWatch::Check() {
  std::vector<std::pair<std::shared_ptr<Question>, std::vector<v1::WorkerView>>> answers;
  std::string log;
  bool awaited = false;
  {
    MutexLock lock(&mu_);
    const Nanos now = clock_->Now();
    const std::optional<LoopPlace::View> view = place_.Read();
    const bool moved = !view.has_value() || view->sequence != seen_.sequence;
    if (moved) {
      if (seen_.told) log = absl::StrFormat("the worker's loop goes on: the call has returned, after at most %.1f s", ToSeconds(now - seen_.since));
      const Nanos looked = seen_.looked;
      seen_ = Seen();
      seen_.sequence = view.has_value() ? view->sequence : 1;  // that no view has
      seen_.changed = looked;
    }
    seen_.looked = now;
    const bool inside = view.has_value() && view->call != LoopCall::kNone;
    const Nanos since = inside ? std::max(view->since, seen_.changed) : now;
    if (inside && !moved && !seen_.told && now - since >= kSlow) {
      seen_.told = true;
      seen_.since = since;
      log = StuckText(*view, since, now);
    }
    std::vector<std::shared_ptr<Question>> open;
    for (std::shared_ptr<Question>& q : questions_) {
      if (q->answered.load()) continue;
      const Nanos waited = now - q->asked;
      const bool stuck = inside && !moved && since <= q->asked + kStuck / 2;
      if (stuck && waited >= kStuck) {
        answers.emplace_back(q, Views(q->graph, StuckText(*view, since, now)));
      } else if (waited >= kLate) {
        answers.emplace_back(q, Views(q->graph, absl::StrFormat("the worker's loop has not answered for %.1f s, though it is stuck in no call: this machine has no time "
                                                                "for it, or one call follows another%s",
                                                                ToSeconds(waited), inside ? absl::StrCat("; it is inside ", WhereText(*view)) : "")));
      } else {
        open.push_back(std::move(q));
      }
    }
    questions_ = std::move(open);
    awaited = !questions_.empty();
  }
  if (!log.empty()) log_(log);
  for (auto& [question, views] : answers) question->Answer(std::move(views));
  return awaited;
}

}  // namespace weft
