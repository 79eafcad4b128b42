// What breaks while values go from GPU to GPU: a GPU that fails for good under its worker, and processes that die in the middle of copies. On real GPUs,
// or on GPUs that the CPU plays where $WEFT_TEST_DEVICE does not say otherwise.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/chaos/chaos.h"
#include "tests/integration/daemons.h"
#include "tests/integration/gpu_graphs.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

// `more`: arguments of any worker; `fake`: of one whose GPU the CPU plays.
std::string Gpu(int i, const std::string& fake, const std::string& more = "") {
  return Real() ? absl::StrCat(weft::Gpu(i), " ", more) : absl::StrCat("fake-cuda ", fake, " ", more);
}

std::string W(int w) { return absl::StrCat("w", w); }

v1::Node* AddTask(v1::Graph* g, const std::string& name, const std::string& cls, int worker, const std::string& method,
                  const std::vector<std::string>& args = {}) {
  v1::Actor* a = g->add_actor();
  a->set_name("a." + name);
  a->set_class_(cls);
  a->set_worker(W(worker));
  v1::Node* n = g->add_node();
  n->set_name(name);
  n->set_actor(a->name());
  n->set_method(method);
  for (const std::string& arg : args) n->add_arg()->set_node(arg);
  return n;
}

// Values of `bytes`, all elements the execution's number.
void AddSource(v1::Graph* g, const std::string& name, int worker, int64_t bytes) {
  v1::Config* c = AddTask(g, name, "std.Source", worker, "make")->mutable_config();
  c->set_dtype(v1::F32);
  c->set_shape(absl::StrCat("[", bytes / 4, "]"));
  c->set_fill("execution");
}

void AddReduced(v1::Graph* g, const std::string& how, int worker, const std::string& of) {
  const std::string name = absl::StrCat(how, ".", of);
  AddTask(g, name, "std.Math", worker, "reduce", {of})->mutable_config()->set_reduce(how);
  v1::Output* o = g->add_output();
  o->set_name(name);
  o->set_node(name);
}

void Carry(v1::Graph* g, const std::string& from, const std::string& to, v1::Transport transport) {
  v1::Edge* e = g->add_edge();
  e->set_from(from);
  e->set_to(to);
  e->set_transport(transport);
}

void SetOptions(v1::Graph* g, v1::Launch launch) {
  g->mutable_options()->set_launch(launch);
  g->mutable_options()->set_max_in_flight(4);
  g->mutable_options()->set_submit(v1::QUEUE);
}

// What is delivered as good is right in every output.
void CheckValues(const ExecutionResult& r) {
  for (const auto& [name, value] : r.outputs) {
    if (ElementAsDouble(value, 0) != static_cast<double>(r.execution)) {
      FAIL("output " << name << " of execution " << r.execution << " is " << ElementAsDouble(value, 0));
    }
  }
}

// From one worker to another: `bytes`, some time after they were announced.
v1::Graph Copies(const std::string& name, int from, int to, v1::Transport transport, v1::Launch launch, int64_t bytes, double delay_s) {
  v1::Graph g;
  g.set_name(name);
  AddSource(&g, "make", from, bytes);
  AddTask(&g, "late", "std.Delay", from, "run", {"make"})->mutable_config()->set_duration_s(delay_s);
  AddTask(&g, "got", "std.Identity", to, "identity", {"late"});
  Carry(&g, "late", "got", transport);
  for (const char* how : {"min", "max"}) AddReduced(&g, how, to, "got");
  SetOptions(&g, launch);
  return g;
}

// Compiles, runs six executions to their good end, and removes.
void CheckRunsRight(Client* client, const v1::Graph& g) {
  INFO("graph " << g.name());
  Need(CompileSoon(client, g));
  {
    auto session = client->OpenSession({g.name()});
    Need(session.status());
    std::vector<ClientSession::Handle> handles;
    for (int k = 0; k < 6; ++k) {
      const auto h = (*session)->Submit({});
      Need(h.status());
      handles.push_back(*h);
    }
    for (const ClientSession::Handle h : handles) {
      const auto r = (*session)->Wait(h, 20);
      Need(r.status());
      REQUIRE(r->ok());
      CHECK(r->outputs.size() == static_cast<size_t>(g.output_size()));
      CheckValues(*r);
    }
  }
  Need(client->Teardown(g.name()));
}

// A graph that runs all the while, on workers that nothing happens to.
class Bystander {
 public:
  Bystander(const Daemons& d, const v1::Graph& graph) : client_(d.Dial()), graph_(graph) {
    Need(CompileSoon(client_.get(), graph_));
    thread_ = std::thread([this] { Run(); });
  }
  ~Bystander() {
    stop_.store(true);
    thread_.join();
  }
  // It has gone on, and no execution has gone wrong.
  void CheckGoesOn() {
    const int before = done_.load();
    CHECK(Within(20, [&] { return done_.load() > before + 4 || failed_.load(); }));
    End(failed_.load());
  }
  void End(bool now) {
    if (!now) return;
    stop_.store(true);
    while (!ended_.load()) std::this_thread::yield();
    FAIL("the bystander: " << problem_);
  }

 private:
  void Run() {
    auto session = client_->OpenSession({graph_.name()});
    if (!session.ok()) problem_ = std::string(session.status().message());
    std::deque<ClientSession::Handle> flying;
    while (problem_.empty() && !stop_.load()) {
      if (flying.size() < 2) {
        const auto h = (*session)->Submit({});
        if (h.ok()) flying.push_back(*h);
        if (!h.ok()) problem_ = std::string(h.status().message());
        continue;
      }
      const auto r = (*session)->Wait(flying.front(), 20);
      flying.pop_front();
      if (!r.ok()) {
        problem_ = std::string(r.status().message());
      } else if (!r->ok()) {
        problem_ = r->errors.begin()->second.message();
      } else {
        for (const auto& [name, value] : r->outputs) {
          if (ElementAsDouble(value, 0) != static_cast<double>(r->execution)) problem_ = absl::StrCat(name, " of ", r->execution, " is wrong");
        }
      }
      ++done_;
    }
    failed_.store(!problem_.empty());
    ended_.store(true);
  }

  const std::unique_ptr<Client> client_;
  const v1::Graph graph_;
  std::atomic<bool> stop_{false}, failed_{false}, ended_{false};
  std::atomic<int> done_{0};
  std::string problem_;  // read once ended_
  std::thread thread_;
};

std::map<std::string, std::string> States(Client* client) {
  std::map<std::string, std::string> states;
  const auto reply = client->ListWorkers();
  Need(reply.status());
  for (const v1::WorkerInfo& w : reply->worker()) states[w.name()] = w.state();
  return states;
}

// The worker's process has ended, the driver knows, and nobody else's has.
void CheckOnlyIsGone(const Daemons& d, Client* client, int victim, int survivors) {
  CHECK(Within(10, [&] { return !d.WorkerRuns(victim); }));
  CHECK(Within(5, [&] { return States(client)[W(victim)] == "lost"; }));
  for (int w = 0; w < survivors; ++w) {
    CHECK(d.WorkerRuns(w));
    CHECK(States(client)[W(w)] == "alive");
  }
}

constexpr int64_t kMiB = int64_t{1} << 20;

// --- a GPU fails for good

// w0 -> victim -> `end`, which may be the victim itself; the victim's GPU breaks in execution `fault`.
v1::Graph Faulty(const std::string& name, int victim, int end, v1::Transport transport, v1::Launch launch, int64_t fault) {
  const int64_t bytes = (Real() ? 16 : 2) * kMiB;
  v1::Graph g;
  g.set_name(name);
  AddSource(&g, "make", 0, bytes);
  AddSource(&g, "other", 0, bytes);
  v1::Config* bad = AddTask(&g, "bad", "std.Fail", victim, "run", {"make"})->mutable_config();
  bad->add_fail_on(fault);
  bad->set_on_device(true);
  AddTask(&g, "end", "std.Identity", end, "identity", {"bad"});
  Carry(&g, "make", "bad", transport);
  if (end != victim) Carry(&g, "bad", "end", transport);
  for (const char* how : {"min", "max"}) AddReduced(&g, how, end, "end");
  AddReduced(&g, "max", victim, "other");  // and this comes while `bad` may be at work
  Carry(&g, "other", "max.other", transport);
  SetOptions(&g, launch);
  return g;
}

void CheckFaultIsTold(const Daemons& d, Client* client, const v1::Graph& g, int victim, int64_t fault) {
  Need(CompileSoon(client, g));
  auto session = client->OpenSession({g.name()});
  Need(session.status());
  const Nanos began = Clock::Real()->Now();
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < fault + 10; ++k) {
    const auto h = (*session)->Submit({});
    // The fault may be known before all are submitted.
    if (!h.ok()) {
      CHECK_THAT(std::string(h.status().message()), Contains("cudaErrorIllegalAddress"));
      break;
    }
    handles.push_back(*h);
  }
  REQUIRE(static_cast<int64_t>(handles.size()) > fault);
  std::string told;
  for (size_t k = 0; k < handles.size(); ++k) {
    INFO("execution " << k);
    const auto r = (*session)->Wait(handles[k], 20);
    if (!r.ok()) {
      told = std::string(r.status().message());
      if (told.find("cudaErrorIllegalAddress") == std::string::npos) FAIL(told << "\nended with " << d.HowWorkerEnded(victim) << "\n" << d.Log(W(victim)) << d.Log("driver"));
      CHECK_THAT(told, Contains(absl::StrCat("worker ", W(victim))));
      CHECK_THAT(told, Contains("GPU ") && Contains(" of this worker has failed for good") && Contains("cudaErrorIllegalAddress"));
      CHECK_THAT(told, Contains("compile the graph again"));
      continue;
    }
    CHECK(told.empty());
    for (const auto& [name, error] : r->errors) {
      CHECK(error.worker() == W(victim));
      CHECK_THAT(error.message(), Contains("cudaErrorIllegalAddress"));
    }
    if (r->ok() && r->execution >= fault) FAIL("execution " << r->execution << " is said to be good");
    CheckValues(*r);
  }
  CHECK_FALSE(told.empty());
  CHECK(SecondsSince(began) < 10);
  const auto late = (*session)->Submit({});
  CHECK_THAT(std::string((late.ok() ? (*session)->Wait(*late, 5).status() : late.status()).message()), Contains("cudaErrorIllegalAddress"));
}

TEST_CASE_METHOD(LeavesNothing, "gpu faults: an illegal address ends its worker, with the cause told, and no other") {
  constexpr int64_t kFault = 6;
  std::vector<std::string> devices;
  for (int w = 0; w < 8; ++w) devices.push_back(Gpu(w, "--fake-copy-mib-per-s 400", w < 2 ? "" : "--with-faults"));
  Daemons d(std::vector<std::string>(8, "h0"), "h0", devices);
  const auto client = d.Dial();
  Bystander bystander(d, Copies("bystander", 0, 1, v1::IPC, v1::STREAM, 64 << 10, 0.001));
  int victim = 2;
  for (const v1::Transport t : {v1::IPC, v1::NCCL, v1::SHM}) {
    for (const v1::Launch launch : {v1::STREAM, v1::GRAPH}) {
      const std::string what = absl::StrCat(v1::Transport_Name(t), "-", v1::Launch_Name(launch));
      INFO(what << ", the GPU of " << W(victim));
      const v1::Graph g = Faulty(absl::StrCat("fault-", what), victim, 1, t, launch, kFault);
      CheckFaultIsTold(d, client.get(), g, victim, kFault);
      // At once, whatever the worker still does.
      CheckRunsRight(client.get(), Copies(absl::StrCat("after-", what), 0, 1, t, launch, kMiB, 0.001));
      CheckOnlyIsGone(d, client.get(), victim, 2);
      CHECK(d.HowWorkerEnded(victim) == "exit code 1");
      CHECK_THAT(d.Log(W(victim)), Contains("cudaErrorIllegalAddress") && Contains("this worker ends"));
      CHECK_THAT(d.Log("driver"), Contains(absl::StrCat("graph ", g.name(), " failed: worker ", W(victim))));
      bystander.CheckGoesOn();
      Need(client->Teardown(g.name()));
      ++victim;
    }
  }
  // As its supervisor does.
  d.KillWorker(2);
  d.StartWorker(2);
  d.KillWorker(3);
  d.StartWorker(3);
  for (int w = 4; w < 8; ++w) d.KillWorker(w);
  d.AwaitWorkers();
  CheckRunsRight(client.get(), Copies("again", 2, 3, v1::IPC, v1::STREAM, kMiB, 0.001));
  bystander.CheckGoesOn();
}

// And the client's values come from the GPU that fails: what it leaves in their place is not delivered.
TEST_CASE_METHOD(LeavesNothing, "gpu faults: a GPU that fails for good fails every graph of its worker, one that rests and one that is compiled too") {
  std::vector<std::string> devices;
  for (int w = 0; w < 6; ++w) devices.push_back(Gpu(w, "", w < 2 ? "" : "--with-faults"));
  Daemons d(std::vector<std::string>(6, "h0"), "h0", devices);
  const auto client = d.Dial();
  for (int i = 0; i < 4; ++i) {
    const int victim = 2 + i;
    const v1::Launch launch = i % 2 == 0 ? v1::STREAM : v1::GRAPH;
    INFO("the GPU of " << W(victim) << ", " << v1::Launch_Name(launch));
    const std::string rests = absl::StrCat("rests", i), comes = absl::StrCat("comes", i), faulty = absl::StrCat("faulty", i);
    Need(CompileSoon(client.get(), Copies(rests, 0, victim, v1::IPC, launch, kMiB, 0)));
    auto resting = client->OpenSession({rests});
    Need(resting.status());
    std::future<absl::Status> compiling = std::async(std::launch::async, [&] {
      // Over and over, so that some step of a bootstrap falls into the worker's end.
      const auto own = d.Dial();
      absl::Status s;
      for (int n = 0; s.ok() && n < 1000; ++n) {
        s = CompileSoon(own.get(), Copies(comes, victim, 0, v1::IPC, launch, kMiB, 0));
        if (s.ok()) s = own->Teardown(comes);
      }
      return s;
    });
    CheckFaultIsTold(d, client.get(), Faulty(faulty, victim, victim, v1::IPC, launch, 3 + i), victim, 3 + i);
    const absl::Status compiled = compiling.get();
    // From the device, from the end of the process, or for want of the worker.
    CHECK_THAT(std::string(compiled.message()), Contains(W(victim)));
    std::string told;
    CHECK(Within(5, [&] {
      const auto h = (*resting)->Submit({});
      told = std::string((h.ok() ? (*resting)->Wait(*h, 5).status() : h.status()).message());
      return !told.empty();
    }));
    INFO(d.HowWorkerEnded(victim) << d.Log(W(victim)) << d.Log("driver"));
    CHECK_THAT(told, Contains("worker " + W(victim)) && Contains("cudaErrorIllegalAddress"));
    CheckOnlyIsGone(d, client.get(), victim, 2);
    CheckRunsRight(client.get(), Copies(absl::StrCat("after", i), 0, 1, v1::IPC, launch, kMiB, 0));
  }
}

// --- a process dies in the middle of copies over ipc

// A value takes about so long to be made, and less to be copied.
double Step() { return Real() ? 0.002 : 0.02; }

// The dying worker is one end, w0 the other, w1 looks on; six times, at moments spread over two executions.
void KillInCopies(bool producer_dies, const std::string& fake_memory) {
  const int64_t bytes = (Real() ? 256 : 8) * kMiB;
  std::vector<std::string> devices;
  for (int w = 0; w < 8; ++w) devices.push_back(Gpu(w, absl::StrCat("--fake-copy-mib-per-s 200 ", w == 0 ? fake_memory : "")));
  Daemons d(std::vector<std::string>(8, "h0"), "h0", devices);
  const auto client = d.Dial();
  const double moments[] = {0, 0.3, 0.7, 1.1, 1.6, 2.1};
  for (int i = 0; i < 6; ++i) {
    const int victim = 2 + i;
    const v1::Launch launch = i % 2 == 0 ? v1::STREAM : v1::GRAPH;
    const int from = producer_dies ? victim : 0, to = producer_dies ? 0 : victim;
    const v1::Graph g = Copies(absl::StrCat("g", i), from, to, v1::IPC, launch, bytes, Step());
    const pid_t pid = d.worker_pid(victim);
    CheckKillIsTold(d, g, moments[i] * Step(), [&] { d.KillWorker(victim); }, WorkerGone(victim, pid), CheckValues);
    CheckOnlyIsGone(d, client.get(), victim, 2);
    // Its GPU works, for what it sends and for what it gets, while the failed graph is still there and after it.
    CheckRunsRight(client.get(), Copies(absl::StrCat("out", i), 0, 1, v1::IPC, launch, kMiB, 0));
    Need(client->Teardown(g.name()));
    CheckRunsRight(client.get(), Copies(absl::StrCat("in", i), 1, 0, v1::IPC, launch, bytes / 4, 0));
  }
}

TEST_CASE_METHOD(LeavesNothing, "gpu faults: kill -9 of a worker whose memory is being copied over ipc: the other end is told and goes on") {
  KillInCopies(true, "");
}

// Of w0's memory (where the CPU plays the GPU) there is enough for one such graph at a time: what the dead had open is free again.
TEST_CASE_METHOD(LeavesNothing, "gpu faults: kill -9 of a worker that copies over ipc: the owner of the memory is told, and has it again") {
  KillInCopies(false, "--fake-memory-mib 96");
}

}  // namespace
}  // namespace weft
