#pragma once

// Workers and sessions as objects of the test, which speaks for each of them by hand.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/cluster/coordinator.h"

namespace weft {

class FakeLink : public WorkerLink {
 public:
  void Send(v1::DriverMessage message) override {
    if (closed.ok()) sent.push_back(std::move(message));
  }
  void Close(const absl::Status& why) override {
    if (closed.ok()) closed = why;
  }
  // Messages of one kind since the start.
  std::vector<v1::DriverMessage> Of(v1::DriverMessage::WhatCase what) const {
    std::vector<v1::DriverMessage> found;
    for (const auto& m : sent) {
      if (m.what_case() == what) found.push_back(m);
    }
    return found;
  }
  int Count(v1::DriverMessage::WhatCase what) const { return static_cast<int>(Of(what).size()); }

  std::vector<v1::DriverMessage> sent;
  absl::Status closed;
};

struct FakeWorker {
  FakeWorker(Coordinator* c, std::string n, std::string inc, int64_t pid = 100)
      : coordinator(c), incarnation(std::move(inc)), link(std::make_shared<FakeLink>()) {
    v1::WorkerMessage m = Message();
    m.mutable_register_()->set_name(n);
    m.mutable_register_()->set_host_id("hostA");
    m.mutable_register_()->set_device("cpu");
    m.mutable_register_()->set_pid(pid);
    m.mutable_register_()->set_shm_address("shm-" + n);
    m.mutable_register_()->set_plan_version(kPlanVersion);
    joined = coordinator->WorkerJoined(m, link);
    if (joined.ok()) name = *joined;
  }
  v1::WorkerMessage Message() const {
    v1::WorkerMessage m;
    m.set_incarnation(incarnation);
    return m;
  }
  void Say(const v1::WorkerMessage& m) { coordinator->WorkerSaid(name, m); }
  void Die() { coordinator->WorkerLost(name, incarnation); }

  // Answers to the last command of each kind.
  void Load(absl::Status status = absl::OkStatus(), const std::string& hash = "hash") {
    const v1::LoadPlan command = link->Of(v1::DriverMessage::kLoad).back().load();
    v1::WorkerMessage m = Message();
    m.mutable_load_reply()->set_graph(command.graph());
    m.mutable_load_reply()->set_attempt(command.attempt());
    m.mutable_load_reply()->set_plan_hash(hash);
    m.mutable_load_reply()->set_code(static_cast<int>(status.code()));
    m.mutable_load_reply()->set_message(std::string(status.message()));
    Say(m);
  }
  void Connect(absl::Status status = absl::OkStatus()) {
    const v1::Connect command = link->Of(v1::DriverMessage::kConnect).back().connect();
    v1::WorkerMessage m = Message();
    m.mutable_connect_reply()->set_graph(command.graph());
    m.mutable_connect_reply()->set_attempt(command.attempt());
    m.mutable_connect_reply()->set_code(static_cast<int>(status.code()));
    m.mutable_connect_reply()->set_message(std::string(status.message()));
    Say(m);
  }
  void Start() {
    const v1::Start command = link->Of(v1::DriverMessage::kStart).back().start();
    v1::WorkerMessage m = Message();
    m.mutable_start_reply()->set_graph(command.graph());
    m.mutable_start_reply()->set_attempt(command.attempt());
    Say(m);
  }
  // To the last NextPlan; its hash must be given.
  void TakeNext(const std::string& hash, absl::Status status = absl::OkStatus()) {
    const v1::NextPlan command = link->Of(v1::DriverMessage::kNextPlan).back().next_plan();
    v1::WorkerMessage m = Message();
    m.mutable_next_plan_reply()->set_graph(command.graph());
    m.mutable_next_plan_reply()->set_attempt(command.attempt());
    m.mutable_next_plan_reply()->set_plan_hash(hash);
    m.mutable_next_plan_reply()->set_code(static_cast<int>(status.code()));
    m.mutable_next_plan_reply()->set_message(std::string(status.message()));
    Say(m);
  }
  // To the last SwapPlan.
  void Swap(absl::Status status = absl::OkStatus()) {
    const v1::SwapPlan command = link->Of(v1::DriverMessage::kSwap).back().swap();
    v1::WorkerMessage m = Message();
    m.mutable_swap_reply()->set_graph(command.graph());
    m.mutable_swap_reply()->set_attempt(command.attempt());
    m.mutable_swap_reply()->set_plan_hash(command.plan_hash());
    m.mutable_swap_reply()->set_code(static_cast<int>(status.code()));
    m.mutable_swap_reply()->set_message(std::string(status.message()));
    Say(m);
  }
  void Unload() {
    const v1::Unload command = link->Of(v1::DriverMessage::kUnload).back().unload();
    v1::WorkerMessage m = Message();
    m.mutable_unload_reply()->set_graph(command.graph());
    m.mutable_unload_reply()->set_attempt(command.attempt());
    Say(m);
  }
  void FailGraph(const std::string& graph, const std::string& attempt, absl::Status status) {
    v1::WorkerMessage m = Message();
    m.mutable_graph_failed()->set_graph(graph);
    m.mutable_graph_failed()->set_attempt(attempt);
    m.mutable_graph_failed()->set_code(static_cast<int>(status.code()));
    m.mutable_graph_failed()->set_message(std::string(status.message()));
    Say(m);
  }
  void Heartbeat(int64_t progress) {
    v1::WorkerMessage m = Message();
    m.mutable_heartbeat()->set_progress(progress);
    Say(m);
  }
  std::string Attempt() const { return link->Of(v1::DriverMessage::kLoad).back().load().attempt(); }

  Coordinator* coordinator;
  std::string incarnation;
  std::shared_ptr<FakeLink> link;
  absl::StatusOr<std::string> joined;
  std::string name;
};

class FakeSession : public GraphEnd {
 public:
  explicit FakeSession(GraphEndArgs a) : args(std::move(a)) {}
  absl::Status Prepare() override { return prepare; }
  void Connect(std::vector<v1::PeerAddress> p, Nanos, std::function<void(absl::Status)> done) override {
    peers = std::move(p);
    connect_done = std::move(done);
  }
  void Start() override { started = true; }
  void Fail(const absl::Status& cause) override {
    if (failed.ok()) failed = cause;
  }
  void Drain(std::function<void()> done) override { drained = std::move(done); }
  void Progress(int32_t worker, int64_t completed) override { progress.emplace_back(worker, completed); }
  Counts counts() const override { return now; }
  void Pause(std::function<void(int64_t)> done) override { paused = std::move(done); }
  void Resume() override { ++resumed; }
  std::vector<ExecutionTime> Times(int64_t first) const override {
    std::vector<ExecutionTime> from;
    for (const ExecutionTime& t : times) {
      if (t.execution >= first) from.push_back(t);
    }
    return from;
  }
  v1::WorkerView View() const override {
    v1::WorkerView view;
    view.set_graph(args.plan->graph);
    view.set_worker("@client");
    return view;
  }
  std::shared_ptr<Session> session() override { return nullptr; }

  GraphEndArgs args;
  absl::Status prepare;
  std::vector<v1::PeerAddress> peers;
  std::function<void(absl::Status)> connect_done;
  std::function<void()> drained;
  bool started = false;
  absl::Status failed;
  std::vector<std::pair<int32_t, int64_t>> progress;
  Counts now;
  std::function<void(int64_t)> paused;
  int resumed = 0;
  std::vector<ExecutionTime> times;
};

// A coordinator whose compiler gives every worker named by an actor one op, in the order of the actors.
struct FakeCluster {
  explicit FakeCluster(const GraphStore* store = nullptr)
      : clock(kNanosPerSecond),
        coordinator(
            &clock, WorkerRegistry::Options{"driver1", "hostA", "shm-driver", 1.0, 3.0}, CoordinatorTimeouts(),
            [this](const v1::Graph& g, const std::vector<WorkerSnapshot>& workers, const v1::Costs*) { return CompileFake(g, workers); },
            [this](GraphEndArgs args) {
              sessions.push_back(std::make_shared<FakeSession>(std::move(args)));
              sessions.back()->prepare = prepare;
              return sessions.back();
            },
            store, [this](const v1::Graph& g, const Plan& running, const v1::Costs&) { return RecompileFake(g, running); }) {}

  // The same plan by another hash, predicted to take half as long.
  absl::StatusOr<Coordinator::Recompiled> RecompileFake(const v1::Graph&, const Plan& running) {
    if (in_compiler) in_compiler();
    if (!compile_error.ok()) return compile_error;
    Coordinator::Recompiled r{running, 2.0, next_predicted_s};
    r.plan.hash = next_hash;
    return r;
  }

  absl::StatusOr<Plan> CompileFake(const v1::Graph& graph, const std::vector<WorkerSnapshot>& workers) {
    if (in_compiler) in_compiler();
    if (!compile_error.ok()) return compile_error;
    Plan plan;
    plan.graph = graph.name();
    plan.hash = "hash";
    plan.options = graph.options();
    for (const WorkerSnapshot& w : workers) plan.workers.push_back({w.name, w.registration.host_id(), "cpu"});
    for (const v1::Actor& a : graph.actor()) {
      PlanActor actor;
      actor.id = static_cast<int32_t>(plan.actors.size());
      actor.name = a.name();
      actor.cls = a.class_();
      for (size_t i = 0; i < plan.workers.size(); ++i) {
        if (plan.workers[i].name == a.worker()) actor.worker = static_cast<int32_t>(i);
      }
      plan.actors.push_back(actor);
    }
    return plan;
  }

  static v1::Graph Graph(const std::string& name, const std::vector<std::string>& workers) {
    v1::Graph g;
    g.set_name(name);
    for (const std::string& w : workers) {
      v1::Actor* a = g.add_actor();
      a->set_name("a_" + w);
      a->set_class_("std.Source");
      a->set_worker(w);
    }
    g.mutable_options()->set_bootstrap_timeout_s(10);
    return g;
  }

  // Starts a compile whose end is in `result` once `ended`.
  void Compile(const v1::Graph& graph) {
    ended = 0;
    attempt = coordinator.Compile(graph, false, [this](absl::StatusOr<v1::CompileReply> r) {
      ++ended;
      result = std::move(r);
    });
  }
  std::string StateOf(const std::string& graph) const {
    const v1::ListGraphsReply reply = coordinator.ListGraphs();
    for (const auto& g : reply.graph()) {
      if (g.name() == graph) return g.state();
    }
    return "absent";
  }
  std::string ErrorOf(const std::string& graph) const {
    const v1::ListGraphsReply reply = coordinator.ListGraphs();
    for (const auto& g : reply.graph()) {
      if (g.name() == graph) return g.error();
    }
    return "absent";
  }
  // Compiles and answers everything.
  void MakeReady(const v1::Graph& graph, const std::vector<FakeWorker*>& workers) {
    Compile(graph);
    for (FakeWorker* w : workers) w->Load();
    for (FakeWorker* w : workers) w->Connect();
    sessions.back()->connect_done(absl::OkStatus());
    for (FakeWorker* w : workers) w->Start();
  }
  void After(double s) {
    clock.Advance(FromSeconds(s));
    coordinator.Tick();
  }

  std::string next_hash = "next";
  double next_predicted_s = 1.0;
  FakeClock clock;
  absl::Status compile_error;
  absl::Status prepare;
  std::function<void()> in_compiler;
  std::vector<std::shared_ptr<FakeSession>> sessions;
  int ended = 0;
  absl::StatusOr<v1::CompileReply> result;
  std::string attempt;
  Coordinator coordinator;
};

}  // namespace weft
