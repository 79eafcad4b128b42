// kill -9 of one of four workers while values go round: how long until the client has the error, until the others have failed, aborted and
// forgotten the graph, and until an execution gives a good result again, on those that are left and with the killed one started anew.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/gpu/bench.h"

namespace weft::bench {
namespace {

constexpr int kWorkers = 4;

struct Settings {
  v1::Transport transport = v1::NCCL;
  int rounds = 8;
  double seconds = 40;
  uint64_t mib = 32;  // of a value
};

void Check(const absl::Status& s) {
  if (!s.ok()) throw std::runtime_error(std::string(s.message()));
}

// A value goes through all of `workers` and back to the first, which says whether it is the execution's.
v1::Graph Ring(const std::string& name, const std::vector<int>& workers, const Settings& s) {
  v1::Graph g;
  g.set_name(name);
  const auto add = [&](const std::string& node, const char* cls, int worker, const char* method) {
    v1::Actor* a = g.add_actor();
    a->set_name(absl::StrCat("a-", node));
    a->set_class_(cls);
    a->set_worker(absl::StrCat("w", worker));
    v1::Node* n = g.add_node();
    n->set_name(node);
    n->set_actor(a->name());
    n->set_method(method);
    return n;
  };
  add("make", "std.Source", workers[0], "make");
  v1::Config* config = g.mutable_actor(0)->mutable_config();
  config->set_dtype(v1::F32);
  config->set_shape(absl::StrCat("[", (s.mib << 20) / 4, "]"));
  config->set_fill("execution");
  std::string last = "make";
  for (size_t i = 1; i <= workers.size(); ++i) {
    const bool end = i == workers.size();
    const std::string name_i = end ? "end" : absl::StrCat("at", i);
    v1::Node* n = add(name_i, "std.Math", workers[i % workers.size()], end ? "peek" : "identity");
    n->add_arg()->set_node(last);
    v1::Edge* e = g.add_edge();
    e->set_from(last);
    e->set_to(name_i);
    e->set_transport(s.transport);
    last = name_i;
  }
  v1::Output* out = g.add_output();
  out->set_name("out");
  out->set_node("end");
  g.mutable_options()->set_submit(v1::QUEUE);
  g.mutable_options()->set_max_in_flight(4);
  return g;
}

void CheckResult(const ExecutionResult& r) {
  if (!r.ok()) throw std::runtime_error(r.errors.begin()->second.message());
  const double got = ElementAsDouble(r.outputs.at("out"), 0);
  if (got != static_cast<double>(r.execution)) throw std::runtime_error(absl::StrCat("execution ", r.execution, " gave ", got));
}

// Keeps executions under way.
class Feed {
 public:
  Feed(Client* client, const std::string& graph, size_t depth) : depth_(depth) {
    SessionOptions options;
    options.graph = graph;
    auto session = client->OpenSession(options);
    Check(session.status());
    session_ = *std::move(session);
  }

  // Takes one result, after submitting until `depth` are under way.
  absl::Status Step() {
    while (flying_.size() < depth_) {
      auto h = session_->Submit({});
      if (!h.ok()) return h.status();
      flying_.push_back(*h);
    }
    auto r = session_->Wait(flying_.front(), 30);
    if (!r.ok()) return r.status();
    flying_.pop_front();
    CheckResult(*r);
    return absl::OkStatus();
  }

 private:
  const size_t depth_;
  std::unique_ptr<ClientSession> session_;
  std::deque<ClientSession::Handle> flying_;
};

void RunOne(Client* client, const v1::Graph& g) {
  Client::CompileOptions compile;
  compile.trace = false;
  Check(client->Compile(g, compile).status());
  Check(Feed(client, g.name(), 1).Step());
}

double Since(Nanos t) { return ToSeconds(Clock::Real()->Now() - t); }

// Seconds from the kill until every one of `others` says that the graph has failed or knows it no more, and until all have aborted and
// forgotten it.
struct Others {
  double failed = 0, gone = 0;
};
Others WatchOthers(Client* client, const std::string& graph, const std::set<std::string>& others, Nanos killed) {
  Others out;
  while (true) {
    const auto reply = client->Inspect(graph);
    Check(reply.status());
    size_t running = 0;
    for (const v1::WorkerView& v : reply->view()) running += others.count(v.worker()) > 0 && v.problem().empty();
    if (running == 0 && reply->graph_size() == 1 && reply->graph(0).state() == "failed") break;
    if (Since(killed) > 30) throw std::runtime_error(absl::StrCat(running, " workers have not failed the graph within 30 s"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  out.failed = Since(killed);
  Check(client->Teardown(graph));
  out.gone = Since(killed);
  return out;
}

Settings Parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (i + 1 >= argc) throw std::runtime_error(absl::StrCat(a, " needs a value"));
    const std::string v = argv[++i];
    if (a == "--transport") {
      if (v != "nccl" && v != "ipc" && v != "shm") throw std::runtime_error("--transport is nccl, ipc or shm");
      s.transport = v == "nccl" ? v1::NCCL : v == "ipc" ? v1::IPC : v1::SHM;
    } else if (a == "--rounds") {
      s.rounds = std::max(1, std::stoi(v));
    } else if (a == "--seconds") {
      s.seconds = std::stod(v);
    } else if (a == "--mib") {
      s.mib = static_cast<uint64_t>(std::max(1, std::stoi(v)));
    } else {
      throw std::runtime_error(absl::StrCat(a, " is no option"));
    }
  }
  return s;
}

class Rounds {
 public:
  explicit Rounds(const Settings& s)
      : settings_(s),
        cluster_(std::vector<std::string>(kWorkers, "h0"), "h0", Devices(s)),
        client_(cluster_.Dial()),
        watcher_(cluster_.Dial()) {}

  void Run() {
    const Nanos began = Clock::Real()->Now();
    double longest = 0;
    for (int round = 0; round < settings_.rounds && (round == 0 || Since(began) + longest < settings_.seconds); ++round) {
      const Nanos round_began = Clock::Real()->Now();
      Round(round);
      longest = std::max(longest, Since(round_began));
    }
    (void)OnFour("last");
  }

  void Report() const {
    Row("error at the client", told_, 1);
    Row("failed on all others", failed_, 1);
    Row("aborted and removed on all others", gone_, 0);
    Row("next good execution, on three", three_, 0);
    Row("next good execution, on four, one started anew", four_, 0);
  }

 private:
  static std::vector<std::string> Devices(const Settings& s) {
    std::vector<std::string> devices;
    for (int i = 0; i < kWorkers; ++i) devices.push_back(s.transport == v1::SHM ? "cpu" : GpuOf(i));
    return devices;
  }

  // A graph of all four that has given a first result. After a round this is where they do so again.
  std::unique_ptr<Feed> OnFour(const std::string& name) {
    Client::CompileOptions compile;
    compile.trace = false;
    Check(client_->Compile(Ring(name, {0, 1, 2, 3}, settings_), compile).status());
    auto feed = std::make_unique<Feed>(client_.get(), name, 8);
    Check(feed->Step());
    if (killed_ > 0) four_.push_back(Since(killed_));
    return feed;
  }

  void Round(int round) {
    const int victim = static_cast<int>(random_() % kWorkers);
    const double into_s = 0.05 + static_cast<double>(random_() % 100000) * 1e-6;
    std::vector<int> rest;
    std::set<std::string> others;
    for (int w = 0; w < kWorkers; ++w) {
      if (w == victim) continue;
      rest.push_back(w);
      others.insert(absl::StrCat("w", w));
    }
    const std::string name = absl::StrCat("ring", round), three = absl::StrCat("three", round);
    const std::string pid = absl::StrCat("(pid ", cluster_.worker_pid(victim), ")");
    auto feed = OnFour(name);
    for (const Nanos from = Clock::Real()->Now(); Since(from) < into_s;) Check(feed->Step());

    killed_ = Clock::Real()->Now();
    cluster_.SignalWorker(victim, SIGKILL);
    Others seen;
    std::string problem, failure;
    std::thread watch([&] {
      try {
        seen = WatchOthers(watcher_.get(), name, others, killed_);
      } catch (const std::exception& e) {
        problem = e.what();
      }
    });
    try {
      absl::Status error;
      while (error.ok()) error = feed->Step();
      told_.push_back(Since(killed_));
      if (std::string(error.message()).find(pid) == std::string::npos) {
        throw std::runtime_error(absl::StrCat("the error does not name w", victim, " ", pid, ": ", std::string(error.message())));
      }
      feed.reset();
      RunOne(client_.get(), Ring(three, rest, settings_));
      three_.push_back(Since(killed_));
    } catch (const std::exception& e) {
      failure = e.what();
    }
    watch.join();
    if (!failure.empty() || !problem.empty()) {
      throw std::runtime_error(absl::StrCat("round ", round, ": ", failure, failure.empty() ? "" : "; ", problem));
    }
    failed_.push_back(seen.failed);
    gone_.push_back(seen.gone);
    std::printf("round %d: w%d killed %.0f ms into it: client %.1f ms, others failed %.1f ms, gone %.1f ms, good on three %.1f ms\n", round,
                victim, into_s * 1e3, told_.back() * 1e3, failed_.back() * 1e3, gone_.back() * 1e3, three_.back() * 1e3);
    std::fflush(stdout);
    cluster_.KillWorker(victim);  // reaps it
    cluster_.StartWorker(victim);
    cluster_.AwaitWorkers();
    Check(client_->Teardown(three));
  }

  void Row(const char* what, const std::vector<double>& times, double mark) const {
    if (times.empty()) return;
    const double worst = *std::max_element(times.begin(), times.end());
    bench::Row(absl::StrCat("kill -9 over ", v1::Transport_Name(settings_.transport), ": ", what),
               absl::StrFormat("median %.1f ms, worst %.1f ms of %d", Median(times) * 1e3, worst * 1e3, static_cast<int>(times.size())),
               mark > 0 ? absl::StrFormat("<= %.0f s", mark) : "", mark > 0 ? worst <= mark : -1);
  }

  const Settings settings_;
  Daemons cluster_;
  const std::unique_ptr<Client> client_, watcher_;
  std::mt19937 random_{1};
  Nanos killed_ = 0;
  std::vector<double> told_, failed_, gone_, three_, four_;
};

}  // namespace

int Kill(int argc, char** argv) {
  Rounds rounds(Parse(argc, argv));
  try {
    rounds.Run();
  } catch (...) {
    rounds.Report();  // what was measured until then
    throw;
  }
  rounds.Report();
  return 0;
}

}  // namespace weft::bench
