#include "tests/chaos/chaos.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Catch::Matchers::Contains;

std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) out.insert(entry.path().filename().string());
  return out;
}

v1::Node* AddNode(v1::Graph* g, const std::string& cls, int worker, const std::string& name, const std::string& method) {
  v1::Actor* a = g->add_actor();
  a->set_name("a." + name);
  a->set_class_(cls);
  a->set_worker(absl::StrCat("w", worker));
  v1::Node* n = g->add_node();
  n->set_name(name);
  n->set_actor(a->name());
  n->set_method(method);
  return n;
}

void AddOutput(v1::Graph* g, const std::string& node) {
  v1::Output* o = g->add_output();
  o->set_name("out." + node);
  o->set_node(node);
}

v1::Collective* AddAllReduce(v1::Graph* g, size_t workers, const std::string& member_prefix) {
  v1::Collective* c = g->add_collective();
  c->set_name("sum");
  c->set_op(v1::ALL_REDUCE);
  c->set_reduce(v1::SUM);
  for (size_t i = 0; i < workers; ++i) c->add_member()->set_node(absl::StrCat(member_prefix, i));
  return c;
}

void AddSource(v1::Graph* g, int worker, const std::string& name) {
  AddNode(g, "std.Constant", worker, name, "make");
  v1::Config* config = g->mutable_actor(g->actor_size() - 1)->mutable_config();
  config->set_dtype(v1::F32);
  config->set_shape("[2000000]");
}

// In Compile, of this process.
std::atomic<Nanos> compiling{0};

}  // namespace

bool OnRealGpus() {
  const char* device = getenv("WEFT_TEST_DEVICE");
  return device != nullptr && std::string(device).rfind("cuda", 0) == 0;
}

v1::Graph Chain(const std::string& name, const std::vector<int>& workers, bool collective, double delay_s) {
  v1::Graph g;
  g.set_name(name);
  for (size_t i = 0; i < workers.size(); ++i) {
    v1::Node* n = AddNode(&g, "std.Delay", workers[i], absl::StrCat("n", i), "run");
    g.mutable_actor(g.actor_size() - 1)->mutable_config()->set_duration_s(delay_s);
    if (i > 0) n->add_arg()->set_node(absl::StrCat("n", i - 1));
  }
  if (collective) {
    AddAllReduce(&g, workers.size(), "n");
    for (size_t i = 0; i < workers.size(); ++i) {
      AddNode(&g, "std.Identity", workers[i], absl::StrCat("r", i), "identity")->add_arg()->set_collective("sum");
      AddOutput(&g, absl::StrCat("r", i));
    }
  } else {
    AddOutput(&g, absl::StrCat("n", workers.size() - 1));
  }
  g.mutable_options()->set_submit(v1::QUEUE);
  return g;
}

v1::Graph Chain(const std::string& name, int workers, bool collective, double delay_s) {
  std::vector<int> all;
  for (int w = 0; w < workers; ++w) all.push_back(w);
  return Chain(name, all, collective, delay_s);
}

v1::Graph Bulk(const std::string& name, const std::vector<int>& workers, bool collective) {
  v1::Graph g;
  g.set_name(name);
  const auto reduce = [&](int worker, const std::string& node) {
    v1::Node* n = AddNode(&g, "std.Math", worker, node, "reduce");
    n->mutable_config()->set_reduce("max");
    AddOutput(&g, node);
    return n;
  };
  if (collective) {
    for (size_t i = 0; i < workers.size(); ++i) AddSource(&g, workers[i], absl::StrCat("s", i));
    AddAllReduce(&g, workers.size(), "s");
    for (size_t i = 0; i < workers.size(); ++i) reduce(workers[i], absl::StrCat("r", i))->add_arg()->set_collective("sum");
  } else {
    AddSource(&g, workers[0], "s0");
    for (size_t i = 1; i < workers.size(); ++i) {
      AddNode(&g, "std.Math", workers[i], absl::StrCat("s", i), "identity")->add_arg()->set_node(absl::StrCat("s", i - 1));
    }
    reduce(workers.back(), "r")->add_arg()->set_node(absl::StrCat("s", workers.size() - 1));
  }
  g.mutable_options()->set_submit(v1::QUEUE);
  return g;
}

double SecondsSince(Nanos since) { return ToSeconds(Clock::Real()->Now() - since); }

LeavesNothing::LeavesNothing()
    : shm_before_(SharedMemoryFiles()),
      since_(Clock::Real()->Now()),
      awaited_before_(Daemons::SecondsAwaited()),
      compiled_before_(ToSeconds(compiling.load())) {}

LeavesNothing::~LeavesNothing() {
  CHECK(Daemons::Leftovers().empty());
  std::vector<std::string> left;
  const std::set<std::string> now = SharedMemoryFiles();
  std::set_difference(now.begin(), now.end(), shm_before_.begin(), shm_before_.end(), std::back_inserter(left));
  // NCCL's own files outlive a process of it that is killed while it connects: weft can neither see whose they are nor remove them safely.
  if (OnRealGpus()) {
    left.erase(std::remove_if(left.begin(), left.end(), [](const std::string& f) { return f.rfind("nccl-", 0) == 0; }), left.end());
  }
  CHECK(left == std::vector<std::string>());
  if (!OnRealGpus()) return;
  std::printf("%.1f s, of which workers came up in %.1f and graphs were compiled in %.1f: %s\n", SecondsSince(since_),
              Daemons::SecondsAwaited() - awaited_before_, ToSeconds(compiling.load()) - compiled_before_,
              Catch::getResultCapture().getCurrentTestName().c_str());
  std::fflush(stdout);
}

absl::Status CompileSoon(Client* client, const v1::Graph& graph) {
  const Nanos since = Clock::Real()->Now();
  Client::CompileOptions options;
  options.timeout_s = 60;
  absl::Status s = client->Compile(graph, options).status();
  compiling.fetch_add(Clock::Real()->Now() - since);
  return s;
}

std::string WorkerGone(int worker, pid_t pid) { return absl::StrCat("worker w", worker, " (pid ", pid, ") is gone"); }

void CheckRuns(const Daemons& d, const v1::Graph& graph) {
  const std::unique_ptr<Client> client = d.Dial();
  const absl::Status compiled = CompileSoon(client.get(), graph);
  if (!compiled.ok()) FAIL(std::string(compiled.message()) << "\n" << d.Log("driver"));
  auto session = client->OpenSession({graph.name()});
  REQUIRE(session.ok());
  for (int k = 0; k < 3; ++k) {
    const auto h = (*session)->Submit({});
    REQUIRE(h.ok());
    const auto r = (*session)->Wait(*h, 20);
    if (!r.ok()) FAIL(std::string(r.status().message()));
    CHECK(r->ok());
  }
  CHECK((*session)->Close(10).ok());
  CHECK(client->Teardown(graph.name()).ok());
}

void CheckKillIsTold(const Daemons& d, const v1::Graph& graph, double into_s, const std::function<void()>& kill, const std::string& cause,
                     const std::function<void(const ExecutionResult&)>& good) {
  INFO("graph " << graph.name() << ", killed " << into_s << " s into it");
  const std::unique_ptr<Client> client = d.Dial();
  const absl::Status compiled = CompileSoon(client.get(), graph);
  if (!compiled.ok()) FAIL(std::string(compiled.message()) << "\n" << d.Log("driver"));
  auto session = client->OpenSession({graph.name()});
  REQUIRE(session.ok());
  std::vector<ClientSession::Handle> handles;
  for (int k = 0; k < 400; ++k) {
    const auto h = (*session)->Submit({});
    REQUIRE(h.ok());
    handles.push_back(*h);
  }
  REQUIRE((*session)->Wait(handles[0], 20).ok());  // it is under way
  std::this_thread::sleep_for(std::chrono::duration<double>(into_s));
  const Nanos killed = Clock::Real()->Now();
  kill();
  int failed = 0;
  for (size_t k = 1; k < handles.size(); ++k) {
    const auto r = (*session)->Wait(handles[k], 20);
    if (r.ok()) {
      // Done before; nothing is done once the first has failed.
      CHECK(failed == 0);
      CHECK(r->ok());
      if (good) good(*r);
      continue;
    }
    if (++failed == 1 || k + 1 == handles.size()) {
      CHECK(SecondsSince(killed) < 1.0);
    }
    if (std::string(r.status().message()).find(cause) == std::string::npos) {
      FAIL("execution " << k << " failed with \"" << std::string(r.status().message()) << "\", without \"" << cause << "\"");
    }
  }
  CHECK(failed > 0);
  // And so does whatever comes after.
  const auto late = (*session)->Submit({});
  const absl::Status status = late.ok() ? (*session)->Wait(*late, 5).status() : late.status();
  CHECK_THAT(std::string(status.message()), Contains(cause));
  if (!d.DriverRuns()) return;
  const auto graphs = client->ListGraphs();
  REQUIRE(graphs.ok());
  bool listed = false;
  for (const v1::GraphInfo& g : graphs->graph()) {
    if (g.name() != graph.name()) continue;
    listed = true;
    CHECK(g.state() == "failed");
    CHECK_THAT(g.error(), Contains(cause));
  }
  CHECK(listed);
}

void CheckSurvivors(const Daemons& d, const std::vector<int>& workers, int victim) {
  const std::unique_ptr<Client> client = d.Dial();
  const Nanos since = Clock::Real()->Now();
  std::map<std::string, std::string> states;
  const std::string lost = absl::StrCat("w", victim);
  do {
    const auto reply = client->ListWorkers();
    REQUIRE(reply.ok());
    for (const v1::WorkerInfo& w : reply->worker()) states[w.name()] = w.state();
  } while (states[lost] != "lost" && SecondsSince(since) < 1.0);
  CHECK(states[lost] == "lost");
  CHECK_FALSE(d.WorkerRuns(victim));
  for (const int w : workers) {
    if (w == victim) continue;
    CHECK(states[absl::StrCat("w", w)] == "alive");
    CHECK(d.WorkerRuns(w));
  }
}

}  // namespace weft
