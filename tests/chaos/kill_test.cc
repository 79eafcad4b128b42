// Whatever process dies, in whatever state: pending calls fail within a second with the first cause, survivors stay up, and once the process is
// back a new graph runs.

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/integration/daemons.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

// A ring of delays over all workers with, if wanted, an allreduce over the results.
v1::Graph Chain(const std::string& name, int workers, bool collective, double delay_s = 0.005) {
  v1::Graph g;
  g.set_name(name);
  for (int w = 0; w < workers; ++w) {
    v1::Actor* a = g.add_actor();
    a->set_name(absl::StrCat("d", w));
    a->set_class_("std.Delay");
    a->set_worker(absl::StrCat("w", w));
    a->mutable_config()->set_duration_s(delay_s);
    v1::Node* n = g.add_node();
    n->set_name(absl::StrCat("n", w));
    n->set_actor(a->name());
    n->set_method("run");
    if (w > 0) n->add_arg()->set_node(absl::StrCat("n", w - 1));
  }
  if (collective) {
    v1::Collective* c = g.add_collective();
    c->set_name("sum");
    c->set_op(v1::ALL_REDUCE);
    c->set_reduce(v1::SUM);
    for (int w = 0; w < workers; ++w) c->add_member()->set_node(absl::StrCat("n", w));
    for (int w = 0; w < workers; ++w) {
      v1::Actor* a = g.add_actor();
      a->set_name(absl::StrCat("i", w));
      a->set_class_("std.Identity");
      a->set_worker(absl::StrCat("w", w));
      v1::Node* n = g.add_node();
      n->set_name(absl::StrCat("r", w));
      n->set_actor(a->name());
      n->set_method("identity");
      n->add_arg()->set_collective("sum");
      v1::Output* o = g.add_output();
      o->set_name(absl::StrCat("out", w));
      o->set_node(n->name());
    }
  } else {
    v1::Output* o = g.add_output();
    o->set_name("out");
    o->set_node(absl::StrCat("n", workers - 1));
  }
  g.mutable_options()->set_submit(v1::QUEUE);
  return g;
}

double Seconds(Nanos since) { return ToSeconds(Clock::Real()->Now() - since); }

// A graph runs to a good end.
void CheckRuns(const Daemons& d, const std::string& name, int workers, bool collective) {
  const std::unique_ptr<Client> client = d.Dial();
  const auto compiled = client->Compile(Chain(name, workers, collective), {});
  if (!compiled.ok()) FAIL(std::string(compiled.status().message()) << "\n" << d.Log("driver"));
  auto session = client->OpenSession({name});
  REQUIRE(session.ok());
  for (int k = 0; k < 3; ++k) {
    const auto h = (*session)->Submit({});
    REQUIRE(h.ok());
    const auto r = (*session)->Wait(*h, 20);
    REQUIRE(r.ok());
    CHECK(r->ok());
  }
  CHECK((*session)->Close(10).ok());
  CHECK(client->Teardown(name).ok());
}

// A session with executions under way; `kill` is called in the middle; every pending call must fail soon and name `culprit`.
void CheckKillIsTold(const Daemons& d, const std::string& name, int workers, bool collective, const std::function<void()>& kill,
                     const std::string& culprit) {
  const std::unique_ptr<Client> client = d.Dial();
  const auto compiled = client->Compile(Chain(name, workers, collective), {});
  if (!compiled.ok()) FAIL(std::string(compiled.status().message()));
  auto session = client->OpenSession({name});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 400; ++k) {
    const auto h = (*session)->Submit({});
    REQUIRE(h.ok());
    handles.push_back(*h);
  }
  REQUIRE((*session)->Wait(handles[3], 20).ok());  // it is under way
  kill();
  const Nanos killed = Clock::Real()->Now();
  const auto last = (*session)->Wait(handles.back(), 20);
  CHECK(Seconds(killed) < 1.0);
  REQUIRE_FALSE(last.ok());
  CHECK_THAT(std::string(last.status().message()), Contains(culprit));
}

TEST_CASE("kill -9 of a worker while executions run, over shared memory") {
  Daemons d({"h0", "h0", "h0"});
  CheckKillIsTold(d, "g", 3, false, [&] { d.KillWorker(1); }, "w1");
  CHECK(d.Dial()->ListWorkers().ok());
  d.StartWorker(1);
  d.AwaitWorkers();
  CheckRuns(d, "again", 3, false);
}

TEST_CASE("kill -9 of a worker in links and collectives between hosts") {
  Daemons d({"h0", "h1", "h2"});
  for (int victim = 0; victim < 3; ++victim) {
    CheckKillIsTold(d, absl::StrCat("g", victim), 3, true, [&] { d.KillWorker(victim); }, absl::StrCat("w", victim));
    d.StartWorker(victim);
    d.AwaitWorkers();
    CheckRuns(d, absl::StrCat("again", victim), 3, true);
  }
}

TEST_CASE("kill -9 of an idle worker: the next call fails at once with the cause") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Chain("g", 2, false), {}).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  d.KillWorker(0);
  const Nanos killed = Clock::Real()->Now();
  std::string message;
  while (Seconds(killed) < 5) {  // the death itself takes its moment to be seen; no submit may hang
    const auto h = (*session)->Submit({});
    const absl::Status s = h.ok() ? (*session)->Wait(*h, 5).status() : h.status();
    if (s.ok()) continue;
    message = std::string(s.message());
    break;
  }
  CHECK(Seconds(killed) < 1.0);
  CHECK_THAT(message, Contains("w0"));
}

TEST_CASE("kill -9 of the driver: workers stay, come back to the next one, and new graphs run") {
  Daemons d({"h0", "h0", "h1"});
  const pid_t worker = d.worker_pid(0);
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Chain("g", 3, false), {}).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 300; ++k) handles.push_back(*(*session)->Submit({}));
  REQUIRE((*session)->Wait(handles[2], 20).ok());
  d.KillDriver();
  const Nanos killed = Clock::Real()->Now();
  CHECK_FALSE((*session)->Wait(handles.back(), 20).ok());
  CHECK(Seconds(killed) < 1.0);
  d.StartDriver();
  d.AwaitWorkers();
  CHECK(kill(worker, 0) == 0);
  CheckRuns(d, "again", 3, true);
}

TEST_CASE("a client that is gone leaves its graph usable by others") {
  Daemons d({"h0", "h0"});
  {
    const std::unique_ptr<Client> client = d.Dial();
    REQUIRE(client->Compile(Chain("g", 2, false), {}).ok());
    auto session = client->OpenSession({"g"});
    REQUIRE(session.ok());
    for (int k = 0; k < 100; ++k) REQUIRE((*session)->Submit({}).ok());
  }  // dropped with executions in flight
  const std::unique_ptr<Client> client = d.Dial();
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  const auto h = (*session)->Submit({});
  REQUIRE(h.ok());
  const auto r = (*session)->Wait(*h, 20);
  REQUIRE(r.ok());
  CHECK(r->ok());
}

TEST_CASE("a stopped worker fails nothing, is called unresponsive, and goes on") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(client->Compile(Chain("g", 2, false), {}).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  d.SignalWorker(1, SIGSTOP);
  const auto h = (*session)->Submit({});
  REQUIRE(h.ok());
  const Nanos until = Clock::Real()->Now() + 20 * kNanosPerSecond;
  bool called = false;
  while (!called && Clock::Real()->Now() < until) {
    const auto view = client->Inspect("g");
    REQUIRE(view.ok());
    for (const v1::WorkerView& v : view->view()) called |= v.worker() == "w1" && v.problem().find("unresponsive") != std::string::npos;
  }
  CHECK(called);
  CHECK_FALSE((*session)->Ready(*h));
  d.SignalWorker(1, SIGCONT);
  const auto r = (*session)->Wait(*h, 20);
  REQUIRE(r.ok());
  CHECK(r->ok());
}

TEST_CASE("kill -9 of a worker in the middle of bootstrap: the compile fails and names it") {
  Daemons d({"h0", "h0", "h0"});
  d.SignalWorker(1, SIGSTOP);
  const std::unique_ptr<Client> client = d.Dial();
  std::future<absl::Status> compiled =
      std::async(std::launch::async, [&] { return client->Compile(Chain("g", 3, false), {}).status(); });
  // It cannot become ready: w1 does not answer.
  CHECK(compiled.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
  d.KillWorker(1);
  const Nanos killed = Clock::Real()->Now();
  const absl::Status s = compiled.get();
  CHECK(Seconds(killed) < 1.0);
  CHECK_THAT(std::string(s.message()), Contains("w1"));
  d.StartWorker(1);
  d.AwaitWorkers();
  CheckRuns(d, "again", 3, false);
}

TEST_CASE("nothing is left in /dev/shm after all that") {
  int mine = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    mine += entry.path().filename().string().find("weft") != std::string::npos;
  }
  CHECK(mine == 0);
}

}  // namespace
}  // namespace weft
