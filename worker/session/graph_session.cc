#include "worker/session/graph_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

// A part of a plan larger than this is refused: kMaxOps ops take far less.
constexpr size_t kMaxPlanBytes = size_t{1} << 30;
// Trace records kept per graph: 40 MiB at most, taken as they come.
constexpr size_t kTraceRecords = size_t{1} << 20;
// Memory of graphs that have just ended may be what is missing; it goes back to CUDA when nothing is under way.
constexpr Nanos kMemoryPatience = 5 * kNanosPerSecond;

// What all replies about an attempt say.
template <typename Reply>
void Fill(Reply* r, const std::string& graph, const std::string& attempt, const absl::Status& status) {
  r->set_graph(graph);
  r->set_attempt(attempt);
  r->set_code(static_cast<int>(status.code()));
  r->set_message(std::string(status.message()));
}

}  // namespace

GraphSession::GraphSession(WorkerEnv* env, std::shared_ptr<const Registration> registration, std::shared_ptr<v1::WorkerService::Stub> stub,
                           std::string graph, std::string attempt, std::function<void(v1::WorkerMessage)> send, bool held)
    : env_(env),
      registration_(std::move(registration)),
      stub_(std::move(stub)),
      graph_(std::move(graph)),
      attempt_(std::move(attempt)),
      send_(std::move(send)),
      held_(held) {
  if (held) Doing("waits for the attempt before it to end on this worker");
  thread_ = std::thread([this] { Loop(); });
}

GraphSession::~GraphSession() {
  if (thread_.joinable()) End();
}

void GraphSession::End() {
  Cancel(absl::CancelledError("the graph was removed"));
  {
    MutexLock lock(&mu_);
    stop_ = true;
    cv_.NotifyAll();
  }
  thread_.join();
  run_.reset();
  loader_.reset();
}

void GraphSession::LetGo() {
  MutexLock lock(&mu_);
  held_ = false;
  cv_.NotifyAll();
}

void GraphSession::Post(std::function<void()> step) {
  MutexLock lock(&mu_);
  steps_.push_back(std::move(step));
  cv_.NotifyAll();
}

void GraphSession::Loop() {
  env_->device->BindThread();
  while (true) {
    std::function<void()> step;
    {
      MutexLock lock(&mu_);
      while ((steps_.empty() || held_) && !stop_) cv_.Wait(&mu_);
      if (stop_) return;
      step = std::move(steps_.front());
      steps_.pop_front();
    }
    step();
  }
}

void GraphSession::Cancel(const absl::Status& cause) { cancel_.Set(cause); }

void GraphSession::Doing(std::string what) {
  MutexLock lock(&mu_);
  doing_ = std::move(what);
  doing_since_ = env_->clock->Now();
}

std::optional<v1::WorkerView> GraphSession::View() const {
  MutexLock lock(&mu_);
  if (doing_.empty()) return std::nullopt;
  v1::WorkerView view;
  view.set_graph(graph_);
  view.set_worker(registration_->worker_name);
  view.set_problem(absl::StrFormat("bootstrap: it %s, for %.1f s", doing_, ToSeconds(env_->clock->Now() - doing_since_)));
  return view;
}

void GraphSession::Load(const v1::LoadPlan& piece) {
  if (bytes_.size() + piece.piece().size() <= kMaxPlanBytes) bytes_ += piece.piece();
  trace_ = piece.trace();
  if (piece.last()) Post([this] { DoLoad(); });
}

void GraphSession::DoLoad() {
  Doing("loads its part of the plan");
  absl::Status status;
  std::string hash;
  v1::Plan proto;
  if (!proto.ParseFromString(bytes_)) {
    status = absl::InvalidArgumentError("the plan's bytes do not parse, or exceed 1 GiB");
  } else {
    absl::StatusOr<Plan> plan = PlanFromProto(proto);
    if (!plan.ok()) {
      status = plan.status();
    } else {
      hash = plan->hash;
      wants_completed_.store(plan->reports_completion);
      loader_ = std::make_unique<GraphLoader>(env_, registration_, stub_, *plan, attempt_, &cancel_);
      status = loader_->Prepare();
      if (absl::IsResourceExhausted(status) && env_->quiet != nullptr && env_->cuda->HasAside()) {
        loader_.reset();
        Doing(absl::StrCat("waits, at most ", ToSeconds(kMemoryPatience), " s, until the graphs of this worker rest, so that memory of graphs that have ended "
                           "can be given back to CUDA"));
        const bool all = env_->quiet->Await(kMemoryPatience);
        Doing("loads its part of the plan");
        loader_ = std::make_unique<GraphLoader>(env_, registration_, stub_, *std::move(plan), attempt_, &cancel_);
        status = loader_->Prepare();
        if (absl::IsResourceExhausted(status) && !all) {
          status = absl::ResourceExhaustedError(absl::StrCat(std::string(status.message()), "; memory of graphs that have ended is not free yet, since "
                                                             "others on this worker never rest: try again when they do"));
        }
      }
    }
  }
  if (status.ok()) {
    Doing("loads device code, for which the graphs of this worker must rest");
    status = loader_->LoadCode();
  }
  bytes_.clear();
  bytes_.shrink_to_fit();
  if (!status.ok()) SPDLOG_WARN("graph {} attempt {}: load failed: {}", graph_, attempt_, std::string(status.message()));
  v1::WorkerMessage m;
  Fill(m.mutable_load_reply(), graph_, attempt_, status);
  m.mutable_load_reply()->set_plan_hash(hash);
  Doing(status.ok() ? "has loaded its part of the plan and waits for the driver's word to connect" : "has failed");
  send_(std::move(m));
}

void GraphSession::Connect(const v1::Connect& c) {
  Post([this, c] { DoConnect(c); });
}

void GraphSession::DoConnect(const v1::Connect& c) {
  const absl::Status status = ConnectGraph(c);
  if (!status.ok()) SPDLOG_WARN("graph {} attempt {}: connect failed: {}", graph_, attempt_, std::string(status.message()));
  v1::WorkerMessage m;
  Fill(m.mutable_connect_reply(), graph_, attempt_, status);
  Doing(status.ok() ? "has met its peers and waits for the driver's word to start" : "has failed");
  send_(std::move(m));
}

absl::Status GraphSession::ConnectGraph(v1::Connect c) {
  if (loader_ == nullptr) return absl::FailedPreconditionError("told to connect before the plan was loaded");
  std::shared_ptr<void> use;
  if (env_->quiet != nullptr) {
    Doing("waits until memory of graphs that have ended is given back to CUDA");
    const Nanos deadline = env_->clock->Now() + FromSeconds(c.timeout_s());
    WEFT_ASSIGN_OR_RETURN(use, env_->quiet->Use(deadline, [this] { return cancel_.Get(); }));
    c.set_timeout_s(ToSeconds(deadline - env_->clock->Now()));
  }
  Doing("connects to its peers and tries every edge once");
  WEFT_ASSIGN_OR_RETURN(LoadedGraph loaded, loader_->Connect(c));
  Doing(IsCaptured(loaded.plan, loaded.plan.part_of) ? "prepares to run: its iterations are captured" : "prepares to run");
  GraphRun::Options o;
  o.clock = env_->clock;
  o.device = env_->device;
  o.trace_capacity = trace_ ? kTraceRecords : 0;
  o.attempt = attempt_;
  WEFT_ASSIGN_OR_RETURN(run_, GraphRun::Create(std::move(loaded), o));
  return absl::OkStatus();
}

void GraphSession::Start() {
  Post([this] { DoStart(); });
}

void GraphSession::DoStart() {
  if (run_ == nullptr) return;  // the failed Connect was answered; a late Start is normal
  loader_->Started();
  env_->executor->Add(std::move(run_));
  Doing("");
  // An abort that came in between must not be lost.
  const absl::Status cancelled = cancel_.Get();
  if (!cancelled.ok()) env_->executor->Abort(graph_, cancelled);
  v1::WorkerMessage m;
  m.mutable_start_reply()->set_graph(graph_);
  m.mutable_start_reply()->set_attempt(attempt_);
  send_(std::move(m));
}

void GraphSession::Next(const v1::NextPlan& piece) {
  if (next_bytes_.size() + piece.piece().size() <= kMaxPlanBytes) next_bytes_ += piece.piece();
  if (piece.last()) Post([this, bytes = std::exchange(next_bytes_, std::string())]() mutable { DoNext(std::move(bytes)); });
}

void GraphSession::DoNext(std::string bytes) {
  const auto answer = [send = send_, graph = graph_, attempt = attempt_](const absl::Status& status, const std::string& hash) {
    if (!status.ok()) SPDLOG_WARN("graph {} cannot change its plan: {}", graph, std::string(status.message()));
    v1::WorkerMessage m;
    Fill(m.mutable_next_plan_reply(), graph, attempt, status);
    m.mutable_next_plan_reply()->set_plan_hash(hash);
    send(std::move(m));
  };
  v1::Plan proto;
  if (!proto.ParseFromString(bytes)) return answer(absl::InvalidArgumentError("the plan's bytes do not parse, or exceed 1 GiB"), "");
  absl::StatusOr<Plan> plan = PlanFromProto(proto);
  if (!plan.ok()) return answer(plan.status(), "");
  const auto next = std::make_shared<const Plan>(*std::move(plan));
  env_->executor->CheckReplan(graph_, next, [plans = plans_, next, answer](const absl::Status& status, std::shared_ptr<const Plan> current) {
    if (status.ok()) {
      MutexLock lock(&plans->mu);
      plans->by_hash = {{current->hash, current}, {next->hash, next}};
    }
    answer(status, next->hash);
  });
}

void GraphSession::Swap(const v1::SwapPlan& s) {
  Post([this, s] { DoSwap(s); });
}

void GraphSession::DoSwap(const v1::SwapPlan& s) {
  const auto answer = [send = send_, graph = graph_, attempt = attempt_, hash = s.plan_hash()](const absl::Status& status) {
    if (!status.ok()) SPDLOG_WARN("graph {} has not changed to plan {}: {}", graph, hash, std::string(status.message()));
    v1::WorkerMessage m;
    Fill(m.mutable_swap_reply(), graph, attempt, status);
    m.mutable_swap_reply()->set_plan_hash(hash);
    send(std::move(m));
  };
  std::shared_ptr<const Plan> part;
  {
    MutexLock lock(&plans_->mu);
    const auto it = plans_->by_hash.find(s.plan_hash());
    if (it != plans_->by_hash.end()) part = it->second;
  }
  if (part == nullptr) {
    return answer(absl::FailedPreconditionError(absl::StrCat("plan ", s.plan_hash(), " is neither the one that runs nor the one that came last")));
  }
  env_->executor->Replan(graph_, std::move(part), s.execution(), answer);
}

}  // namespace weft
