#include "common/comm/nccl/nccl_comm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// How often joining asks NCCL for its state: a fraction of what joining takes, and a hundredth of a core.
constexpr auto kJoinPoll = std::chrono::microseconds(200);

absl::StatusCode CodeOf(int nccl) {
  switch (nccl) {
    case kNcclRemoteError:  // a peer or the network
    case kNcclSystemError:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

struct NcclComm::Core {
  explicit Core(Options o, std::string who) : options(std::move(o)), others(std::move(who)), doorbell(options.doorbell) {}

  const Options options;
  const std::string others;

  // Held around every call of NCCL but ncclCommAbort, so that the handle is not freed under one. Taken before mu.
  Mutex call_mu;
  NcclCommHandle handle WEFT_GUARDED_BY(call_mu) = nullptr;
  bool busy WEFT_GUARDED_BY(call_mu) = false;       // the last call is in progress
  std::string busy_with WEFT_GUARDED_BY(call_mu);
  std::vector<CudaGraphExecHandle> replays WEFT_GUARDED_BY(call_mu);  // none once it ends

  mutable Mutex mu;
  CondVar changed;  // cause or ended
  std::atomic<bool> failed{false};  // written under mu; read without it on the way of every op
  std::atomic<bool> ended{false};   // likewise
  absl::Status cause WEFT_GUARDED_BY(mu);
  Nanos failed_at WEFT_GUARDED_BY(mu) = 0;
  bool told_hung WEFT_GUARDED_BY(mu) = false;
  bool lost WEFT_GUARDED_BY(mu) = false;  // the abort failed
  bool has_thread WEFT_GUARDED_BY(mu) = false;
  bool aside WEFT_GUARDED_BY(mu) = false;
  bool finishing WEFT_GUARDED_BY(mu) = false;
  std::atomic<int> on_device{0};
  std::thread thread WEFT_GUARDED_BY(mu);
  std::vector<std::shared_ptr<void>> kept WEFT_GUARDED_BY(mu);
  Doorbell* doorbell WEFT_GUARDED_BY(mu);

  absl::Status Cause() const {
    if (!failed.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(&mu);
    return cause;
  }

  void RingLocked() WEFT_REQUIRES(mu) {
    if (doorbell != nullptr) doorbell->Ring();
  }

  absl::Status Error(int code, const std::string& what) WEFT_REQUIRES(call_mu) {
    const char* const text = options.api->ErrorText(code);
    const char* const last = options.api->LastError(handle);
    std::string detail = text == nullptr ? "unknown error" : text;
    if (last != nullptr && *last != '\0') absl::StrAppend(&detail, " (", last, ")");
    // Its code says so of much else, too, and its last words may be of another communicator; they are those of NCCL 2.28.
    if (code == kNcclInvalidUsage && absl::StrContains(detail, "Duplicate GPU")) absl::StrAppend(&detail, "; start each worker that shares its GPU with another with --share-gpu");
    return absl::Status(CodeOf(code), absl::StrCat(options.label, ": ", what, " with ", others, ": NCCL says ", detail));
  }

  // A thread may be hard to get just now: whoever asks for the end tries again.
  static void StartThread(const std::shared_ptr<Core>& core) WEFT_REQUIRES(core->mu) {
    if (core->has_thread || core->ended.load()) return;
    if (core->options.close_at_rest && core->on_device.load() == 0) {
      if (!core->aside) core->options.device->PutAside(absl::StrCat(core->options.label, " (ncclCommAbort)"), [core] { NcclComm::Finish(core); }, true);
      core->aside = true;
      return;
    }
    try {
      core->thread = std::thread([core] { NcclComm::Finish(core); });
      core->has_thread = true;
    } catch (const std::system_error&) {
    }
  }

  static void Fail(const std::shared_ptr<Core>& core, const absl::Status& why) WEFT_EXCLUDES(core->mu) {
    MutexLock lock(&core->mu);
    if (core->failed.load()) {
      StartThread(core);
      return;
    }
    core->cause = why.ok() ? absl::CancelledError(absl::StrCat(core->options.label, " was closed")) : why;
    core->failed_at = core->options.clock->Now();
    core->failed.store(true, std::memory_order_release);
    StartThread(core);
    core->changed.NotifyAll();
    core->RingLocked();
  }

  // Asks NCCL for its state: true when nothing is in progress. A failure ends the communicator.
  static bool Ask(const std::shared_ptr<Core>& core) WEFT_REQUIRES(core->call_mu) {
    if (core->handle == nullptr || core->failed.load(std::memory_order_acquire)) return true;
    int state = kNcclSuccess;
    const int code = core->options.api->GetAsyncError(core->handle, &state);
    const int worst = code != kNcclSuccess && code != kNcclInProgress ? code : state;
    if (worst == kNcclInProgress) return false;
    if (worst != kNcclSuccess) {
      Fail(core, core->Error(worst, core->busy ? core->busy_with : "transfers"));
    }
    core->busy = false;
    return true;
  }

  void TellHung(const absl::Status& what) WEFT_EXCLUDES(mu) {
    {
      MutexLock lock(&mu);
      if (told_hung) return;
      told_hung = true;
    }
    if (options.on_hung) options.on_hung(what);
  }
};

absl::StatusOr<std::shared_ptr<NcclComm>> NcclComm::Create(Options options) {
  const int size = static_cast<int>(options.workers.size());
  if (size < 2 || options.rank < 0 || options.rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat(options.label, ": rank ", options.rank, " of ", size, " ranks cannot be"));
  }
  std::vector<std::string> others = options.workers;
  others.erase(others.begin() + options.rank);
  std::string text = absl::StrJoin(others, ", ");
  return std::shared_ptr<NcclComm>(new NcclComm(std::move(options), std::move(text)));
}

NcclComm::NcclComm(Options options, std::string others)
    : options_(std::move(options)), others_(std::move(others)), core_(std::make_shared<Core>(options_, others_)) {}

NcclComm::~NcclComm() {
  Abort(absl::CancelledError(absl::StrCat(options_.label, " was closed")));
  bool has_thread = false;
  {
    MutexLock lock(&core_->mu);
    has_thread = core_->has_thread;
    if (core_->aside && !has_thread) {
      core_->doorbell = nullptr;
      return;
    }
  }
  if (!has_thread && !core_->ended.load()) Finish(core_);  // there is no thread to be had: here, then
  const Nanos until = Clock::Real()->Now() + options_.abort_limit;
  std::thread thread;
  {
    MutexLock lock(&core_->mu);
    while (!core_->ended.load() && Clock::Real()->Now() < until) {
      core_->changed.WaitFor(&core_->mu, std::chrono::nanoseconds(std::max<Nanos>(1, until - Clock::Real()->Now())));
    }
    core_->doorbell = nullptr;
    thread = std::move(core_->thread);
  }
  if (!thread.joinable()) return;
  if (core_->ended.load()) {
    thread.join();
    return;
  }
  core_->TellHung(absl::DeadlineExceededError(absl::StrCat(options_.label, ": ncclCommAbort hangs; restart ", options_.workers[options_.rank])));
  thread.detach();  // it holds what it needs
}

absl::Status NcclComm::Join(const NcclId& id, Nanos deadline) {
  {
    MutexLock call(&core_->call_mu);
    WEFT_RETURN_IF_ERROR(core_->Cause());
    core_->busy_with = "joining";
    const int code = options_.api->CommInit(&core_->handle, size(), id, rank(), options_.max_ctas);
    if (code != kNcclSuccess && code != kNcclInProgress) {
      Core::Fail(core_, core_->Error(code, core_->busy_with));
      return cause();
    }
    core_->busy = true;
  }
  while (!Settled()) {
    if (options_.clock->Now() >= deadline) {
      Abort(absl::DeadlineExceededError(absl::StrCat(options_.label, ": not all of ", others_, " joined in time; NCCL does not say what is missing, "
                                                     "NCCL_DEBUG=INFO on the workers does")));
      break;
    }
    MutexLock lock(&core_->mu);
    if (!core_->failed.load()) core_->changed.WaitFor(&core_->mu, kJoinPoll);
  }
  return cause();
}

absl::Status NcclComm::Call(const std::string& what, const std::function<int(NcclApi*, NcclCommHandle)>& call) {
  MutexLock lock(&core_->call_mu);
  WEFT_RETURN_IF_ERROR(core_->Cause());
  if (core_->handle == nullptr || core_->busy) {
    return absl::InternalError(absl::StrCat(options_.label, ": ", what, " while ",
                                            core_->handle == nullptr ? "it has not joined" : absl::StrCat(core_->busy_with, " is under way")));
  }
  const int code = call(options_.api, core_->handle);
  if (code == kNcclSuccess) return absl::OkStatus();
  core_->busy_with = what;
  if (code == kNcclInProgress) {
    core_->busy = true;
    return absl::OkStatus();
  }
  const absl::Status error = core_->Error(code, what);
  Core::Fail(core_, error);
  return error;
}

int NcclComm::AddReplay(CudaGraphExecHandle captured) {
  {
    MutexLock lock(&core_->call_mu);
    if (core_->handle != nullptr) {
      core_->replays.push_back(captured);
      return static_cast<int>(core_->replays.size()) - 1;
    }
  }
  (void)options_.device->Check(options_.device->api()->GraphExecDestroy(captured), absl::StrCat(options_.label, ": freeing a captured call"));
  return 0;  // Replay will say that it has ended
}

absl::Status NcclComm::Replay(int number, const std::string& what, CudaStreamHandle stream) {
  MutexLock lock(&core_->call_mu);
  WEFT_RETURN_IF_ERROR(core_->Cause());
  if (core_->handle == nullptr || core_->busy || number < 0 || number >= static_cast<int>(core_->replays.size())) {
    return absl::InternalError(absl::StrCat(options_.label, ": ", what, " cannot be captured call ", number));
  }
  const absl::Status launched =
      options_.device->Check(options_.device->api()->GraphLaunch(core_->replays[static_cast<size_t>(number)], stream),
                             absl::StrCat(options_.label, ": ", what, " with ", others_));
  if (!launched.ok()) Core::Fail(core_, launched);
  return launched;
}

bool NcclComm::Settled() {
  MutexLock lock(&core_->call_mu);
  return !core_->busy || Core::Ask(core_);
}

void NcclComm::Abort(const absl::Status& cause) { Core::Fail(core_, cause); }

absl::Status NcclComm::cause() const { return core_->Cause(); }

absl::Status NcclComm::Health() {
  if (!core_->failed.load(std::memory_order_acquire)) {
    MutexLock lock(&core_->call_mu);
    Core::Ask(core_);
  }
  return core_->Cause();
}

void NcclComm::Begin() { core_->on_device.fetch_add(1); }
void NcclComm::End() { core_->on_device.fetch_sub(1); }

bool NcclComm::Ended() {
  if (core_->ended.load(std::memory_order_acquire)) return true;
  if (!core_->failed.load(std::memory_order_acquire)) return false;
  Nanos since = 0;
  {
    MutexLock lock(&core_->mu);
    Core::StartThread(core_);
    if (!core_->has_thread) return core_->ended.load();
    since = core_->failed_at;
  }
  if (options_.clock->Now() - since > options_.abort_limit) {
    core_->TellHung(absl::DeadlineExceededError(absl::StrCat(options_.label, ": ncclCommAbort has not returned after ", ToSeconds(options_.abort_limit),
                                                             " s (", std::string(cause().message()), "); restart ",
                                                             options_.workers[options_.rank])));
  }
  return core_->ended.load(std::memory_order_acquire);
}

std::string NcclComm::EndWaitsFor() const {
  MutexLock lock(&core_->mu);
  if (!core_->failed.load() || core_->ended.load()) return "";
  return absl::StrFormat("abort of %s (%s), for %.1f s", options_.label, std::string(core_->cause.message()),
                         ToSeconds(options_.clock->Now() - core_->failed_at));
}

void NcclComm::KeepUntilEnded(std::shared_ptr<void> memory) {
  if (memory == nullptr) return;
  MutexLock lock(&core_->mu);
  if (!core_->ended.load() || core_->lost) core_->kept.push_back(std::move(memory));
}

void NcclComm::Finish(const std::shared_ptr<Core>& core) {
  {
    MutexLock lock(&core->mu);
    if (core->finishing) return;  // put aside, and then begun by a thread
    core->finishing = true;
  }
  core->options.device->BindThread();
  NcclCommHandle handle = nullptr;
  std::vector<CudaGraphExecHandle> replays;
  {
    MutexLock call(&core->call_mu);
    std::swap(handle, core->handle);
    replays.swap(core->replays);
  }
  for (const CudaGraphExecHandle r : replays) {
    // What is under way of it ends with the abort, and only then is it gone.
    (void)core->options.device->Check(core->options.device->api()->GraphExecDestroy(r), absl::StrCat(core->options.label, ": freeing a captured call"));
  }
  const int code = handle == nullptr ? kNcclSuccess : core->options.api->CommAbort(handle);
  const bool lost = code != kNcclSuccess && code != kNcclInProgress;
  std::vector<std::shared_ptr<void>> kept;  // goes before anyone hears of the end
  if (!lost) {
    MutexLock lock(&core->mu);
    kept.swap(core->kept);
  }
  kept.clear();
  if (lost) {
    // Nobody knows what still runs: better to lose the memory than to give it to someone else.
    static Mutex* const lost_mu = new Mutex;
    static std::vector<std::shared_ptr<Core>>* const lost_cores = new std::vector<std::shared_ptr<Core>>;
    {
      MutexLock lock(lost_mu);
      lost_cores->push_back(core);
    }
    core->TellHung(absl::InternalError(absl::StrCat(core->options.label, ": ncclCommAbort failed: ", core->options.api->ErrorText(code), "; restart ",
                                                    core->options.workers[core->options.rank])));
  }
  MutexLock lock(&core->mu);
  if (!lost) kept.swap(core->kept);  // what came meanwhile; freed after the lock
  core->lost = lost;
  core->ended.store(true, std::memory_order_release);
  core->changed.NotifyAll();
  core->RingLocked();
}

}  // namespace weft
