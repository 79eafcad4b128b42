#include "client/cli/telling_wait.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/console.h"
#include "common/base/parse.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// How long a wait may last before the driver is asked, and between two questions.
constexpr double kPaceS = 1;
// A slice of waiting, after which the progress line is renewed.
constexpr double kSliceS = 0.5;
constexpr double kAnswerWithinS = 1;
// A worker that was heard of later than this much after what was said of it has answered in between.
constexpr Nanos kSameSilence = 2 * kNanosPerSecond;
// Of a stalled graph so many lanes are shown.
constexpr size_t kStalledLines = 24;

const v1::WorkerInfo* Find(const v1::ListWorkersReply& workers, const std::string& name) {
  for (const v1::WorkerInfo& w : workers.worker()) {
    if (w.name() == name) return &w;
  }
  return nullptr;
}

// Indented, and the first lines alone of what is long.
std::string Block(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const size_t shown = std::min(lines.size(), kStalledLines);
  std::string block = absl::StrJoin(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown), "\n  ");
  if (shown < lines.size()) absl::StrAppend(&block, "\n  ... ", lines.size() - shown, " more");
  return block;
}

}  // namespace

AskDriver AskThrough(Client* client) {
  return [client]() -> absl::StatusOr<DriverState> {
    DriverState state;
    WEFT_ASSIGN_OR_RETURN(state.graphs, client->ListGraphs(kAnswerWithinS));
    WEFT_ASSIGN_OR_RETURN(state.workers, client->ListWorkers(kAnswerWithinS));
    return state;
  };
}

std::string WorkerWithPid(const v1::ListWorkersReply& workers, const std::string& worker) {
  const v1::WorkerInfo* w = Find(workers, worker);
  return absl::StrCat("worker ", worker, w == nullptr ? "" : absl::StrCat(" (pid ", w->pid(), ")"));
}

std::string AdviceForSilent(const v1::ListWorkersReply& workers, const std::string& worker) {
  const v1::WorkerInfo* w = Find(workers, worker);
  if (w == nullptr) return " Nothing fails for that, since it may go on: `weft workers` shows its process and host.";
  if (w->state() == "lost") return "";
  const int64_t pid = w->pid();
  return absl::StrCat(" Nothing fails for that, since it may go on: on its host, see whether process ", pid, " is stopped (\"kill -CONT ",
                      pid, "\" lets it go on); \"kill -9 ", pid, "\" ends it, and its graphs fail.");
}

TellingWait::TellingWait(ClientSession* session, std::string graph, AskDriver ask)
    : TellingWait(session, std::move(graph), std::move(ask), Clock::Real(), Complain) {}

TellingWait::TellingWait(ClientSession* session, std::string graph, AskDriver ask, const Clock* clock, Tell tell)
    : session_(session), graph_(std::move(graph)), ask_(std::move(ask)), clock_(clock), tell_(std::move(tell)) {}

absl::StatusOr<ExecutionResult> TellingWait::Wait(ClientSession::Handle handle, double limit_s, ProgressLine* progress,
                                                 const Doing& doing) {
  const Nanos begin = clock_->Now();
  asked_at_ = begin;
  for (;;) {
    const double waited = ToSeconds(clock_->Now() - begin);
    if (waited >= limit_s && !session_->Ready(handle)) {
      return absl::DeadlineExceededError(absl::StrCat("no result after ", FormatSeconds(waited), ", nor a word from the driver"));
    }
    progress->Update(doing(waited));
    // Without taking the result: a result may itself be DeadlineExceeded.
    const auto ready = session_->WaitAny({handle}, std::max(0.0, std::min(kSliceS, limit_s - waited)));
    if (ready.ok() || !absl::IsDeadlineExceeded(ready.status())) return session_->Wait(handle, 0);
    if (ask_ != nullptr && ToSeconds(clock_->Now() - asked_at_) >= kPaceS) Ask(progress);
  }
}

void TellingWait::Ask(ProgressLine* progress) {
  const auto state = ask_();
  asked_at_ = clock_->Now();
  // If the driver has gone, the session ends and says so.
  if (!state.ok()) return;
  for (const std::string& text : News(*state)) {
    progress->Clear();
    tell_(text);
  }
}

std::vector<std::string> TellingWait::News(const DriverState& state) {
  std::vector<std::string> news;
  const Nanos now = clock_->Now();
  std::map<std::string, Nanos> silent;
  for (const v1::WorkerInfo& w : state.workers.worker()) {
    if (w.state() != "unresponsive" || std::find(w.graph().begin(), w.graph().end(), graph_) == w.graph().end()) continue;
    const Nanos heard = now - FromSeconds(w.heartbeat_age_s());
    const auto told = silent_.find(w.name());
    silent[w.name()] = heard;
    if (told != silent_.end() && heard < told->second + kSameSilence) {
      silent[w.name()] = told->second;
      continue;
    }
    news.push_back(absl::StrCat("graph \"", graph_, "\" waits: ", WorkerWithPid(state.workers, w.name()),
                                " is unresponsive, no heartbeat for ",
                                absl::StrFormat("%.1f s.", w.heartbeat_age_s()), AdviceForSilent(state.workers, w.name())));
  }
  silent_.swap(silent);
  std::string stalled;
  for (const v1::GraphInfo& g : state.graphs.graph()) {
    if (g.name() == graph_) stalled = g.stalled();
  }
  if (!stalled.empty() && stalled != stalled_) {
    news.push_back(absl::StrCat("graph \"", graph_, "\" is stalled: ", Block(stalled), "\n  How it is now: `weft inspect ", graph_, "`"));
  }
  stalled_ = stalled;
  return news;
}

}  // namespace weft
