// The driver and clients are killed; workers are stopped and go on.

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/chaos/chaos.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

v1::GraphInfo InfoOf(Client* client, const std::string& graph) {
  const auto reply = client->ListGraphs();
  if (reply.ok()) {
    for (const v1::GraphInfo& g : reply->graph()) {
      if (g.name() == graph) return g;
    }
  }
  return {};
}

std::string StateOf(Client* client, const std::string& worker) {
  const auto reply = client->ListWorkers();
  if (reply.ok()) {
    for (const v1::WorkerInfo& w : reply->worker()) {
      if (w.name() == worker) return w.state();
    }
  }
  return "";
}

void KillDriver(Daemons* d, int workers, const std::function<v1::Graph(const std::string&)>& make, int rounds) {
  d->AwaitWorkers();
  for (int round = 0; round < rounds; ++round) {
    CheckKillIsTold(*d, make(absl::StrCat("g", round)), 0.004 * round, [&] { d->KillDriver(); }, d->address());
    d->StartDriver();
    d->AwaitWorkers();  // by their pids: they are the same processes
    for (int w = 0; w < workers; ++w) CHECK(d->WorkerRuns(w));
    CheckRuns(*d, make(absl::StrCat("again", round)));
  }
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of the driver: workers stay, come back to the next one, and new graphs run") {
  const std::vector<int> all = {0, 1, 2};
  Daemons mixed({"h0", "h0", "h1"}, "h0", {}, Daemons::kComingUp);
  if (OnRealGpus()) {
    KillDriver(&mixed, 3, [](const std::string& name) { return Chain("chain-" + name, 3, false); }, 1);
    KillDriver(&mixed, 3, [](const std::string& name) { return Chain("collective-" + name, 3, true); }, 1);
    return KillDriver(&mixed, 3, [&](const std::string& name) { return Bulk(name, all, true); }, 2);
  }
  Daemons within({"h0", "h0", "h0"});
  KillDriver(&within, 3, [](const std::string& name) { return Chain(name, 3, false); }, 2);
  Daemons between({"h0", "h1", "h2"});
  KillDriver(&between, 3, [](const std::string& name) { return Chain(name, 3, true); }, 2);
  KillDriver(&mixed, 3, [&](const std::string& name) { return Bulk(name, all, true); }, 2);
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of the driver in the middle of bootstrap") {
  Daemons d({"h0", "h1", "h0"});
  d.SignalWorker(1, SIGSTOP);
  const std::unique_ptr<Client> client = d.Dial();
  std::future<absl::Status> compiled =
      std::async(std::launch::async, [&] { return CompileSoon(client.get(), Chain("g", 3, true)); });
  CHECK(compiled.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
  const Nanos killed = Clock::Real()->Now();
  d.KillDriver();
  const absl::Status s = compiled.get();
  CHECK(SecondsSince(killed) < 1.0);
  CHECK_THAT(std::string(s.message()), Contains(d.address()));
  d.SignalWorker(1, SIGCONT);
  d.StartDriver();
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 3, true));
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a client's process: its graph goes on for others") {
  Daemons within({"h0", "h0"}, "h0", {}, Daemons::kComingUp), between({"h1", "h2"}, "h0", {}, Daemons::kComingUp);
  for (Daemons* const cluster : {&within, &between}) {
    Daemons& d = *cluster;
    d.AwaitWorkers();
    const std::unique_ptr<Client> client = d.Dial();
    REQUIRE(CompileSoon(client.get(), Chain("g", 2, true, 0.002)).ok());
    for (int round = 0; round < 3; ++round) {
      const int64_t before = InfoOf(client.get(), "g").executions_done();
      const pid_t pid = d.StartCli({"execute", "g", "--repeat", "1000000", "--in-flight", "4"});
      if (!Within(10, [&] { return InfoOf(client.get(), "g").executions_done() > before + 2 + round; })) FAIL(d.Log("cli"));
      d.KillCli(pid);
      // What it had under way ends, and its places are free.
      CHECK(Within(1, [&] {
        const v1::GraphInfo g = InfoOf(client.get(), "g");
        return g.executions_admitted() == g.executions_done();
      }));
      CHECK(InfoOf(client.get(), "g").state() == "ready");
      auto session = client->OpenSession({"g"});
      REQUIRE(session.ok());
      for (int k = 0; k < 20; ++k) {
        const auto h = (*session)->Submit({});
        REQUIRE(h.ok());
        const auto r = (*session)->Wait(*h, 5);
        REQUIRE(r.ok());
        CHECK(r->ok());
      }
      CHECK((*session)->Close(5).ok());
    }
    CHECK(client->Teardown("g").ok());
    CheckRuns(d, Chain("again", 2, true));
  }
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a client's process while its graph is compiled: the cluster is not held up") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  std::ofstream(d.dir() + "/g.textproto") << Chain("g", 2, false).DebugString();
  d.SignalWorker(1, SIGSTOP);
  const pid_t pid = d.StartCli({"compile", d.dir() + "/g.textproto"});
  if (!Within(10, [&] { return InfoOf(client.get(), "g").state() == "bootstrapping"; })) FAIL(d.Log("cli"));
  d.KillCli(pid);
  CHECK(client->ListWorkers().ok());
  d.SignalWorker(1, SIGCONT);
  // Given up or ready, but not in between for ever.
  CHECK(Within(10, [&] {
    const std::string state = InfoOf(client.get(), "g").state();
    return state != "compiling" && state != "bootstrapping" && state != "tearing-down";
  }));
  CheckRuns(d, Chain("again", 2, false));
}

void StopAndContinue(const Daemons& d, bool collective) {
  d.AwaitWorkers();
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(CompileSoon(client.get(), Chain("g", 2, collective)).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 100; ++k) handles.push_back(*(*session)->Submit({}));
  REQUIRE((*session)->Wait(handles[0], 20).ok());
  d.SignalWorker(1, SIGSTOP);
  CHECK(Within(20, [&] {
    const auto view = client->Inspect("g");
    REQUIRE(view.ok());
    bool called = false;
    for (const v1::WorkerView& v : view->view()) called |= v.worker() == "w1" && v.problem().find("unresponsive") != std::string::npos;
    return called;
  }));
  CHECK(StateOf(client.get(), "w1") == "unresponsive");
  CHECK(StateOf(client.get(), "w0") == "alive");
  CHECK(InfoOf(client.get(), "g").state() == "ready");
  CHECK_FALSE((*session)->Ready(handles.back()));
  d.SignalWorker(1, SIGCONT);
  for (size_t k = 1; k < handles.size(); ++k) {
    const auto r = (*session)->Wait(handles[k], 20);
    if (!r.ok()) FAIL("execution " << k << ": " << std::string(r.status().message()));
    CHECK(r->ok());
  }
  CHECK(Within(5, [&] { return StateOf(client.get(), "w1") == "alive"; }));
  CHECK(d.WorkerRuns(1));
}

TEST_CASE_METHOD(LeavesNothing, "a stopped worker fails nothing, is called unresponsive, and goes on") {
  const Daemons within({"h0", "h0"}, "h0", {}, Daemons::kComingUp), between({"h0", "h1"}, "h0", {}, Daemons::kComingUp);
  StopAndContinue(within, false);
  StopAndContinue(between, true);
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a stopped worker is told as any other") {
  Daemons d({"h0", "h0", "h1"});
  const pid_t pid = d.worker_pid(2);
  CheckKillIsTold(d, Chain("g", 3, true), 0.01, [&] {
    d.SignalWorker(2, SIGSTOP);
    d.KillWorker(2);
  }, WorkerGone(2, pid));
  CheckSurvivors(d, {0, 1, 2}, 2);
  d.StartWorker(2);
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 3, true));
}

// Threads of libraries (OpenBLAS) are there before main and block no signal.
TEST_CASE_METHOD(LeavesNothing, "SIGTERM ends a worker in order, whatever thread the kernel hands it to") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(CompileSoon(client.get(), Chain("g", 2, false)).ok());
  d.SignalWorker(0, SIGTERM);
  CHECK(Within(5, [&] { return !d.WorkerRuns(0); }));
  CHECK(d.HowWorkerEnded(0) == "exit code 0");
  CHECK(Within(5, [&] { return StateOf(client.get(), "w0") == "lost"; }));
  CHECK(d.WorkerRuns(1));
}

}  // namespace
}  // namespace weft
