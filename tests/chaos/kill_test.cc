// A worker is killed, in whatever state: pending calls fail within a second with the first cause, survivors stay up, and once the process
// is back a new graph runs.

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/chaos/chaos.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

using Make = std::function<v1::Graph(const std::string& name, const std::vector<int>& workers)>;

// Of six moments the first, one in the middle and the last, where each costs seconds.
std::vector<double> Moments(const std::vector<double>& all) {
  if (!OnRealGpus() || all.size() <= 3) return all;
  return {all.front(), all[all.size() / 2], all.back()};
}

// Hosts of the workers of Places.
std::vector<std::string> Hosts(bool one) {
  std::vector<std::string> hosts;
  for (int w = 0; w < (OnRealGpus() ? 5 : 4); ++w) hosts.push_back(one ? "h0" : absl::StrCat("h", w));
  return hosts;
}

// Three workers that graphs run on, and spares: when one is killed a spare takes its place, so that a new graph runs at once, and the killed one, which
// comes up meanwhile, is the last of the spares.
class Places {
 public:
  explicit Places(Daemons* d) : d_(d) {
    for (int w = 3; w < static_cast<int>(Hosts(true).size()); ++w) spares_.push_back(w);
  }
  const std::vector<int>& workers() const { return use_; }
  int At(int round) const { return use_[static_cast<size_t>(round % 3)]; }
  void Replace(int round) {
    int& place = use_[static_cast<size_t>(round % 3)];
    d_->StartWorker(place);
    spares_.push_back(std::exchange(place, spares_.front()));
    spares_.pop_front();
    d_->AwaitWorkers({place});
    ++replaced_;
  }
  // A graph runs with the one that was killed last. Where that costs seconds, only if none that was killed has taken part yet.
  void Finish(const Make& make, const std::string& name) {
    if (OnRealGpus() && replaced_ > spares_.size()) return;
    d_->AwaitWorkers();
    CheckRuns(*d_, make(name, {spares_.back(), use_[0], use_[1]}));
  }

 private:
  Daemons* const d_;
  std::vector<int> use_ = {0, 1, 2};
  std::deque<int> spares_;
  size_t replaced_ = 0;
};

// Kills each of three workers in turn, each at another moment.
void KillEachInTurn(Daemons* d, const Make& make, const std::vector<double>& moments) {
  d->AwaitWorkers();
  Places places(d);
  int round = 0;
  for (const double into_s : Moments(moments)) {
    const int victim = places.At(round);
    const pid_t pid = d->worker_pid(victim);
    CheckKillIsTold(*d, make(absl::StrCat("g", round), places.workers()), into_s, [&] { d->KillWorker(victim); }, WorkerGone(victim, pid));
    CheckSurvivors(*d, places.workers(), victim);
    places.Replace(round);
    CheckRuns(*d, make(absl::StrCat("again", round), places.workers()));
    ++round;
  }
  places.Finish(make, "last");
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker while executions run, over shared memory") {
  Daemons d(Hosts(true));
  KillEachInTurn(&d, [](const std::string& name, const std::vector<int>& w) { return Chain(name, w, false); }, {0, 0.003, 0.02});
  KillEachInTurn(&d, [](const std::string& name, const std::vector<int>& w) { return Bulk("bulk-" + name, w, false); }, {0.001, 0.004, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker in links and collectives between hosts") {
  Daemons d(Hosts(false));
  KillEachInTurn(&d, [](const std::string& name, const std::vector<int>& w) { return Chain(name, w, true); }, {0, 0.003, 0.02});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a peer in the middle of large transfers between hosts") {
  Daemons d(Hosts(false));
  KillEachInTurn(&d, [](const std::string& name, const std::vector<int>& w) { return Bulk(name, w, false); },
                 {0, 0.001, 0.002, 0.0045, 0.007, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a member in the middle of large collectives between hosts") {
  Daemons d(Hosts(false));
  KillEachInTurn(&d, [](const std::string& name, const std::vector<int>& w) { return Bulk(name, w, true); },
                 {0, 0.001, 0.002, 0.0045, 0.007, 0.0105});
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of an idle worker: the next call fails at once with the cause") {
  Daemons d({"h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(CompileSoon(client.get(), Chain("g", 2, false)).ok());
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
  CheckSurvivors(d, {0, 1}, 0);
  d.StartWorker(0);
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 2, false));
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker that a graph does not use does not touch the graph") {
  Daemons d({"h0", "h0", "h0"});
  const std::unique_ptr<Client> client = d.Dial();
  REQUIRE(CompileSoon(client.get(), Chain("g", 2, false)).ok());
  auto session = client->OpenSession({"g"});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 50; ++k) handles.push_back(*(*session)->Submit({}));
  REQUIRE((*session)->Wait(handles[0], 20).ok());
  d.KillWorker(2);
  CheckSurvivors(d, {0, 1, 2}, 2);
  for (size_t k = 1; k < handles.size(); ++k) {
    const auto r = (*session)->Wait(handles[k], 20);
    REQUIRE(r.ok());
    CHECK(r->ok());
  }
  d.StartWorker(2);
  d.AwaitWorkers();
  CheckRuns(d, Chain("again", 3, false));
}

void KillDuringBootstrap(Daemons* d, const std::vector<bool>& collectives) {
  Places places(d);
  int round = 1;
  for (const bool collective : collectives) {
    const int victim = places.At(round);
    const std::string name = absl::StrCat("g", round);
    d->AwaitWorkers(places.workers());
    d->SignalWorker(victim, SIGSTOP);
    const std::unique_ptr<Client> client = d->Dial();
    std::future<absl::Status> compiled =
        std::async(std::launch::async, [&] { return CompileSoon(client.get(), Chain(name, places.workers(), collective)); });
    // It cannot become ready: the victim does not answer.
    CHECK(compiled.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
    const pid_t pid = d->worker_pid(victim);
    const Nanos killed = Clock::Real()->Now();
    d->KillWorker(victim);
    const absl::Status s = compiled.get();
    CHECK(SecondsSince(killed) < 1.0);
    CHECK_THAT(std::string(s.message()), Contains(WorkerGone(victim, pid)));
    CheckSurvivors(*d, places.workers(), victim);
    places.Replace(round);
    CheckRuns(*d, Chain(name, places.workers(), collective));  // the name is free again
    ++round;
  }
  places.Finish([&](const std::string& name, const std::vector<int>& w) { return Chain(name, w, collectives.back()); }, "last");
}

TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker in the middle of bootstrap: the compile fails and names it") {
  Daemons between(Hosts(false), "h0", {}, Daemons::kComingUp);
  if (OnRealGpus()) return KillDuringBootstrap(&between, {false, true});
  Daemons within(Hosts(true));
  KillDuringBootstrap(&within, {false});
  KillDuringBootstrap(&between, {true});
}

// Other than the stopped one these die at any step of loading and connecting. On GPUs that takes longer: communicators join.
TEST_CASE_METHOD(LeavesNothing, "kill -9 of a worker at many moments around bootstrap") {
  Daemons d(Hosts(false));
  Places places(&d);
  std::vector<int> moments_ms = {0, 3, 6, 9, 12, 15, 18, 21};
  if (OnRealGpus()) moments_ms = {0, 21, 100, 400};
  int round = 0;
  for (const int into_ms : moments_ms) {
    const int victim = places.At(round);
    const std::string name = absl::StrCat("g", round);
    INFO(name << ", killed " << into_ms << " ms into it");
    const std::unique_ptr<Client> client = d.Dial();
    std::future<absl::Status> compiled = std::async(std::launch::async, [&] { return CompileSoon(client.get(), Chain(name, places.workers(), true)); });
    compiled.wait_for(std::chrono::milliseconds(into_ms));
    const pid_t pid = d.worker_pid(victim);
    const Nanos killed = Clock::Real()->Now();
    d.KillWorker(victim);
    const absl::Status s = compiled.get();
    CHECK(SecondsSince(killed) < 1.0);
    // It may have been ready before, or have found the worker missing already.
    if (!s.ok()) CHECK_THAT(std::string(s.message()), Contains(WorkerGone(victim, pid)) || Contains(absl::StrCat("w", victim)));
    CheckSurvivors(d, places.workers(), victim);
    places.Replace(round);
    CheckRuns(d, Chain("again" + name, places.workers(), true));
    ++round;
  }
  places.Finish([](const std::string& name, const std::vector<int>& w) { return Chain(name, w, true); }, "last");
}

}  // namespace
}  // namespace weft
