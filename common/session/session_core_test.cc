#include "common/session/session_core.h"

#include <catch2/catch.hpp>

#include "common/channel/fake/fake_link.h"
#include "common/session/edge_trial.h"
#include "common/session/session_host.h"

namespace weft {
namespace {

bool Has(const absl::Status& s, const std::string& text) { return std::string(s.message()).find(text) != std::string::npos; }

Spec Floats(int64_t n, bool bounded = false) {
  Spec s;
  s.dtype = v1::F32;
  s.shape.dims = {Dim{bounded ? Dim::kBounded : Dim::kFixed, n}};
  return s;
}

Tensor Filled(int64_t n, float v) {
  Tensor t = *Tensor::OnHost(v1::F32, {n});
  for (int64_t i = 0; i < n; ++i) t.as<float>()[i] = v;
  return t;
}

// Two workers. x goes to both, y to w1; out0 comes from w0, out1 from w1.
std::shared_ptr<Plan> TwoWorkers(int max_in_flight) {
  auto plan = std::make_shared<Plan>();
  plan->graph = "g";
  plan->hash = "00000000000000ab";
  plan->workers = {{"w0", "h", "cpu"}, {"w1", "h", "cpu"}};
  plan->options.set_max_in_flight(max_in_flight);
  plan->options.set_submit_timeout_s(5);
  const auto edge = [&](int src_worker, int dst_worker, const std::string& src, const std::string& dst) {
    PlanEdge e;
    e.id = static_cast<int32_t>(plan->edges.size()) + 10;
    e.src_worker = src_worker;
    e.dst_worker = dst_worker;
    e.src = src;
    e.dst = dst;
    e.transport = v1::SHM;
    e.spec = Floats(4, true);
    e.bytes = 16;
    e.slots = 2;
    plan->edges.push_back(e);
  };
  edge(kClient, 0, "x", "n0");
  edge(kClient, 1, "x", "n1");
  edge(kClient, 1, "y", "n1");
  edge(0, kClient, "n0", "out0");
  edge(1, kClient, "n1", "out1");
  return plan;
}

struct FakeAdmission : AdmissionLink {
  struct State {
    int64_t admitted = -1;
    absl::Status status;
  };
  explicit FakeAdmission(std::shared_ptr<State> s) : state(std::move(s)) {}
  void Publish(int64_t execution) override { state->admitted = execution; }
  absl::Status closed() const override { return state->status; }
  void Close(const absl::Status& cause) override {
    if (state->status.ok()) state->status = cause;
  }
  std::shared_ptr<State> state;
};

// A session, and the workers' ends of its edges in the test's hands.
struct Rig {
  explicit Rig(std::shared_ptr<Plan> p) : plan(std::move(p)), bell(Doorbell::InProcess()), stream(&clock) {
    SessionCore::Options o;
    o.clock = &clock;
    o.doorbell = bell.get();
    o.on_link_failed = [this](absl::Status s) { link_failure = s; };
    o.workers = {0, 1};
    core = *SessionCore::Create(plan, o);
    SessionPorts ports;
    for (const PlanEdge& e : plan->edges) {
      ShmEdgeSpec spec;
      spec.edge = e.id;
      spec.slots = e.slots;
      spec.bytes = e.bytes;
      spec.spec = e.spec;
      spec.name = EdgeName(*plan, e);
      FakeLink::Options lo;
      lo.clock = &clock;
      lo.plan_hash = HashAsNumber(plan->hash);
      links.push_back(std::make_unique<FakeLink>(spec, lo));
      if (e.src_worker == kClient) {
        ports.inputs.push_back(links.back()->TakeSendPort());
        from_client[e.id] = links.back()->TakeRecvPort();
      } else {
        ports.outputs.push_back(links.back()->TakeRecvPort());
        to_client[e.id] = links.back()->TakeSendPort();
      }
    }
    for (int i = 0; i < 2; ++i) {
      admissions.push_back(std::make_shared<FakeAdmission::State>());
      ports.links.push_back(std::make_unique<FakeAdmission>(admissions.back()));
    }
    core->Connect(std::move(ports), 10 * kNanosPerSecond, [this](absl::Status s) {
      ++connects;
      connected = s;
    });
    Run();
  }

  void Run() {
    Nanos until = Event::kUnknown;
    while (core->Step(&until)) {
    }
  }
  // The worker's end takes the value of `execution`; -2 when nothing has come.
  float Read(int32_t edge, int64_t execution) {
    RecvPort& port = *from_client[edge];
    if (port.Poll(execution) != PortState::kReady) return -2;
    Value v;
    const Tensor buffer = port.ZeroCopy() ? Tensor() : *Tensor::OnHost(v1::F32, {4});
    REQUIRE(port.Recv(execution, buffer, &v, &stream).ok());
    REQUIRE(v.error == nullptr);
    const float x = v.tensor.as<float>()[0];
    port.Release(execution);
    return x;
  }
  void Write(int32_t edge, int64_t execution, float x, TaskErrorRef error = nullptr) {
    SendPort& port = *to_client[edge];
    REQUIRE(port.Poll(execution) == PortState::kReady);
    Value v;
    if (error == nullptr) v.tensor = Filled(3, x);
    v.error = error;
    REQUIRE(port.Send(execution, v, &stream).ok());
  }
  void Trial() {
    for (auto& [edge, port] : to_client) {
      REQUIRE(port->Poll(kTrialExecution) == PortState::kReady);
      REQUIRE(port->Send(kTrialExecution, TrialValue(edge), &stream).ok());
    }
    Run();
    for (auto& [edge, port] : from_client) {
      REQUIRE(port->Poll(kTrialExecution) == PortState::kReady);
      Value v;
      REQUIRE(port->Recv(kTrialExecution, *Tensor::OnHost(v1::F32, {4}), &v, &stream).ok());
      CHECK(CheckTrialValue(v, edge, "edge").ok());
      port->Release(kTrialExecution);
    }
    Run();
  }
  void Ready() {
    Trial();
    REQUIRE(connects == 1);
    REQUIRE(connected.ok());
    core->Start();
    Run();
  }
  struct Reply {
    int calls = 0;
    absl::StatusOr<SessionResult> result = absl::UnknownError("not called");
    int64_t execution = -1;
    Session::Ticket ticket = 0;
  };
  absl::StatusOr<std::shared_ptr<Reply>> Submit(float x, float y, v1::SubmitMode mode = v1::SUBMIT_MODE_UNSPECIFIED,
                                                bool discard = false) {
    auto reply = std::make_shared<Reply>();
    SessionSubmit s;
    if (!core->spec().inputs.empty()) s.inputs = {Filled(2, x), Filled(4, y)};
    s.mode = mode;
    s.discard_outputs = discard;
    s.admitted = [reply](int64_t e) { reply->execution = e; };
    s.done = [reply](absl::StatusOr<SessionResult> r) {
      ++reply->calls;
      reply->result = std::move(r);
    };
    const absl::StatusOr<Session::Ticket> ticket = core->Submit(std::move(s));
    if (!ticket.ok()) return ticket.status();
    reply->ticket = *ticket;
    Run();
    return reply;
  }

  FakeClock clock;
  std::shared_ptr<Plan> plan;
  std::unique_ptr<Doorbell> bell;
  InlineStream stream;
  std::shared_ptr<SessionCore> core;
  std::vector<std::unique_ptr<FakeLink>> links;
  std::map<int32_t, std::unique_ptr<RecvPort>> from_client;  // 10, 11: x; 12: y
  std::map<int32_t, std::unique_ptr<SendPort>> to_client;    // 13, 14
  std::vector<std::shared_ptr<FakeAdmission::State>> admissions;
  absl::Status link_failure;
  int connects = 0;
  absl::Status connected;
};

TEST_CASE("a paused session takes submits and admits none of them until it goes on") {
  Rig r(TwoWorkers(2));
  r.Ready();
  auto first = *r.Submit(1, 2);
  int64_t at = -1;
  r.core->Pause([&](int64_t admitted) { at = admitted; });
  r.Run();
  CHECK(at == 1);
  auto second = *r.Submit(3, 4);
  CHECK(second->execution == -1);
  CHECK(r.admissions[0]->admitted == 0);
  // What was admitted runs to its end.
  r.clock.Advance(5);
  r.Write(13, 0, 7);
  r.Write(14, 0, 8);
  r.Run();
  CHECK(first->calls == 1);
  CHECK(r.core->counts().queued == 1);
  r.core->Resume();
  r.Run();
  CHECK(second->execution == 1);
  r.Write(13, 1, 7);
  r.Write(14, 1, 8);
  r.clock.Advance(4);
  r.Run();
  const auto times = r.core->Times(0);
  REQUIRE(times.size() == 2);
  CHECK(times[0].done - times[0].admitted == 5);
  CHECK(times[1].done - times[1].admitted == 4);
  CHECK(r.core->Times(1).size() == 1);
  // Taken back before it was heard of.
  r.core->Pause([&](int64_t) { at = -7; });
  r.core->Resume();
  r.Run();
  CHECK(at == 1);
}

TEST_CASE("an execution's inputs go to all its edges and its outputs come back") {
  Rig r(TwoWorkers(2));
  r.Ready();
  auto reply = *r.Submit(1, 2);
  CHECK(reply->execution == 0);
  CHECK(r.admissions[0]->admitted == 0);
  CHECK(r.admissions[1]->admitted == 0);
  CHECK(r.Read(10, 0) == 1);
  CHECK(r.Read(11, 0) == 1);
  CHECK(r.Read(12, 0) == 2);
  r.Write(14, 0, 8);
  r.Run();
  CHECK(reply->calls == 0);
  r.clock.Advance(5);
  r.Write(13, 0, 7);
  r.Run();
  REQUIRE(reply->calls == 1);
  REQUIRE(reply->result.ok());
  CHECK(reply->result->outputs[0].tensor.as<float>()[0] == 7);
  CHECK(reply->result->outputs[0].tensor.dims() == Dims{3});
  CHECK(reply->result->outputs[1].tensor.as<float>()[0] == 8);
  CHECK(reply->result->done - reply->result->admitted == 5);
  CHECK(r.core->counts().completed == 1);
}

TEST_CASE("no more than max_in_flight are admitted, however they are submitted") {
  Rig r(TwoWorkers(2));
  r.Ready();
  std::vector<std::shared_ptr<Rig::Reply>> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(*r.Submit(static_cast<float>(i), 0, v1::QUEUE));
  CHECK(r.admissions[0]->admitted == 1);
  CHECK(r.core->counts().queued == 3);
  CHECK(absl::IsResourceExhausted(r.Submit(9, 9, v1::FAIL_FAST).status()));
  for (int64_t k = 0; k < 5; ++k) {
    CHECK(r.Read(10, k) == static_cast<float>(k));
    CHECK(r.Read(11, k) == static_cast<float>(k));
    CHECK(r.Read(12, k) == 0);
    r.Write(13, k, static_cast<float>(k));
    r.Write(14, k, 0);
    r.Run();
    CHECK(replies[k]->calls == 1);
    CHECK(replies[k]->result->execution == k);
    CHECK(r.admissions[0]->admitted == std::min<int64_t>(4, k + 2));
  }
  CHECK(r.Submit(9, 9, v1::FAIL_FAST).ok());
}

TEST_CASE("WAIT gives up after submit_timeout_s, with the numbers") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto first = *r.Submit(1, 1);
  auto second = *r.Submit(2, 2, v1::WAIT);
  auto queued = *r.Submit(3, 3, v1::QUEUE);
  r.clock.Advance(FromSeconds(4.9));
  Nanos until = Event::kUnknown;
  r.core->Step(&until);
  CHECK(second->calls == 0);
  CHECK(until == r.clock.Now() + FromSeconds(0.1));
  r.clock.Advance(FromSeconds(0.1));
  r.Run();
  REQUIRE(second->calls == 1);
  CHECK(absl::IsDeadlineExceeded(second->result.status()));
  CHECK(Has(second->result.status(), "1 executions are in flight, max_in_flight is 1"));
  CHECK(queued->calls == 0);
  CHECK(first->calls == 0);
}

TEST_CASE("an error on an output edge is that output's error, and the graph goes on") {
  Rig r(TwoWorkers(2));
  r.Ready();
  auto reply = *r.Submit(1, 2);
  auto error = std::make_shared<TaskError>();
  error->worker = "w0";
  error->node = "bad";
  error->execution = 0;
  error->code = absl::StatusCode::kInternal;
  error->message = "singular matrix";
  r.Write(13, 0, 0, error);
  r.Write(14, 0, 5);
  r.Run();
  REQUIRE(reply->calls == 1);
  REQUIRE(reply->result.ok());
  REQUIRE(reply->result->outputs[0].error != nullptr);
  CHECK(reply->result->outputs[0].error->message == "singular matrix");
  CHECK(reply->result->outputs[1].tensor.as<float>()[0] == 5);
  auto next = *r.Submit(1, 2);
  r.Write(13, 1, 6);
  r.Write(14, 1, 6);
  r.Run();
  CHECK(next->result.ok());
}

TEST_CASE("a forgotten execution runs to its end, one that is only queued does not run") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto running = *r.Submit(1, 1);
  auto queued = *r.Submit(2, 2, v1::QUEUE);
  auto last = *r.Submit(3, 3, v1::QUEUE);
  r.core->Forget(queued->ticket);
  r.core->Forget(running->ticket);
  r.core->Forget(12345);
  CHECK(r.Read(10, 0) == 1);
  r.Write(13, 0, 0);
  r.Write(14, 0, 0);
  r.Run();
  CHECK(running->calls == 0);
  CHECK(queued->calls == 0);
  CHECK(last->execution == 1);
  CHECK(r.Read(10, 1) == 3);
}

TEST_CASE("wrong inputs are refused before they are counted") {
  Rig r(TwoWorkers(1));
  r.Ready();
  SessionSubmit s;
  s.inputs = {Filled(2, 1)};
  CHECK(absl::IsInvalidArgument(r.core->Submit(s).status()));
  s.inputs = {Filled(2, 1), Filled(5, 1)};
  CHECK(Has(r.core->Submit(s).status(), "input y is F32[5], the graph declares F32[?<=4]"));
  s.inputs = {Filled(2, 1), Tensor()};
  CHECK(Has(r.core->Submit(s).status(), "input y is missing"));
  s.inputs = {*Tensor::OnHost(v1::I32, {2}), Filled(4, 1)};
  CHECK(Has(r.core->Submit(s).status(), "input x is I32[2]"));
  CHECK(r.core->counts().queued == 0);
}

TEST_CASE("an input that is released slowly holds back its own edge only") {
  Rig r(TwoWorkers(4));
  r.Ready();
  std::vector<std::shared_ptr<Rig::Reply>> replies;
  for (int i = 0; i < 4; ++i) replies.push_back(*r.Submit(static_cast<float>(i), static_cast<float>(10 + i)));
  // Edge 10 has two slots; w0 reads nothing. w1 gets what it reads.
  for (int64_t k = 0; k < 4; ++k) {
    CHECK(r.Read(11, k) == static_cast<float>(k));
    CHECK(r.Read(12, k) == static_cast<float>(10 + k));
    r.Run();
  }
  const auto views = r.core->View();
  REQUIRE(views.size() == 5);
  CHECK(views[0].op == "WRITE x -> n0:0");
  CHECK(views[0].execution == 2);
  CHECK(views[0].waits_for == "w0 to release one of 2 slots");
  CHECK(views[1].waits_for.empty());
  CHECK(views[3].waits_for == "w0 to write execution 0");
  for (int64_t k = 0; k < 4; ++k) {
    CHECK(r.Read(10, k) == static_cast<float>(k));
    r.Run();
  }
}

TEST_CASE("inputs that no output waits for are written even after the execution is done") {
  Rig r(TwoWorkers(1));
  r.Ready();
  for (int64_t k = 0; k < 5; ++k) {
    auto reply = *r.Submit(static_cast<float>(k), 0);
    r.Read(11, k);
    r.Read(12, k);
    r.Write(13, k, 0);
    r.Write(14, k, 0);
    r.Run();
    CHECK(reply->calls == 1);
  }
  for (int64_t k = 0; k < 5; ++k) {
    CHECK(r.Read(10, k) == static_cast<float>(k));
    r.Run();
  }
}

TEST_CASE("a failure ends all that is pending with the first cause, and everything later") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto running = *r.Submit(1, 1);
  auto queued = *r.Submit(2, 2, v1::QUEUE);
  int drained = 0;
  r.core->Fail(absl::UnavailableError("worker w2 is gone"));
  r.core->Fail(absl::InternalError("a consequence"));
  r.Run();
  CHECK(running->result.status() == absl::UnavailableError("worker w2 is gone"));
  CHECK(queued->result.status() == absl::UnavailableError("worker w2 is gone"));
  CHECK(r.admissions[0]->status == absl::UnavailableError("worker w2 is gone"));
  const absl::Status refused = r.Submit(3, 3).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(Has(refused, "worker w2 is gone"));
  r.core->Drain([&] { ++drained; });
  r.Run();
  CHECK(drained == 1);
  CHECK(running->calls == 1);
}

TEST_CASE("a link that closes is reported once and fails nothing by itself") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto running = *r.Submit(1, 1);
  SECTION("a port") { r.links[3]->Close(absl::UnavailableError("w0 is gone")); }
  SECTION("a segment without edges") { r.admissions[1]->status = absl::UnavailableError("w0 is gone"); }
  r.Run();
  CHECK(Has(r.link_failure, "w0 is gone"));
  CHECK(running->calls == 0);
  Nanos until = Event::kUnknown;
  CHECK_FALSE(r.core->Step(&until));
}

TEST_CASE("a drain takes no more and ends when all is done") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto reply = *r.Submit(1, 1);
  int drained = 0;
  r.core->Drain([&] { ++drained; });
  r.Run();
  CHECK(drained == 0);
  CHECK(absl::IsFailedPrecondition(r.Submit(1, 1).status()));
  r.Write(13, 0, 1);
  r.Write(14, 0, 1);
  r.Run();
  CHECK(reply->calls == 1);
  CHECK(drained == 1);
}

TEST_CASE("discarded outputs come without data but with errors") {
  Rig r(TwoWorkers(1));
  r.Ready();
  auto reply = *r.Submit(1, 1, v1::WAIT, true);
  auto error = std::make_shared<TaskError>();
  error->code = absl::StatusCode::kInternal;
  r.Write(13, 0, 1);
  r.Write(14, 0, 1, error);
  r.Run();
  REQUIRE(reply->result.ok());
  CHECK_FALSE(reply->result->outputs[0].tensor.defined());
  CHECK(reply->result->outputs[1].error != nullptr);
}

TEST_CASE("nothing is admitted before the start") {
  Rig r(TwoWorkers(1));
  auto reply = *r.Submit(1, 1);
  r.Trial();
  CHECK(reply->execution == -1);
  CHECK(r.Read(10, 0) == -2);
  r.core->Start();
  r.Run();
  CHECK(reply->execution == 0);
}

TEST_CASE("the trial of edges names what does not come, and what is wrong") {
  Rig r(TwoWorkers(1));
  CHECK(r.connects == 0);
  SECTION("in time") {
    r.to_client[13]->Poll(kTrialExecution);
    REQUIRE(r.to_client[13]->Send(kTrialExecution, TrialValue(13), &r.stream).ok());
    Nanos until = Event::kUnknown;
    while (r.core->Step(&until)) {
    }
    int waiting = 0;
    for (const auto& view : r.core->View()) {
      if (!view.output || view.waits_for.empty()) continue;
      ++waiting;
      CHECK(view.waits_for.find(" to try the edge, in bootstrap") != std::string::npos);
    }
    CHECK(waiting > 0);
    CHECK(until == 10 * kNanosPerSecond);
    r.clock.Advance(until);
    r.Run();
    REQUIRE(r.connects == 1);
    CHECK(absl::IsDeadlineExceeded(r.connected));
    CHECK(Has(r.connected, "n1:0 -> out1"));
    CHECK_FALSE(Has(r.connected, "out0"));
    CHECK_FALSE(Has(r.connected, "x"));
  }
  SECTION("another edge's message") {
    REQUIRE(r.to_client[13]->Poll(kTrialExecution) == PortState::kReady);
    REQUIRE(r.to_client[13]->Send(kTrialExecution, TrialValue(99), &r.stream).ok());
    r.Run();
    REQUIRE(r.connects == 1);
    CHECK(absl::IsDataLoss(r.connected));
    CHECK(Has(r.connected, "trial of edge 99"));
  }
  SECTION("the graph fails meanwhile") {
    r.core->Fail(absl::UnavailableError("worker w1 is gone"));
    r.Run();
    REQUIRE(r.connects == 1);
    CHECK(r.connected == absl::UnavailableError("worker w1 is gone"));
  }
  SECTION("a worker closes") {
    r.admissions[0]->status = absl::UnavailableError("w0 closed");
    r.Run();
    REQUIRE(r.connects == 1);
    CHECK(r.connected == absl::UnavailableError("w0 closed"));
  }
}

TEST_CASE("without outputs an execution is done when every worker has completed it") {
  auto plan = TwoWorkers(2);
  plan->edges.clear();
  Rig r(plan);
  r.core->Start();
  r.Run();
  CHECK(r.connects == 1);
  std::vector<std::shared_ptr<Rig::Reply>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(*r.Submit(0, 0, v1::QUEUE));
  CHECK(r.admissions[0]->admitted == 1);
  r.core->Progress(0, 2);
  r.Run();
  CHECK(replies[0]->calls == 0);
  r.core->Progress(1, 1);
  r.core->Progress(7, 100);
  r.Run();
  CHECK(replies[0]->calls == 1);
  CHECK(replies[1]->calls == 0);
  CHECK(r.admissions[1]->admitted == 2);
  r.core->Progress(1, 3);
  r.core->Progress(1, 2);  // late, and lower
  r.core->Progress(0, 3);
  r.Run();
  CHECK(replies[2]->result.ok());
}

TEST_CASE("a host's thread serves sessions, and ends them when it goes") {
  auto bell = Doorbell::InProcess();
  auto plan = TwoWorkers(2);
  plan->edges.clear();
  std::atomic<int> done{0}, failed{0};
  {
    SessionHost host(bell.get());
    std::vector<std::shared_ptr<SessionCore>> cores;
    for (int i = 0; i < 3; ++i) {
      SessionCore::Options o;
      o.doorbell = bell.get();
      o.workers = {0};
      cores.push_back(*SessionCore::Create(plan, o));
      host.Add(cores.back());
      cores.back()->Connect(SessionPorts(), Clock::Real()->Now() + 60 * kNanosPerSecond, [](absl::Status) {});
      cores.back()->Start();
    }
    for (int k = 0; k < 100; ++k) {
      for (const auto& core : cores) {
        SessionSubmit s;
        s.mode = v1::QUEUE;
        s.done = [&](absl::StatusOr<SessionResult> r) { r.ok() ? ++done : ++failed; };
        REQUIRE(core->Submit(std::move(s)).ok());
        if (core != cores[2]) core->Progress(0, k + 1);
      }
    }
    cores[1]->Fail(absl::InternalError("x"));
    host.Remove(cores[1]);
    host.Remove(cores[1]);
  }
  CHECK(done + failed == 300);
  CHECK(failed >= 100);
}

}  // namespace
}  // namespace weft
