#include "worker/session/agent.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "worker/session/grpc_status.h"

namespace weft {
namespace {

constexpr Nanos kFirstBackoff = 50'000'000;
constexpr Nanos kLastBackoff = kNanosPerSecond;

bool IsForGood(const absl::Status& s) {
  return absl::IsPermissionDenied(s) || absl::IsInvalidArgument(s) || absl::IsUnauthenticated(s);
}

}  // namespace

Agent::Agent(Options options, WorkerEnv* env)
    : options_(std::move(options)), env_(env), incarnation_(NewIncarnation()), name_(options_.name) {}

Agent::~Agent() = default;

void Agent::Stop(Nanos linger) {
  MutexLock lock(&mu_);
  stop_.store(true);
  stopped_.NotifyAll();
  if (linger > 0) {
    outbox_.Finish();
    const Nanos until = env_->clock->Now() + linger;
    for (Nanos left = linger; context_ != nullptr && left > 0; left = until - env_->clock->Now()) {
      stopped_.WaitFor(&mu_, std::chrono::nanoseconds(left));
    }
  }
  if (context_ != nullptr) context_->TryCancel();
}

absl::Status Agent::Run() {
  const absl::Status s = Serve();
  DropAllGraphs(absl::CancelledError("the worker shuts down"));
  JoinClosings(/*all=*/true);
  return s;
}

absl::Status Agent::Serve() {
  Nanos backoff = kFirstBackoff;
  Nanos refused_since = -1;
  std::string said;
  while (!stop_.load()) {
    bool welcomed = false;
    const absl::Status s = Session(&welcomed);
    if (stop_.load()) break;
    const Nanos now = env_->clock->Now();
    if (welcomed) {
      DropAllGraphs(absl::UnavailableError(absl::StrCat("the driver at ", options_.driver, " is gone: its control stream closed")));
      SPDLOG_WARN("lost the driver at {} ({}); dialing again", options_.driver, std::string(s.message()));
      backoff = kFirstBackoff;
      refused_since = -1;
      said.clear();
    } else if (IsForGood(s)) {
      return s;
    } else if (absl::IsAlreadyExists(s)) {
      // A restarted worker may be back before the driver has noticed that its former life is over.
      if (refused_since < 0) refused_since = now;
      if (now - refused_since > options_.refused_timeout) return s;
    }
    // Each cause once.
    if (const std::string cause = s.ToString(); !welcomed && cause != said) {
      if (absl::IsUnavailable(s)) {
        SPDLOG_INFO("no driver at {} yet ({}); dialing until there is one", options_.driver, std::string(s.message()));
      } else {
        SPDLOG_WARN("the driver at {} does not take this worker: {}; dialing again", options_.driver, std::string(s.message()));
      }
      said = cause;
    }
    MutexLock lock(&mu_);
    if (!stop_.load()) stopped_.WaitFor(&mu_, std::chrono::nanoseconds(backoff));
    backoff = std::min(backoff * 2, kLastBackoff);
  }
  return absl::OkStatus();
}

v1::WorkerMessage Agent::NewMessage() const {
  v1::WorkerMessage m;
  m.set_incarnation(incarnation_);
  return m;
}

absl::Status Agent::Session(bool* welcomed) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a fresh dial at every attempt, no shared backoff
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  stub_ = v1::WorkerService::NewStub(grpc::CreateCustomChannel(options_.driver, grpc::InsecureChannelCredentials(), args));
  grpc::ClientContext context;
  if (!options_.token.empty()) context.AddMetadata("weft-token", options_.token);
  {
    MutexLock lock(&mu_);
    if (stop_.load()) return absl::CancelledError("stopped");
    context_ = &context;
  }
  const auto forget = [this] {
    MutexLock lock(&mu_);
    context_ = nullptr;
    stopped_.NotifyAll();
  };
  auto stream = stub_->Session(&context);
  v1::WorkerMessage hello = NewMessage();
  v1::Register* r = hello.mutable_register_();
  r->set_name(name_);
  r->set_host_id(options_.host_id);
  r->set_device(options_.device);
  r->set_pid(getpid());
  r->set_shm_address(env_->hub->address());
  for (const std::string& c : env_->registry->Classes()) r->add_class_(c);
  r->set_plan_version(kPlanVersion);
  r->set_data_address(options_.data_address);
  stream->Write(hello);

  v1::DriverMessage m;
  std::thread writer;
  const bool answered = stream->Read(&m);
  if (answered && m.has_welcome()) {
    *welcomed = true;
    name_ = m.welcome().name();  // kept over reconnections
    registration_ = std::make_shared<const Registration>(
        Registration{name_, incarnation_, m.welcome().driver_host_id(), m.welcome().driver_shm_address()});
    heartbeat_interval_.store(std::clamp<Nanos>(FromSeconds(m.welcome().heartbeat_interval_s()), 10'000'000, 60 * kNanosPerSecond));
    SPDLOG_INFO("registered as {} with the driver at {}", name_, options_.driver);
    opening_ = outbox_.Open();
    writer = std::thread([this, &stream] { WriteLoop(stream.get()); });
    while (stream->Read(&m)) Handle(m);
  }
  outbox_.Close();
  // A driver that refuses has ended the stream, and said why: cancelled now, that would not be heard.
  if (answered) context.TryCancel();
  if (writer.joinable()) writer.join();
  const grpc::Status status = stream->Finish();
  forget();
  return FromGrpc(status);
}

void Agent::WriteLoop(grpc::ClientReaderWriter<v1::WorkerMessage, v1::DriverMessage>* stream) {
  Nanos last = 0;
  while (!outbox_.closed()) {
    const Nanos now = env_->clock->Now();
    const Nanos interval = heartbeat_interval_.load();
    if (now - last >= interval) {
      v1::WorkerMessage beat = NewMessage();
      beat.mutable_heartbeat()->set_progress(env_->executor->progress());
      if (env_->quiet != nullptr) env_->quiet->LookAgain();
      if (!stream->Write(beat)) return;
      last = now;
      continue;
    }
    std::optional<v1::WorkerMessage> m = outbox_.Pop(std::chrono::nanoseconds(interval - (now - last)));
    if (m.has_value() && !stream->Write(*m)) return;
    if (outbox_.finished()) {
      stream->WritesDone();  // the driver reads all of it, and ends the stream
      return;
    }
  }
}

void Agent::Handle(const v1::DriverMessage& m) {
  const auto send = [this, opening = opening_](v1::WorkerMessage out) {
    out.set_incarnation(incarnation_);
    outbox_.Push(opening, std::move(out));
  };
  const auto find = [this](const std::string& graph, const std::string& attempt) -> GraphSession* {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    return it != graphs_.end() && it->second->attempt() == attempt ? it->second.get() : nullptr;
  };
  switch (m.what_case()) {
    case v1::DriverMessage::kLoad: {
      const v1::LoadPlan& l = m.load();
      if (find(l.graph(), l.attempt()) == nullptr) {
        Unload(l.graph(), "", /*reply=*/false);  // an older attempt that was never unloaded
        MutexLock lock(&mu_);
        graphs_[l.graph()] = std::make_unique<GraphSession>(env_, registration_, stub_, l.graph(), l.attempt(), send, IsClosing(l.graph()));
      }
      find(l.graph(), l.attempt())->Load(l);
      return;
    }
    case v1::DriverMessage::kConnect:
      if (GraphSession* g = find(m.connect().graph(), m.connect().attempt())) g->Connect(m.connect());
      return;
    case v1::DriverMessage::kStart:
      if (GraphSession* g = find(m.start().graph(), m.start().attempt())) g->Start();
      return;
    case v1::DriverMessage::kNextPlan:
      if (GraphSession* g = find(m.next_plan().graph(), m.next_plan().attempt())) g->Next(m.next_plan());
      return;
    case v1::DriverMessage::kSwap:
      if (GraphSession* g = find(m.swap().graph(), m.swap().attempt())) g->Swap(m.swap());
      return;
    case v1::DriverMessage::kUnload:
      Unload(m.unload().graph(), m.unload().attempt(), /*reply=*/true);
      return;
    case v1::DriverMessage::kAbort: {
      // An abort is none without an error: a code that says OK becomes Aborted.
      const auto code = static_cast<absl::StatusCode>(m.abort().code());
      const absl::Status cause(code == absl::StatusCode::kOk ? absl::StatusCode::kAborted : code, m.abort().message());
      if (GraphSession* g = find(m.abort().graph(), m.abort().attempt())) {
        g->Cancel(cause);
        env_->executor->Abort(m.abort().graph(), cause);
      }
      return;
    }
    case v1::DriverMessage::kInspect: {
      const int64_t request = m.inspect().request();
      std::vector<v1::WorkerView> bootstrapping;
      {
        MutexLock lock(&mu_);
        for (const auto& [name, g] : graphs_) {
          if (!m.inspect().graph().empty() && m.inspect().graph() != name) continue;
          if (std::optional<v1::WorkerView> v = g->View(); v.has_value()) bootstrapping.push_back(*std::move(v));
        }
        for (const Closing& c : closings_) {
          if (c.done || (!m.inspect().graph().empty() && m.inspect().graph() != c.graph)) continue;
          std::optional<v1::WorkerView> v = c.session->View();
          if (!v.has_value()) continue;
          v->set_problem(absl::StrCat("the graph is being removed; ", v->problem()));
          bootstrapping.push_back(*std::move(v));
        }
      }
      env_->executor->Inspect(m.inspect().graph(), [this, opening = opening_, request, bootstrapping = std::move(bootstrapping)](std::vector<v1::WorkerView> views) {
        v1::WorkerMessage out = NewMessage();
        v1::InspectResult* const r = out.mutable_inspect_result();
        r->set_request(request);
        for (v1::WorkerView& v : views) *r->add_view() = std::move(v);
        for (const v1::WorkerView& v : bootstrapping) *r->add_view() = v;
        outbox_.Push(opening, std::move(out));
      });
      return;
    }
    case v1::DriverMessage::kFetchTrace: {
      const int64_t request = m.fetch_trace().request();
      env_->executor->FetchTrace(m.fetch_trace().graph(), m.fetch_trace().executions(), [this, opening = opening_, request, name = name_](v1::TraceTrack track) {
        // In pieces, so that no message nears gRPC's limit.
        constexpr int kEventsPerMessage = 10'000;
        int begin = 0;
        do {
          v1::WorkerMessage out = NewMessage();
          v1::TraceResult* r = out.mutable_trace_result();
          r->set_request(request);
          r->mutable_track()->set_worker(name);
          const int end = std::min(track.event_size(), begin + kEventsPerMessage);
          for (int i = begin; i < end; ++i) *r->mutable_track()->add_event() = track.event(i);
          r->set_last(end == track.event_size());
          outbox_.Push(opening, std::move(out));
          begin = end;
        } while (begin < track.event_size());
      });
      return;
    }
    case v1::DriverMessage::kClockPing: {
      v1::WorkerMessage out = NewMessage();
      out.mutable_clock_reply()->set_request(m.clock_ping().request());
      out.mutable_clock_reply()->set_worker_ns(env_->clock->Now());
      outbox_.Push(std::move(out));
      return;
    }
    default:
      return;  // of a newer driver
  }
}

void Agent::Unload(const std::string& graph, const std::string& attempt, bool reply) {
  JoinClosings(/*all=*/false);
  const auto answer = [this, opening = opening_, graph, attempt] {
    v1::WorkerMessage out = NewMessage();
    out.mutable_unload_reply()->set_graph(graph);
    out.mutable_unload_reply()->set_attempt(attempt);
    outbox_.Push(opening, std::move(out));
  };
  {
    MutexLock lock(&mu_);
    Closing* closing = nullptr;
    if (const auto it = graphs_.find(graph); it != graphs_.end() && (attempt.empty() || it->second->attempt() == attempt)) {
      closing = BeginClosing(it, absl::OkStatus());
    }
    // The driver may ask again, for a failure and for a teardown: no answer says that the graph is gone before it is.
    for (Closing& c : closings_) {
      if (!c.done && c.graph == graph && c.session->attempt() == attempt) closing = &c;
    }
    if (closing != nullptr) {
      if (reply) closing->answers.push_back(answer);
      return;
    }
  }
  if (reply) answer();
}

Agent::Closing* Agent::BeginClosing(std::map<std::string, std::unique_ptr<GraphSession>>::iterator it, const absl::Status& abort) {
  Closing* const closing = &closings_.emplace_back();  // where it lies until it is joined
  closing->graph = it->first;
  closing->session = std::move(it->second);
  closing->abort = abort;
  graphs_.erase(it);
  closing->thread = std::thread([this, closing] { Close(closing); });
  return closing;
}

void Agent::Close(Closing* closing) {
  if (!closing->abort.ok()) closing->session->Cancel(closing->abort);
  closing->session->End();
  std::unique_ptr<GraphSession> ended;  // goes without the lock
  MutexLock lock(&mu_);
  if (!closing->abort.ok()) env_->executor->Abort(closing->graph, closing->abort);
  env_->executor->Remove(closing->graph, [answers = std::move(closing->answers)] {
    for (const auto& answer : answers) answer();
  });
  ended = std::move(closing->session);
  closing->done = true;
  const auto next = graphs_.find(closing->graph);
  if (next != graphs_.end() && !IsClosing(closing->graph)) next->second->LetGo();
}

bool Agent::IsClosing(const std::string& graph) const {
  return std::any_of(closings_.begin(), closings_.end(), [&](const Closing& c) { return !c.done && c.graph == graph; });
}

void Agent::JoinClosings(bool all) {
  std::list<Closing> ended;
  {
    MutexLock lock(&mu_);
    for (auto it = closings_.begin(); it != closings_.end();) {
      const auto next = std::next(it);
      if (all && !it->done) {
        const std::optional<v1::WorkerView> v = it->session->View();
        if (v.has_value()) SPDLOG_INFO("waits for graph {} to end: {}", it->graph, v->problem());
      }
      if (all || it->done) ended.splice(ended.end(), closings_, it);
      it = next;
    }
  }
  for (Closing& c : ended) c.thread.join();
}

void Agent::DropAllGraphs(const absl::Status& cause) {
  MutexLock lock(&mu_);
  while (!graphs_.empty()) BeginClosing(graphs_.begin(), cause);
}

void Agent::OnGraphFailed(const std::string& graph, const std::string& attempt, const absl::Status& cause) {
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (it == graphs_.end() || it->second->attempt() != attempt) return;  // it is being removed
  }
  // A peer that was told to remove the graph closes its links before this worker is told: no failure worth a warning.
  SPDLOG_LOGGER_CALL(spdlog::default_logger_raw(), absl::IsCancelled(cause) ? spdlog::level::debug : spdlog::level::warn,
                     "graph {} failed: {}", graph, std::string(cause.message()));
  v1::WorkerMessage m = NewMessage();
  m.mutable_graph_failed()->set_graph(graph);
  m.mutable_graph_failed()->set_attempt(attempt);
  m.mutable_graph_failed()->set_code(static_cast<int>(cause.code()));
  m.mutable_graph_failed()->set_message(std::string(cause.message()));
  outbox_.Push(std::move(m));
}

void Agent::OnGraphCompleted(const std::string& graph, const std::string& attempt, int64_t completed) {
  {
    MutexLock lock(&mu_);
    const auto it = graphs_.find(graph);
    if (it == graphs_.end() || it->second->attempt() != attempt || !it->second->wants_completed()) return;
  }
  v1::WorkerMessage m = NewMessage();
  m.mutable_graph_progress()->set_graph(graph);
  m.mutable_graph_progress()->set_attempt(attempt);
  m.mutable_graph_progress()->set_completed(completed);
  outbox_.Push(std::move(m));
}

}  // namespace weft
