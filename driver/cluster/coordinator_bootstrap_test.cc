#include <catch2/catch.hpp>
#include <utility>

#include "driver/cluster/fake_cluster.h"

namespace weft {
namespace {

using What = v1::DriverMessage;

bool Has(const absl::Status& s, const std::string& text) { return std::string(s.message()).find(text) != std::string::npos; }

struct Three : FakeCluster {
  Three() : w0(&coordinator, "w0", "i0", 100), w1(&coordinator, "w1", "i1", 101), w2(&coordinator, "w2", "i2", 102) {}
  FakeWorker w0, w1, w2;
};

TEST_CASE("a compile goes through its phases and reports ready") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w2"}));
  CHECK(c.StateOf("g") == "bootstrapping");
  CHECK(c.w1.link->Count(What::kLoad) == 0);  // it has no part
  CHECK(c.w0.link->Of(What::kLoad).back().load().last());
  c.w0.Load();
  CHECK(c.w0.link->Count(What::kConnect) == 0);
  c.w2.Load();
  REQUIRE(c.w0.link->Count(What::kConnect) == 1);
  const v1::Connect connect = c.w0.link->Of(What::kConnect)[0].connect();
  REQUIRE(connect.peer_size() == 3);
  CHECK(connect.peer(2).shm_address() == "shm-w2");
  CHECK(connect.peer(2).incarnation() == "i2");
  CHECK(connect.timeout_s() < 10);
  CHECK(connect.attempt() == c.attempt);
  c.w0.Connect();
  c.w2.Connect();
  CHECK(c.w0.link->Count(What::kStart) == 0);  // the driver's own end is missing
  c.sessions[0]->connect_done(absl::OkStatus());
  CHECK(c.w0.link->Count(What::kStart) == 1);
  c.w2.Start();
  CHECK(c.ended == 0);
  c.w0.Start();
  REQUIRE(c.ended == 1);
  REQUIRE(c.result.ok());
  CHECK(c.result->plan_hash() == "hash");
  CHECK(c.result->workers() == 2);
  CHECK(c.sessions[0]->started);
  CHECK(c.StateOf("g") == "ready");
  CHECK(c.coordinator.SessionOf("g").ok());
}

TEST_CASE("a large plan travels in pieces of at most 1 MiB") {
  Three c;
  v1::Graph graph = FakeCluster::Graph("g", {"w0"});
  std::string name(60, 'n');
  for (int i = 0; i < 60000; ++i) {
    v1::Actor* a = graph.add_actor();
    a->set_name(name);
    a->set_worker("w0");
  }
  c.Compile(graph);
  std::string bytes;
  const auto loads = c.w0.link->Of(What::kLoad);
  REQUIRE(loads.size() > 1);
  for (size_t i = 0; i < loads.size(); ++i) {
    CHECK(loads[i].load().piece().size() <= (1 << 20));
    CHECK(loads[i].load().last() == (i + 1 == loads.size()));
    bytes += loads[i].load().piece();
  }
  v1::Plan plan;
  REQUIRE(plan.ParseFromString(bytes));
  CHECK(plan.actor_size() == 60001);
}

TEST_CASE("a name that is taken is refused unless that graph failed") {
  Three c;
  c.MakeReady(FakeCluster::Graph("g", {"w0"}), {&c.w0});
  c.Compile(FakeCluster::Graph("g", {"w1"}));
  CHECK(absl::IsAlreadyExists(c.result.status()));
  const std::string old = c.w0.Attempt();
  c.w0.FailGraph("g", old, absl::InternalError("bug"));
  REQUIRE(c.StateOf("g") == "failed");
  c.MakeReady(FakeCluster::Graph("g", {"w0"}), {&c.w0});
  CHECK(c.StateOf("g") == "ready");
  CHECK(c.w0.Attempt() != old);
  // The old attempt was unloaded before the new one was loaded, and what still comes from it is dropped.
  const int64_t dropped = c.coordinator.ListWorkers().dropped_messages();
  c.w0.FailGraph("g", old, absl::InternalError("late"));
  CHECK(c.StateOf("g") == "ready");
  CHECK(c.coordinator.ListWorkers().dropped_messages() == dropped + 1);
  CHECK_FALSE(c.sessions[0].use_count() > 2);
}

TEST_CASE("a worker that dies between its registration and the load fails the compile at once") {
  Three c;
  c.in_compiler = [&] { c.w1.Die(); };
  c.Compile(FakeCluster::Graph("g", {"w0", "w1"}));
  REQUIRE(c.ended == 1);
  CHECK(absl::IsUnavailable(c.result.status()));
  CHECK(Has(c.result.status(), "worker w1 (pid 101) is gone"));
  CHECK(Has(c.result.status(), "phase 1 (load)"));
  CHECK(c.w0.link->Count(What::kUnload) == 1);
}

TEST_CASE("a worker that dies in any phase fails the compile with its name, and the others forget the graph") {
  const int phase = GENERATE(1, 2, 3);
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w1"}));
  c.w0.Load();
  if (phase >= 2) c.w1.Load();
  if (phase >= 3) {
    c.w0.Connect();
    c.w1.Connect();
    c.sessions[0]->connect_done(absl::OkStatus());
  }
  CHECK(c.ended == 0);
  c.w1.Die();
  REQUIRE(c.ended == 1);
  CHECK(Has(c.result.status(), "worker w1 (pid 101) is gone"));
  CHECK(Has(c.result.status(), phase == 1 ? "phase 1 (load)" : phase == 2 ? "phase 2 (connect)" : "was being started"));
  CHECK(c.StateOf("g") == "failed");
  CHECK(c.w0.link->Count(What::kAbort) == 1);
  CHECK(c.w0.link->Count(What::kUnload) == 1);
  CHECK_FALSE(c.sessions[0]->failed.ok());
  // Answers that come late are no harm.
  c.w0.Unload();
  CHECK(c.StateOf("g") == "failed");
}

TEST_CASE("a phase that is overdue says what those do who have not answered") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w1", "w2"}));
  c.w1.Load();
  c.After(8);
  for (FakeWorker* w : {&c.w0, &c.w1, &c.w2}) w->Heartbeat(0);
  CHECK(c.w0.link->Count(What::kInspect) == 0);
  c.After(1);
  REQUIRE(c.w0.link->Count(What::kInspect) == 1);
  for (FakeWorker* w : {&c.w0, &c.w1}) {
    v1::WorkerMessage m = w->Message();
    m.mutable_inspect_result()->set_request(w->link->Of(What::kInspect)[0].inspect().request());
    v1::WorkerView* view = m.mutable_inspect_result()->add_view();
    view->set_graph("g");
    view->set_problem("bootstrap: it waits for the moon, for 8.5 s");
    w->Say(m);
  }
  CHECK(c.ended == 0);
  for (FakeWorker* w : {&c.w0, &c.w1, &c.w2}) w->Heartbeat(0);
  c.After(1);
  REQUIRE(c.ended == 1);
  CHECK(c.w0.link->Count(What::kInspect) == 1);
  CHECK(Has(c.result.status(), "no answer within 10.0 s from worker w0 (bootstrap: it waits for the moon, for 8.5 s), worker w2"));
  CHECK_FALSE(Has(c.result.status(), "w1"));
}

TEST_CASE("a phase that is overdue names who has not answered") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w1", "w2"}));
  c.w1.Load();
  c.w0.Heartbeat(0);
  c.After(9);
  CHECK(c.ended == 0);
  c.w0.Heartbeat(0);
  c.After(1);
  REQUIRE(c.ended == 1);
  CHECK(absl::IsDeadlineExceeded(c.result.status()));
  CHECK(Has(c.result.status(), "phase 1 (load)"));
  CHECK(Has(c.result.status(), "worker w0,"));
  CHECK(Has(c.result.status(), "worker w2 (unresponsive for 10.0 s)"));
  CHECK_FALSE(Has(c.result.status(), "w1"));
  CHECK(c.w1.link->Count(What::kUnload) == 1);
}

TEST_CASE("the driver's own end is named when it is what is missing") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0"}));
  c.w0.Load();
  c.w0.Connect();
  c.After(10);
  CHECK(Has(c.result.status(), "phase 2 (connect)"));
  CHECK(Has(c.result.status(), "the driver's own end"));
  CHECK_FALSE(Has(c.result.status(), "w0"));
}

TEST_CASE("a worker's refusal names worker and phase, and later consequences do not replace it") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w1"}));
  c.w1.Load(absl::ResourceExhaustedError("no memory for 4 GiB"));
  REQUIRE(c.ended == 1);
  CHECK(absl::IsResourceExhausted(c.result.status()));
  CHECK(Has(c.result.status(), "phase 1 (load): worker w1: no memory for 4 GiB"));
  c.w0.Die();
  CHECK(c.ended == 1);
  CHECK(c.ErrorOf("g").find("no memory") != std::string::npos);
}

TEST_CASE("another plan's hash is a failure") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0"}));
  c.w0.Load(absl::OkStatus(), "other");
  REQUIRE(c.ended == 1);
  CHECK(Has(c.result.status(), "plan other instead of hash"));
}

TEST_CASE("that a peer is gone waits for the peer's own end, which is the cause") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0", "w1"}));
  c.w0.Load();
  c.w1.Load();
  c.w0.Connect(absl::UnavailableError("w1 closed its socket"));
  CHECK(c.ended == 0);
  c.After(0.1);
  CHECK(c.ended == 0);
  SECTION("it comes") {
    c.w1.Die();
    REQUIRE(c.ended == 1);
    CHECK(Has(c.result.status(), "worker w1 (pid 101) is gone"));
  }
  SECTION("it does not") {
    c.After(0.2);
    REQUIRE(c.ended == 1);
    CHECK(Has(c.result.status(), "worker w0: w1 closed its socket"));
  }
}

TEST_CASE("failures of the driver's own end fail the compile") {
  Three c;
  SECTION("phase 1") {
    c.prepare = absl::ResourceExhaustedError("no memory");
    c.Compile(FakeCluster::Graph("g", {"w0"}));
    REQUIRE(c.ended == 1);
    CHECK(Has(c.result.status(), "phase 1 (load): the driver's own end: no memory"));
    CHECK(c.StateOf("g") == "absent");
  }
  SECTION("phase 2") {
    c.Compile(FakeCluster::Graph("g", {"w0"}));
    c.w0.Load();
    c.sessions[0]->connect_done(absl::DeadlineExceededError("w0 has not opened its stream"));
    REQUIRE(c.ended == 1);
    CHECK(Has(c.result.status(), "phase 2 (connect): the driver's own end: w0 has not opened its stream"));
    CHECK(c.StateOf("g") == "failed");
  }
}

TEST_CASE("a client that goes away, a teardown and the driver's end stop a bootstrap") {
  Three c;
  c.Compile(FakeCluster::Graph("g", {"w0"}));
  SECTION("client") {
    c.coordinator.CancelCompile("g", "another");
    CHECK(c.ended == 0);
    c.coordinator.CancelCompile("g", c.attempt);
    CHECK(absl::IsCancelled(c.result.status()));
    CHECK(c.StateOf("g") == "failed");
  }
  SECTION("teardown") {
    int torn = 0;
    c.coordinator.Teardown("g", 5, [&](absl::Status s) { torn += s.ok() ? 1 : 100; });
    CHECK(absl::IsCancelled(c.result.status()));
    CHECK(torn == 0);
    c.w0.Unload();
    CHECK(torn == 1);
    CHECK(c.StateOf("g") == "absent");
  }
  SECTION("driver") {
    c.coordinator.Shutdown(absl::UnavailableError("the driver ends"));
    CHECK(Has(c.result.status(), "the driver ends"));
    c.Compile(FakeCluster::Graph("h", {"w0"}));
    CHECK(Has(c.result.status(), "the driver ends"));
  }
  CHECK(c.ended == 1);
}

TEST_CASE("a teardown while the compiler works removes the graph when it comes back") {
  Three c;
  int torn = 0;
  absl::Status second;
  bool once = false;
  c.in_compiler = [&] {
    if (std::exchange(once, true)) return;
    c.coordinator.Teardown("g", 5, [&](absl::Status s) { torn += s.ok() ? 1 : 100; });
    c.coordinator.Compile(FakeCluster::Graph("g", {"w1"}), false, [&](auto r) { second = r.status(); });
  };
  c.Compile(FakeCluster::Graph("g", {"w0"}));
  CHECK(absl::IsAlreadyExists(second));
  REQUIRE(c.ended == 1);
  CHECK(absl::IsCancelled(c.result.status()));
  CHECK(torn == 1);
  CHECK(c.StateOf("g") == "absent");
  CHECK(c.w0.link->Count(What::kLoad) == 0);
}

}  // namespace
}  // namespace weft
