// A worker is killed, in whatever state: pending calls fail within a second with the first cause, survivors stay up, and once the process
// is back a new graph runs.

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "tests/chaos/chaos.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

// Kills each of three workers in turn, each at another moment.
void KillEachInTurn(Daemons* d, const std::function<v1::Graph(const std::string&)>& make, const std::vector<double>& moments) {
  int round = 0;
  for (const double into_s : moments) {
    const int victim = round % 3;
    const pid_t pid = d->worker_pid(victim);
    CheckKillIsTold(*d, make(absl::StrCat("g", round)), into_s, [&] { d->KillWorker(victim); }, WorkerGone(victim, pid));
    CheckSurvivors(*d, 3, victim);
    d->StartWorker(victim);
    d->AwaitWorkers();
    CheckRuns(*d, make(absl::StrCat("again", round)));
    ++round;
  }
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker while executions run, over shared memory") {
  Daemons d({"h0", "h0", "h0"});
  KillEachInTurn(&d, [](const std::string& name) { return Chain(name, 3, false); }, {0, 0.003, 0.02});
  KillEachInTurn(&d, [](const std::string& name) { return Bulk("bulk-" + name, 3, false); }, {0.001, 0.004, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker in links and collectives between hosts") {
  Daemons d({"h0", "h1", "h2"});
  KillEachInTurn(&d, [](const std::string& name) { return Chain(name, 3, true); }, {0, 0.003, 0.02});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a peer in the middle of large transfers between hosts") {
  Daemons d({"h0", "h1", "h2"});
  KillEachInTurn(&d, [](const std::string& name) { return Bulk(name, 3, false); }, {0, 0.001, 0.002, 0.0045, 0.007, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a member in the middle of large collectives between hosts") {
  Daemons d({"h0", "h1", "h2"});
  KillEachInTurn(&d, [](const std::string& name) { return Bulk(name, 3, true); }, {0, 0.001, 0.002, 0.0045, 0.007, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of an idle worker: the next call fails at once with the cause") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Chain("g", 2, false), {}).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  const pid_t pid = d.worker_pid(0);
  const Nanos killed = Clock::Real()->Now();
  d.KillWorker(0);
  std::string message;
  while (message.empty() && SecondsSince(killed) < 5) {  // the death itself takes its moment to be seen; no submit may hang
    const auto h = (*session)->Submit({});
    const absl::Status s = h.ok() ? (*session)->Wait(*h, 5).status() : h.status();
    message = std::string(s.message());
  }
  CHECK(SecondsSince(killed) < 1.0);
  CHECK_THAT(message, Contains(WorkerGone(0, pid)));
  CheckSurvivors(d, 2, 0);
  d.StartWorker(0);
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 2, false));
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker that a graph does not use does not touch the graph") {
  Daemons d({"h0", "h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Chain("g", 2, false), {}).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 50; ++k) handles.push_back(*(*session)->Submit({}));
  REQUIRE((*session)->Wait(handles[0], 20).ok());
  d.KillWorker(2);
  CheckSurvivors(d, 3, 2);
  for (size_t k = 1; k < handles.size(); ++k) {
    const auto r = (*session)->Wait(handles[k], 20);
    REQUIRE(r.ok());
    CHECK(r->ok());
  }
  d.StartWorker(2);
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 3, false));
}

void KillDuringBootstrap(const std::vector<std::string>& hosts, bool collective) {
  Daemons d(hosts);
  d.SignalWorker(1, SIGSTOP);
  const std::unique_ptr<Client> client = d.Dial();
  std::future<absl::Status> compiled =
      std::async(std::launch::async, [&] { return client->Compile(Chain("g", 3, collective), {}).status(); });
  // It cannot become ready: w1 does not answer.
  CHECK(compiled.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
  const pid_t pid = d.worker_pid(1);
  const Nanos killed = Clock::Real()->Now();
  d.KillWorker(1);
  const absl::Status s = compiled.get();
  CHECK(SecondsSince(killed) < 1.0);
  CHECK_THAT(std::string(s.message()), Contains(WorkerGone(1, pid)));
  CheckSurvivors(d, 3, 1);
  d.StartWorker(1);
  d.AwaitWorkers();
  CheckRuns(d, Chain("g", 3, collective));  // the name is free again
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker in the middle of bootstrap: the compile fails and names it") {
  KillDuringBootstrap({"h0", "h0", "h0"}, false);
  KillDuringBootstrap({"h0", "h1", "h2"}, true);
}

// Other than the stopped one these die at any step of loading and connecting.
TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker at many moments around bootstrap") {
  Daemons d({"h0", "h1", "h2"});
  for (int round = 0; round < 8; ++round) {
    const int victim = round % 3;
    const std::string name = absl::StrCat("g", round);
    INFO(name);
    const std::unique_ptr<Client> client = d.Dial();
    std::future<absl::Status> compiled = std::async(std::launch::async, [&] { return client->Compile(Chain(name, 3, true), {}).status(); });
    compiled.wait_for(std::chrono::milliseconds(3 * round));
    const pid_t pid = d.worker_pid(victim);
    const Nanos killed = Clock::Real()->Now();
    d.KillWorker(victim);
    const absl::Status s = compiled.get();
    CHECK(SecondsSince(killed) < 1.0);
    // It may have been ready before, or have found the worker missing already.
    if (!s.ok()) CHECK_THAT(std::string(s.message()), Contains(WorkerGone(victim, pid)) || Contains(absl::StrCat("w", victim)));
    CheckSurvivors(d, 3, victim);
    d.StartWorker(victim);
    d.AwaitWorkers();
    CheckRuns(d, Chain("again" + name, 3, true));
  }
}

}  // namespace
}  // namespace weft
